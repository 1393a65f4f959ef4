"""The table of all slash commands, in the order of `/help`."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.commands.command import Command, CommandContext, CommandResult, Commands
from perdure.commands.context import COMPRESS, CONTEXT, INSIGHTS, MODEL, QUIT, STOP, USAGE
from perdure.commands.conversations import BRANCH, NEW, RESUME, RETRY, SESSIONS, UNDO
from perdure.commands.search import EXPAND, HANDOFF, SEARCH
from perdure.commands.titles import TITLE

# The headings of `/help`; a surface has the commands of a group that it knows.
_GROUPS = {
    "The context": ("context", "compress", "handoff", "expand", "undo", "usage", "insights"),
    "Conversations": ("new", "resume", "sessions", "search", "branch", "retry", "title", "copy", "export"),
    "Model and permissions": ("model", "mode"),
    "This chat": ("edit", "stop", "quit", "help"),
}


def builtin_names() -> list[str]:
    """Return the names that user-defined commands cannot have: those of every surface and of the terminal."""
    commands = all_commands()
    names = [name for command in commands for name in (command.name, *command.aliases)]
    return [*names, "copy", "export", "edit", "mode"]


def all_commands(own: Iterable[Command] = (), *, keys: str = "") -> Commands:
    """Return the built-in commands and those of one surface (`own`); `keys` is appended to `/help`."""

    def show_help(surface: CommandContext, argument: str) -> CommandResult:
        return CommandResult("\n".join(filter(None, (commands.help(), keys))))

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
            *own,
            STOP,
            QUIT,
            Command("help", "/help", "this list", show_help),
        ],
        _GROUPS,
    )
    return commands
