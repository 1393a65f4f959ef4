"""Every slash command, in the order `/help` shows them."""

from __future__ import annotations

from perdure.commands.command import Command, CommandContext, CommandResult, Commands
from perdure.commands.context import COMPRESS, CONTEXT, INSIGHTS, MODEL, QUIT, STOP, USAGE
from perdure.commands.conversations import BRANCH, NEW, RESUME, RETRY, SESSIONS, UNDO
from perdure.commands.search import EXPAND, HANDOFF, SEARCH
from perdure.commands.titles import TITLE


def all_commands() -> Commands:
    """The commands of every surface."""

    def show_help(surface: CommandContext, argument: str) -> CommandResult:
        return CommandResult(commands.help())

    commands = Commands(
        [
            COMPRESS,
            CONTEXT,
            USAGE,
            INSIGHTS,
            NEW,
            RESUME,
            SESSIONS,
            BRANCH,
            RETRY,
            UNDO,
            TITLE,
            HANDOFF,
            EXPAND,
            SEARCH,
            MODEL,
            STOP,
            QUIT,
            Command("help", "/help", "this list", show_help),
        ]
    )
    return commands
