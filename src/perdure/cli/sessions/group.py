"""`perdure sessions`: its commands by name, each imported when it is called."""

from __future__ import annotations

import click

from perdure.cli.lazy import Lazy, LazyGroup

COMMANDS = {
    "list": Lazy("perdure.cli.sessions.reading:list_", "List conversations, last used first."),
    "show": Lazy("perdure.cli.sessions.reading:show", "Print a conversation, or what an address in it stands for."),
    "search": Lazy("perdure.cli.sessions.reading:search", "Find what was said, in every conversation."),
    "export": Lazy("perdure.cli.sessions.moving:export", "Write a conversation to a file."),
    "import": Lazy("perdure.cli.sessions.moving:import_", "Read conversations from files."),
    "backup": Lazy("perdure.cli.sessions.moving:backup", "Copy everything, while it is in use."),
    "verify": Lazy("perdure.cli.sessions.verifying:verify", "Check stored messages for damage."),
    "delete": Lazy("perdure.cli.sessions.removing:delete", "Take conversations away for good."),
    "scrub": Lazy("perdure.cli.sessions.removing:scrub", "Take secrets out of what is stored."),
}


@click.group(cls=LazyGroup, commands_table=COMMANDS)
def sessions() -> None:
    """List, read, find, move and delete conversations.

    A conversation is known by its id (c_…), by the id of any session in it (s_…), or by the beginning of either.

    \b
    Examples:
      perdure sessions list
      perdure sessions show c_1m7g
      perdure sessions search "connection refused"
      perdure sessions export c_1m7g --output talk.jsonl
    """
