"""The record: the compacted stretch of a conversation, in order, rendered from the log at a falling resolution.

Not stored data: it is the part of a handoff that tells what was said and done. `record` renders it within a budget;
the package `calls` describes tool calls, and `messages` reads what was said, in passages with a worth each. `state`
derives the typed state of the task, and `sections` writes the handoff's sections from it.
"""
