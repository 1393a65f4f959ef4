"""`perdure chat`: a prompt that is there at once, answers above it as they come, a status line below it.

Keys and what is typed → `live` (one thread of work, so that the prompt never waits) → the agent → events → `transcript`
→ finished text above the prompt, the unfinished block in it. Read first: `command.py`, then `live.py`. `plain_loop.py`
is the same for dumb terminals, `once.py` for scripts.
"""
