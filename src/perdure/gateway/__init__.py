"""The gateway: many people, many conversations, one memory.

A message's way: a door (`http/`, `openai_api`, `adapters/`) says who speaks (`people`) and in which chat (`chats`) →
`hub` finds the chat's conversation and its lane → `lane` takes one message after the other: a slash command is
answered, anything else becomes a turn of the conversation's agent → its events go back out through the door, numbered,
so that a reader who lost the connection goes on where it was. Read `chats.py` and `hub.py` first.
"""
