"""Split streamed Markdown into blocks: finished ones are printed once, the last one is redrawn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A fence or list that grows beyond this is printed in pieces, so that redrawing the rest stays cheap.
_MANY_LINES = 30
_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})(.*)$")
_ITEM = re.compile(r"^(?:[-*+]|\d{1,9}[.)])\s")
# Two stars that open bold words, without closing ones after them.
_OPENING = re.compile(r"(?<![\w*])(\*\*)(?=[^\s]|$)((?:(?!(?<=[^\s*])\*\*).)*)$")
# Indented code, or a row of a table.
_VERBATIM = re.compile(r"^(?: {4}|\t|\s*\|)")
_HEADING = re.compile(r"^#{1,6}\s")


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A finished block: its exact source text, and Markdown that renders it on its own."""

    source: str
    markdown: str


class Blocks:
    """Splits streamed text into finished blocks; their sources joined are the text."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        # The line that opened a fence, while one is open; "" outside.
        self._opening = ""
        # Whether the current lines continue a fence whose beginning was already emitted.
        self._is_rest = False

    def feed(self, text: str) -> list[MarkdownBlock]:
        """Return the blocks that this piece of text finished."""
        *whole, self._partial = (self._partial + text).split("\n")
        done: list[MarkdownBlock] = []
        for line in whole:
            self._take(line + "\n", done)
        return done

    @property
    def live(self) -> str:
        """The Markdown of the block that is still being streamed."""
        text = "".join(self._lines) + self._partial
        return self._standalone(text if self._opening else _with_closed_marks(text))

    def end(self, *, is_cut: bool = False) -> list[MarkdownBlock]:
        """Return what is left when no more text comes; marks that a cut text has left open are closed."""
        done: list[MarkdownBlock] = []
        if is_cut and not self._opening:
            self._partial = _with_closed_marks(self._partial)
        if self._partial:
            self._take(self._partial, done)
            self._partial = ""
        self._finish(done)
        self._opening = ""
        return done

    def _take(self, line: str, done: list[MarkdownBlock]) -> None:
        fence = _FENCE.match(line.rstrip("\n"))
        if self._opening:
            self._lines.append(line)
            if fence and _closes(self._opening, fence):
                is_nested = self._opening[:1].isspace()
                if not is_nested:
                    self._finish(done)
                self._opening = ""
            elif len(self._lines) >= _MANY_LINES and not self._opening[:1].isspace():
                self._finish(done)
                self._is_rest = True
            return
        if self._lines and self._is_apart(line):
            self._finish(done)
        self._lines.append(line)
        if fence:
            self._opening = line.rstrip("\n")
        elif _HEADING.match(line):
            self._finish(done)

    def _is_apart(self, line: str) -> bool:
        """Whether `line` begins a new block after the lines collected so far."""
        if not line.strip():
            return False
        was_blank = not self._lines[-1].strip()
        if _HEADING.match(line) or (_FENCE.match(line.rstrip("\n")) and not line[:1].isspace()):
            return True
        if was_blank:
            return not (line[:1].isspace() and any(_ITEM.match(earlier) for earlier in self._lines))
        return bool(_ITEM.match(line)) and len(self._lines) >= _MANY_LINES

    def _finish(self, done: list[MarkdownBlock]) -> None:
        source = "".join(self._lines)
        if source:
            done.append(MarkdownBlock(source, self._standalone(source)))
        self._lines, self._is_rest = [], False

    def _standalone(self, source: str) -> str:
        """Return the source as standalone Markdown: open fences are closed, continued ones reopened."""
        if not self._opening:
            return source
        opening = f"{self._opening}\n" if self._is_rest else ""
        mark = _FENCE.match(self._opening)
        is_closed = mark is not None and _is_closed(source, self._opening, is_rest=self._is_rest)
        closing = "" if mark is None or is_closed else f"{_newline(source)}{mark[1]}{mark[2]}\n"
        return f"{opening}{source}{closing}"


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line of a Markdown text and whether it is prose rather than code or a table."""
    opening = ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        yield line, not (opening or fence or _VERBATIM.match(line))
        if opening:
            opening = "" if fence and _closes(opening, fence) else opening
        elif fence:
            opening = line


def hanging_indent(line: str) -> str:
    """Return the blanks under which a wrapped line goes on: below the text of a list item, else its own indent."""
    start = len(line) - len(line.lstrip())
    item = _ITEM.match(line[start:])
    return " " * (start + (item.end() if item else 0))


def _with_closed_marks(text: str) -> str:
    """Return a text that ends in mid-sentence, with the code or the bold words at its end closed."""
    if text.count("`") % 2:
        return text.removesuffix("`") if text.endswith("`") else f"{text}`"
    if (opening := _OPENING.search(text)) is None:
        return text
    return text[: opening.start()].rstrip() if not opening[2].strip("*") else f"{text.rstrip('* ')}**"


def _closes(opening: str, fence: re.Match[str]) -> bool:
    fence_start = _FENCE.match(opening)
    if fence_start is None or fence[3].strip():
        return False
    return fence[2][0] == fence_start[2][0] and len(fence[2]) >= len(fence_start[2])


def _is_closed(source: str, opening: str, *, is_rest: bool) -> bool:
    lines = source.rstrip("\n").split("\n")
    last = _FENCE.match(lines[-1])
    return last is not None and _closes(opening, last) and (is_rest or len(lines) > 1)


def _newline(source: str) -> str:
    return "" if not source or source.endswith("\n") else "\n"
