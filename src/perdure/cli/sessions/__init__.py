"""`perdure sessions`: conversations as things one lists, reads, finds, moves and takes away. Read first: `group.py`."""
