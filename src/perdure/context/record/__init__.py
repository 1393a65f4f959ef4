"""The record: the compacted stretch of a conversation, in order, drawn from the log at a falling resolution.

`record` draws it within a budget. `calls` describes tool calls, with a `call_*` module for each kind; `messages` reads
what was said, in passages with a worth each. `state` derives the typed state of the task, and `sections` writes the
handoff's sections from it.
"""
