"""Edit the input line: completion, and grapheme clusters as single characters."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

if TYPE_CHECKING:
    from perdure.cli.chat.controller import ChatController

_MAX_PATHS = 200
_MAX_IDS = 50
_NAME_CELLS = 40
_WIDTH = 80
# The least columns of a title in a menu, and those around title and description.
_LEAST_TITLE = 20
_MENU_FRAME = 6


class ChatCompleter(Completer):
    """Completes the typed line. Runs in a thread of its own, so that a slow disk delays no key."""

    def __init__(self, folder: Path, width: Callable[[], int] = lambda: _WIDTH) -> None:
        self._folder = folder
        # Of the terminal, in columns.
        self._width = width
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
            elif name == "/model":
                yield from self._models(argument.strip(), self.desk)

    def _commands(self, typed: str, desk: ChatController) -> Iterator[Completion]:
        for command in desk.commands:
            # An alias only where the name does not begin so: one row for each command, unless both fit.
            for name in (command.name, *command.aliases):
                if f"/{name}".startswith(typed.lower()) and (name == command.name or len(typed) > 1):
                    display = command.usage.replace(f"/{command.name}", f"/{name}", 1)
                    yield Completion(f"/{name}", -len(typed), display=display, display_meta=command.summary)

    def _ids(self, typed: str, desk: ChatController) -> Iterator[Completion]:
        """Yield completions for conversations other than the current one, those of this project first."""
        from perdure.commands.conversations import PROJECT_KEY, branch_point, group_by_project
        from perdure.commands.format import count, when

        surface, store = desk.surface, desk.surface.store
        present = store.conversations.get(surface.session_id).id if surface.session_id is not None else None
        here, others = group_by_project(store, surface.project, visibility=surface.visibility, limit=_MAX_IDS)
        rows = []
        for n, c in enumerate([*here, *others]):
            if c.id != present and (c.id.startswith(typed) or (typed and typed.lower() in c.title.lower())):
                # A row is cut at its end: the time and the branch tell conversations of the same title apart.
                branch = branch_point(store, c)
                title = f"{when(c.updated_at_ms)}  {branch}{': ' if branch else ''}{c.title or c.id}"
                folder = store.conversation_state(c.id).get(PROJECT_KEY) if n >= len(here) else None
                place = ""
                if n >= len(here):  # a chat at the terminal belongs to a folder; a question asked with -q to none
                    source = "-q" if c.source == "terminal" else c.source
                    place = f"in {Path(folder).name} · " if folder else f"{source} · "
                about = f"{place}{count(c.last_seq, 'message')}"
                rows.append((c.id, title, about))
        yield from self._fit_rows(rows, len(typed))

    def _models(self, typed: str, desk: ChatController) -> Iterator[Completion]:
        """Yield completions for models, the current one first."""
        from perdure.app.model_choices import model_names
        from perdure.commands.context import describe_model

        endpoint, rows = desk.surface.agent.endpoint, []
        present = model_names(endpoint if not desk.surface.unchosen_models else None)
        for choice in sorted(desk.surface.model_choices(), key=lambda choice: choice.name not in present):
            if typed.lower() in choice.name.lower():
                display = choice.name if len(choice.name) <= _NAME_CELLS else f"…{choice.name[-_NAME_CELLS + 1 :]}"
                mark = "● " if choice.name in present else "  "
                about = describe_model(choice, is_in_use=choice.name in present)
                rows.append((choice.name, f"{mark}{display}", about))
        yield from self._fit_rows(rows, len(typed))

    def _fit_rows(self, rows: Sequence[tuple[str, str, str]], typed: int) -> Iterator[Completion]:
        """Yield completions of (text, title, about) rows with titles so short that nothing about them is cut off."""
        from perdure.cli.style import column_count, cut_row

        if self._width() < _WIDTH:  # no room for columns
            rows = [(text, title, " ".join(about.split())) for text, title, about in rows]
        longest = max((column_count(about) for _, _, about in rows), default=0)
        room = max(_LEAST_TITLE, self._width() - longest - _MENU_FRAME)
        for text, title, about in rows:
            yield Completion(text, -typed, display=cut_row(title, room), display_meta=about)

    def _paths(self, typed: str) -> Iterator[Completion]:
        folder, name = os.path.split(typed)
        try:
            directory = self._folder / Path(folder).expanduser()
            entries = sorted(os.scandir(directory), key=lambda e: (not e.is_dir(), e.name.lower()))
        except (OSError, RuntimeError, ValueError):
            return
        fitting = (e for e in entries if e.name.startswith(name) and (name.startswith(".") or e.name[:1] != "."))
        for count, entry in enumerate(fitting):
            if count >= _MAX_PATHS:
                break
            slash = "/" if entry.is_dir() else ""
            yield Completion(f"{os.path.join(folder, entry.name)}{slash}", -len(typed), display=entry.name + slash)


_JOINER = "\u200d"
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
# Skin tones, and the tags after a flag.
_MODIFIERS = (range(0x1F3FB, 0x1F400), range(0xE0020, 0xE0080))


def cluster_start(text: str, end: int) -> int:
    """Return the index at which the grapheme cluster that ends at `end` begins."""
    start = max(0, end - 1)
    while start > 0 and _is_attached(text, start):
        start -= 1
    return start


def cluster_end(text: str, start: int) -> int:
    """Return the index at which the grapheme cluster that begins at `start` ends."""
    end = min(len(text), start + 1)
    while end < len(text) and _is_attached(text, end):
        end += 1
    return end


def _is_attached(text: str, at: int) -> bool:
    """Return whether a code point belongs to the same grapheme cluster as the one before it."""
    character, before = text[at], text[at - 1]
    if character < "\u0300" or before in "\r\n":
        return False
    if character == _JOINER or before == _JOINER or unicodedata.category(character) in ("Mn", "Me", "Mc"):
        return True
    if ord(character) in _FLAG_LETTERS:
        letters = next((n for n in range(at) if ord(text[at - 1 - n]) not in _FLAG_LETTERS), at)
        return letters % 2 == 1
    return any(ord(character) in codes for codes in _MODIFIERS)
