"""Slash commands: handled on every surface, never sent to the model.

text → `dispatch` → a command → `CommandResult`: what to show, and what the surface does next. Read first: `command.py`.
"""
