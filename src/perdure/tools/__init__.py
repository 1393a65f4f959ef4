"""What an agent can do: tools as typed functions, run side by side, their output kept within budgets.

calls → `runtime` (find, validate, hooks, approval, run) → `budgets` (spill what is too large) → results in call order.
Read first: `tool.py` (what a tool is), then `runtime.py`.
"""
