"""Pasted text: shown folded, sent whole, and read without slowing down however long it is."""

from __future__ import annotations

import re

from prompt_toolkit.input.vt100_parser import Vt100Parser

_FOLD_LINES = 12
_FOLD_CHARS = 2_000
_MARK = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")
_END = "\x1b[201~"


class Pastes:
    """Long pastes by number; a mark stands for each in the line being typed."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        # Short ones, which stand in the line among what is typed.
        self._inserted: list[str] = []

    def fold(self, text: str) -> str:
        """What to insert for a paste: short text itself, a mark for a long one."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= _FOLD_LINES and len(text) <= _FOLD_CHARS:
            self._inserted.append(text)
            return text
        self._kept.append(text)
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted #{len(self._kept)}: {size}]"

    def unfold(self, text: str) -> str:
        """What was typed, with every mark of ours replaced by its paste."""
        return _MARK.sub(lambda m: self._paste(m), text)

    def take(self, text: str) -> tuple[str, ...]:
        """The pastes that a line holds, folded or not; the next line begins without any."""
        folded = (self._paste(mark) for mark in _MARK.finditer(text))
        pasted = (*(paste for paste in self._inserted if paste.strip() in text), *folded)
        self._inserted.clear()
        return pasted

    def _paste(self, mark: re.Match[str]) -> str:
        number = int(mark[1])
        return self._kept[number - 1] if 0 < number <= len(self._kept) else mark[0]


class PasteParser(Vt100Parser):
    """Reads a bracketed paste in time proportional to its length.

    The parser it extends looks through all that was pasted so far with every kilobyte that comes.
    """

    _pieces: list[str] | None = None
    _tail = ""

    def feed(self, data: str) -> None:
        if not self._in_bracketed_paste:
            super().feed(data)
            return
        self._pieces = [] if self._pieces is None else self._pieces
        self._pieces.append(data)
        recent = self._tail + data
        if _END not in recent:
            self._tail = recent[-len(_END) :]
            return
        whole, self._pieces, self._tail = "".join(self._pieces), None, ""
        super().feed(whole)
