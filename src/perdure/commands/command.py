"""The types of slash commands, shared by all surfaces: command, context it runs in, result, and dispatch."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perdure.agent.agent import ConversationAgent
from perdure.app.model_choices import ModelChoice
from perdure.core.errors import PerdureError
from perdure.core.visibility import Visibility
from perdure.store.store import SessionStore


class CommandContext(Protocol):
    """Access of a command to the surface it runs on (port): the open conversation, and how to open another."""

    store: SessionStore
    # Whose conversations commands may list, search and open here.
    visibility: Visibility
    # The most characters of a document that it shows at once.
    page_chars: int
    # The current project, whose conversations are listed first; None where there is none, as in a remote chat.
    project: str | None
    # The ids that `/sessions` listed last, in the order of their numbers; empty before.
    listed_ids: Sequence[str]

    @property
    def agent(self) -> ConversationAgent:
        """The agent of the open conversation."""
        ...

    def open(self, session_id: str | None) -> None:
        """Switch the surface to another conversation; None starts a new one."""
        ...

    def model_choices(self) -> Sequence[ModelChoice]:
        """Return the models that can be chosen; empty where they must not be listed.

        May query servers, with short timeouts.
        """
        ...

    def sources(self) -> Sequence[tuple[str, str]]:
        """Return (label, path) pairs for `/context`: files that apply here in addition to those in the prompt."""
        ...

    def choose_model(self, name: str) -> str:
        """Switch to a model; return its name, and a warning if its endpoint does not list it. Raises ConfigError."""
        ...


Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command: text to show, and what the surface does next."""

    text: str
    level: Level = "info"
    # A message to send as a turn now, as if the person had typed it.
    then_send: str | Mapping[str, Any] | None = None
    is_leaving: bool = False
    # The surface is in another conversation now; one that shows its messages needs only the first line of the text.
    is_resumed: bool = False
    # A long text to be read: a terminal may open it in a pager.
    is_document: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command; `run` gets the context and the argument text."""

    name: str
    usage: str
    summary: str
    run: Callable[[CommandContext, str], CommandResult]
    # Names that other tools have for it.
    aliases: tuple[str, ...] = ()


# Commands of the program that are tried in a chat, which has none of that name.
SHELL_COMMANDS = frozenset({"login", "logout", "doctor", "config", "serve", "approvals", "plugins"})


class Commands:
    """The commands of a surface by name; dispatches typed lines to them."""

    def __init__(self, commands: Iterable[Command], groups: Mapping[str, Sequence[str]] | None = None) -> None:
        # The names of commands by the heading they have in `/help`.
        self._groups = groups or {}
        # A later one of the same name holds: a surface may have its own form of a command.
        self._commands: Mapping[str, Command] = {c.name: c for c in commands}
        self._by_alias = {alias: c for c in self._commands.values() for alias in c.aliases}

    def __iter__(self) -> Iterator[Command]:
        return iter(self._commands.values())

    def find(self, text: str) -> Command | None:
        """Return the command that a line names, by its name or an alias; None for any other line."""
        if not is_command(text):
            return None
        name = text.strip().removeprefix("/").partition(" ")[0].lower()
        return self._commands.get(name) or self._by_alias.get(name)

    def dispatch(self, surface: CommandContext, text: str) -> CommandResult | None:
        """Run a typed slash command and return its result; None for an ordinary message. Never raises for any input."""
        if not is_command(text):
            return None
        name, _, argument = text.strip().removeprefix("/").partition(" ")
        command = self.find(text)
        if command is None:
            near = _nearest(name.lower(), [*self._commands, *self._by_alias])
            hint = f"Did you mean /{near}?" if near is not None else "/help lists what there is."
            if name.lower() in SHELL_COMMANDS:
                hint = f"Outside the chat, `perdure {name.lower()}` does that."
            return CommandResult(f"There is no command /{name}. {hint}", "error")
        if argument.strip() and " " not in command.usage:
            return CommandResult(f"/{command.name} takes nothing behind it; given: {argument.strip()!r:.60}", "error")
        try:
            return command.run(surface, argument.strip())
        except PerdureError as error:
            return CommandResult(str(error), "error")

    def names(self) -> list[str]:
        return [f"/{n}" for n in self._commands]

    def help(self) -> str:
        """Return the text of `/help`: every command with its description, in groups."""
        width = max(len(c.usage) for c in self._commands.values())
        grouped = {name for names in self._groups.values() for name in names}
        rest = [name for name in self._commands if name not in grouped]
        lines: list[str] = []
        for heading, names in (*self._groups.items(), ("Commands of your own" if grouped else "", rest)):
            commands = [self._commands[name] for name in names if name in self._commands]
            if commands and heading:
                lines.append(heading)
            lines += [f"{c.usage:<{width}}  {c.summary}{_also(c)}" for c in commands]
        return "\n".join(lines)


def _nearest(name: str, names: Sequence[str]) -> str | None:
    """Return the command that a mistyped name most likely means; swapped letters rank above a missing one."""
    swapped = [n for n in names if sorted(n) == sorted(name)]
    return next(iter(swapped or difflib.get_close_matches(name, names, n=1)), None)


def _also(command: Command) -> str:
    return f" (also {', '.join(f'/{alias}' for alias in command.aliases)})" if command.aliases else ""


def is_command(text: str) -> bool:
    """Whether a line is a command: a slash and a word, not a path such as /etc/hosts."""
    first = text.strip().split(maxsplit=1)[0] if text.strip() else ""
    return first.startswith("/") and first[1:].replace("-", "").isalpha() and "\n" not in first
