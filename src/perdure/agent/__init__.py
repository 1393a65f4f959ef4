"""The turn: store → prompt → view → request → provider → reply → tools → store → events, in one direction.

Read first: `turn.py`, which is the description of a turn.
"""
