"""`perdure gateway` and `perdure serve`: `command.py`, `serve.py`, and `tokens.py`, which says who may enter."""
