"""Completion at the prompt: commands, conversation ids behind `/resume`, and paths behind `@`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

if TYPE_CHECKING:
    from perdure.cli.chat.desk import ChatController

_MAX_PATHS = 200
_MAX_IDS = 50


class ChatCompleter(Completer):
    """Offers what fits what is being typed. Runs in a thread of its own: a slow disk delays no key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Set once everything is open; before that, only paths are offered.
        self.desk: ChatController | None = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        word = before.split()[-1] if before.strip() and not before[-1].isspace() else ""
        if word.startswith("@"):
            yield from self._paths(word[1:])
        elif before.startswith("/") and self.desk is not None:
            name, space, argument = before.partition(" ")
            if not space:
                yield from self._commands(name, self.desk)
            elif name == "/resume":
                yield from self._ids(argument.strip(), self.desk)

    def _commands(self, typed: str, desk: ChatController) -> Iterator[Completion]:
        for command in desk.commands:
            if f"/{command.name}".startswith(typed.lower()):
                yield Completion(f"/{command.name}", -len(typed), display=command.usage, display_meta=command.summary)

    def _ids(self, typed: str, desk: ChatController) -> Iterator[Completion]:
        for c in desk.surface.store.conversations.list(limit=_MAX_IDS).conversations:
            if c.id.startswith(typed) or (typed and typed.lower() in c.title.lower()):
                yield Completion(c.id, -len(typed), display_meta=c.title)

    def _paths(self, typed: str) -> Iterator[Completion]:
        folder, name = os.path.split(typed)
        try:
            place = self._folder / Path(folder).expanduser()
            entries = sorted(os.scandir(place), key=lambda e: (not e.is_dir(), e.name.lower()))
        except (OSError, RuntimeError, ValueError):
            return
        fitting = (e for e in entries if e.name.startswith(name) and (name.startswith(".") or e.name[:1] != "."))
        for count, entry in enumerate(fitting):
            if count >= _MAX_PATHS:
                break
            slash = "/" if entry.is_dir() else ""
            yield Completion(f"{os.path.join(folder, entry.name)}{slash}", -len(typed), display=entry.name + slash)
