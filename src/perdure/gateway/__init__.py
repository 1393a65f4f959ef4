"""The gateway: many people, many conversations, one memory.

A message's way: a door (`http/`, `openai_api`, `adapters/`) says who speaks (`people`) and in which chat (`chats`) →
`hub` puts it into the store's inbox, on disk, and then into its lane → `lane` takes one message after the other, oldest
first, whichever process took it → `running` answers a slash command, or makes of anything else a turn of the
conversation's agent (`pool`), compacting first what is nearly full (`hygiene`) → its events go out through `streams`,
numbered, so that a reader who lost the connection goes on where it was. `beats` takes over what a process that died
had begun. Read `chats.py`, `hub.py` and `running.py` first.
"""
