"""The record: the compacted stretch of a conversation, in order, drawn from the log at a falling resolution.

`calls` describes tool calls, `messages` renders what was said, `budget` fits the renderings into a size, `state`
derives the typed state of the task, and `sections` writes the handoff's sections from it.
"""
