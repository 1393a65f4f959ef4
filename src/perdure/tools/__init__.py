"""Tools: typed functions that the model calls, run concurrently, their output limited.

calls → `runtime` (lookup, validation, hooks, approval, execution) → `output_limits` (store what is too large) → results
in call order. Read first: `tool.py`, then `runtime.py`.
"""
