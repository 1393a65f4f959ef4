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
# The most columns of a description in a narrow menu of conversations.
_NARROW_ABOUT = 16
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
        from perdure.commands.format import short_when, when

        surface, store = desk.surface, desk.surface.store
        present = store.conversations.get(surface.session_id).id if surface.session_id is not None else None
        here, others = group_by_project(store, surface.project, visibility=surface.visibility, limit=_MAX_IDS)
        rows = []
        for n, c in enumerate([*here, *others]):
            if c.id != present and (c.id.startswith(typed) or (typed and typed.lower() in c.title.lower())):
                # A row is cut at its end: the time and the branch tell conversations of the same title apart.
                branch = branch_point(store, c)
                updated = when(c.updated_at_ms) if self._is_wide else short_when(c.updated_at_ms)
                title = f"{updated}  {branch}{': ' if branch else ''}{c.title or c.id}"
                place = ""
                if n >= len(here):  # a chat at the terminal belongs to a folder; a question asked with -q to none
                    folder = store.conversation_state(c.id).get(PROJECT_KEY)
                    source = "-q" if c.source == "terminal" else c.source
                    place = f"in {Path(folder).name}" if folder else source
                rows.append((c.id, title, self._describe_chat(place, c.last_seq)))
        yield from self._fit_rows(rows, len(typed))

    def _describe_chat(self, place: str, messages: int) -> str:
        """Return where a conversation was and its size; a narrow menu leaves the room to the titles."""
        from perdure.cli.style import cut_row
        from perdure.commands.format import count

        about = " · ".join(filter(None, (place, count(messages, "message"))))
        return about if self._is_wide or len(about) <= _NARROW_ABOUT else cut_row(place or about, _NARROW_ABOUT)

    def _models(self, typed: str, desk: ChatController) -> Iterator[Completion]:
        """Yield completions for models, the current one first."""
        from perdure.app.model_choices import model_names
        from perdure.commands.context import describe_model, describe_origin

        endpoint, rows = desk.surface.agent.endpoint, []
        present = model_names(endpoint if not desk.surface.unchosen_models else None)
        for choice in sorted(desk.surface.model_choices(), key=lambda choice: choice.name not in present):
            if typed.lower() in choice.name.lower():
                mark = "● " if choice.name in present else "  "
                # Window and prices have no room in a narrow menu; models of one name differ in where they run.
                about = describe_origin(choice)
                if self._is_wide:
                    about = describe_model(choice, is_in_use=choice.name in present)
                rows.append((choice.name, f"{mark}{_cut_start(choice.name, _NAME_CELLS)}", about))
        yield from self._fit_rows(rows, len(typed), cut=_cut_name)

    @property
    def _is_wide(self) -> bool:
        """Whether a menu has room for columns."""
        return self._width() >= _WIDTH

    def _fit_rows(
        self, rows: Sequence[tuple[str, str, str]], typed: int, *, cut: Callable[[str, int], str] | None = None
    ) -> Iterator[Completion]:
        """Yield completions of (text, title, about) rows with titles so short that nothing about them is cut off."""
        from perdure.cli.style import column_count, cut_row

        cut = cut or cut_row
        longest = max((column_count(about) for _, _, about in rows), default=0)
        room = max(_LEAST_TITLE, self._width() - longest - _MENU_FRAME)
        for text, title, about in rows:
            yield Completion(text, -typed, display=cut(title, room), display_meta=about)

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


def _cut_start(text: str, max_chars: int) -> str:
    """Return the end of a text, which in the address of a model is its name."""
    return text if len(text) <= max_chars else f"…{text[1 - max_chars :]}"


def _cut_name(title: str, max_chars: int) -> str:
    """Cut a row of the model menu behind its mark."""
    return f"{title[:2]}{_cut_start(title[2:], max_chars - 2)}"


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
