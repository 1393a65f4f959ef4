"""`perdure chat`: the terminal chat, with the prompt at the bottom and answers streaming above it.

Typed lines → `tui` (a working thread, so that the prompt never waits) → the agent → events → `transcript` → finished
text above the prompt, the unfinished block in it. Read first: `command.py`, then `tui.py`. `plain.py` is the chat for
dumb terminals, `one_shot.py` answers one question for scripts.
"""
