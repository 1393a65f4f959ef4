"""The commands and paths that a tool call acts on, as its declared parameters hold them.

The approval guard judges every one of them, so nothing may pass that it cannot read: a value of another kind than a
text, a path, or a list of them is refused. A parameter that is left out, None or an empty text names no target.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from perdure.core.errors import ToolError
from perdure.tools.tool import Tool

# The name or path of a program; a blank or an operator of the shell makes a command line of it.
_PROGRAM = re.compile(r"[\w.+@%:,~/\[-]+")
# An option or a path, and nothing that the shell would read as more.
_PLAIN_ARGUMENT = re.compile(r"-[\w.+@%:,~/=-]*|[\w.+@%:,~=-]*/[\w.+@%:,~/=-]*")
_COMMAND_KINDS = "a command as text, or a list of texts: a program and its arguments"
_PATH_KINDS = "a path, or a list of paths"


@dataclass(frozen=True, slots=True)
class CallTargets:
    """The command lines that a call runs, and the paths that it writes and reads, as the model wrote them."""

    commands: tuple[str, ...] = ()
    # Arguments of a program that would be command lines if the tool ran every text of its list.
    possible_commands: tuple[str, ...] = ()
    written_paths: tuple[str, ...] = ()
    read_paths: tuple[str, ...] = ()

    @property
    def is_command_only(self) -> bool:
        return bool(self.commands) and not self.written_paths and not self.read_paths

    @property
    def command_text(self) -> str:
        """The command as a person reads it; a list of command lines has one on each line."""
        return "\n".join(self.commands[1:] or self.commands)


def read_call_targets(tool: Tool, arguments: Mapping[str, Any]) -> CallTargets:
    """Return the targets of a call in all declared parameters. Raises ToolError for a value that cannot be judged."""
    commands, possible_commands = _read_commands(tool, tool.command_parameter, arguments)
    return CallTargets(
        commands=commands,
        possible_commands=possible_commands,
        written_paths=_read_paths(tool, tool.written_path_parameter, arguments),
        read_paths=_read_paths(tool, tool.read_path_parameter, arguments),
    )


def _read_commands(
    tool: Tool, parameter: str | None, arguments: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the command lines of a parameter, and those it may hold besides.

    A list is a program and its arguments. A list of one text may be a command line as well, and so may all texts of a
    list that begins with something no program is named like.
    """
    value = arguments.get(parameter) if parameter is not None else None
    if not isinstance(value, list | tuple):
        text = _read_text(value)
        if text is None:
            raise _unreadable_value(tool, parameter, value, _COMMAND_KINDS)
        return ((text,) if text else ()), ()
    texts = _read_items(tool, parameter, value, _COMMAND_KINDS)
    if not any(texts):
        return (), ()
    commands = [shlex.join(texts)]
    if len(texts) == 1 or not _PROGRAM.fullmatch(texts[0]):
        return tuple(dict.fromkeys([*commands, *filter(None, texts)])), ()
    possible = [text for text in texts[1:] if text and not _PLAIN_ARGUMENT.fullmatch(text)]
    return tuple(commands), tuple(dict.fromkeys(possible))


def _read_paths(tool: Tool, parameter: str | None, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    value = arguments.get(parameter) if parameter is not None else None
    items = value if isinstance(value, list | tuple | set | frozenset) else [value] if value is not None else []
    return tuple(dict.fromkeys(filter(None, _read_items(tool, parameter, items, _PATH_KINDS))))


def _read_items(tool: Tool, parameter: str | None, items: Any, kinds: str) -> list[str]:
    texts = []
    for item in items:
        text = _read_text(item) if item is not None else None
        if text is None:
            raise _unreadable_value(tool, parameter, item, kinds)
        texts.append(text)
    return texts


def _read_text(value: object) -> str | None:
    """Return a text or path as plain text, "" for None; None for a value of another kind."""
    if value is None:
        return ""
    if isinstance(value, str):
        # The plain text: the methods of a subclass, such as an Enum, may return another one.
        return str.__str__(value)
    return os.fspath(value) if isinstance(value, PurePath) else None


def _unreadable_value(tool: Tool, parameter: str | None, value: object, kinds: str) -> ToolError:
    return ToolError(
        f"{tool.name} was not run: `{parameter}` holds a value of the type {type(value).__name__},"
        f" which cannot be checked for approval. Give {kinds}."
    )
