"""Model catalogue, context windows and token estimates.

A text becomes counts (`text_stats`), once; `tokens` weighs them for a model and keeps the running sum of a
conversation, corrected by reported usage. `windows` finds how large a window is, from which source, and
divides it up; `catalog` knows windows and prices. Read `tokens.py` first.
"""
