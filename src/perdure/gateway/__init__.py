"""The gateway: many people, many conversations, one memory.

A message's way: a door (`http/`, `openai_api/`, `adapters/`) lets in whom the `guards/` know → `hub` puts it into the
store's inbox, on disk, and then into its lane → in `lanes/`, `lane` takes one message after the other, oldest first,
whichever process took it; `running` answers a slash command, or makes of anything else a turn of the conversation's
agent (`pool`), compacting first what is nearly full (`hygiene`); `beats` takes over what a process that died had begun
→ its events go out through `telling/`, numbered, so that a reader who lost the connection goes on where it was.
`watchers/` look on. Read `telling/chats.py`, `hub.py` and `lanes/running.py` first.
"""
