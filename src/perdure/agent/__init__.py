"""The turn: store → prompt → view → request → provider → reply → tools → store → events, in one direction.

Read first: `turn.py`, which is the description of a turn. `model_request.py` builds the request of a call,
`compaction.py` decides when to compact and does it, `runner.py` runs turns from any thread and cancels them.
"""
