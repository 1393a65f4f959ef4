"""Slash commands: handled by the terminal, gateway and editors themselves, never sent to the model.

text → `dispatch` → a command → `CommandResult`: what to show, and what the surface does next. Read first: `command.py`.
"""
