"""Classify provider errors: parse the body, match patterns, read stated limits, explain to the user."""
