"""A question above the prompt: the text in pages that fit, the reason and the choices always in view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prompt_toolkit.utils import get_cwidth

from perdure.cli.chat.questions import PendingQuestion
from perdure.cli.style import CONTINUED, Style, diff_colour, paint_diff, safe, wrap_lines, wrap_words

# Prefix of every text line: with and without a dangerous part.
_POINTER, _NO_POINTER = "▶ ", "  "
# A line is broken at a blank only where that costs no more than this many columns.
_BREAK_WITHIN = 16
_LEAST_WIDTH = 20
_LEAST_BODY_ROWS = 3


@dataclass(frozen=True, slots=True)
class _Row:
    """One wrapped row, its offset in the text, and whether it continues the line above it."""

    start: int
    end: int
    is_continued: bool = False


class QuestionPanel:
    """Display of an open question, in pages where it does not fit."""

    def __init__(self, question: PendingQuestion) -> None:
        self.question = question
        # Shown in place of the choices, such as what a reason is typed for.
        self.notice = ""
        self._text = safe(question.text).replace("\t", "    ")
        self._spans = list(_spans(self._text, question.marked))
        self._first = 0
        self._shown_rows = 1
        self._wrapped: tuple[int, list[_Row]] = (0, [])

    @property
    def is_paged(self) -> bool:
        """Whether the question is too long for the rows it was drawn in."""
        return len(self._wrapped[1]) > self._shown_rows

    def turn(self, pages: int) -> None:
        """Show a later page, or an earlier one."""
        self._first = max(0, self._first + pages * self._shown_rows)

    def lines(self, width: int, rows: int, ink: Style) -> list[str]:
        """At most `rows` lines (but never fewer than the choices need), none wider than `width`."""
        width = max(_LEAST_WIDTH, width)
        choices = self.notice or self.question.hint
        hint = _wrap(choices, width) if choices else []
        footer = self._footer(width, max(1, rows - _LEAST_BODY_ROWS - len(hint)), ink)
        body = self._body(width, max(1, rows - len(footer) - len(hint)), ink)
        return [*body, *footer, *(ink.bold(line) for line in hint)]

    def _footer(self, width: int, rows: int, ink: Style) -> list[str]:
        """Return the notes: the first, the reason, may take most of the room; the others what it leaves."""
        reason, *others = (_wrap(safe(note), width) for note in self.question.notes) if self.question.notes else [[]]
        rest = [line for note in others for line in note]
        reason = _limit_rows(reason, max(1, rows - len(rest), (rows * 2 + 2) // 3), width)
        rest = _limit_rows(rest, rows - len(reason), width)
        return [*(ink.bad(line) for line in reason), *(ink.dim(line) for line in rest)]

    def _body(self, width: int, rows: int, ink: Style) -> list[str]:
        wrapped = self._rows(width - len(_POINTER))
        if len(wrapped) <= rows:
            self._first, self._shown_rows = 0, max(1, rows)
            return [self._render_row(row, ink) for row in wrapped]
        self._shown_rows = max(1, rows - 1)
        self._first = min(self._first, len(wrapped) - self._shown_rows)
        visible = wrapped[self._first : self._first + self._shown_rows]
        return [*(self._render_row(row, ink) for row in visible), ink.warn(_cut_line(self._position(wrapped), width))]

    def _position(self, wrapped: list[_Row]) -> str:
        last = self._first + self._shown_rows
        position = f"── lines {self._first + 1}–{last} of {len(wrapped)}"
        hidden = [n for n, row in enumerate(wrapped, 1) if self._is_marked(row) and not self._first < n <= last]
        marked = f" · ▶ also on line {hidden[0]}" if hidden else ""
        return f"{position}{marked} · PgDn, PgUp, Ctrl-O"

    def _rows(self, width: int) -> list[_Row]:
        if self._wrapped[0] != width:
            indent = len(CONTINUED) if self.question.has_diff else 0
            self._wrapped = (width, list(_wrapped_rows(self._text, width, indent=indent)))
        return self._wrapped[1]

    def _is_marked(self, row: _Row) -> bool:
        return any(start < row.end and row.start < end for start, end in self._spans)

    def _colour(self, row: _Row, ink: Style) -> Callable[[str], str]:
        """Return the style of a diff row, by the first character of its line."""
        start = self._text.rfind("\n", 0, row.start) + 1
        return diff_colour(self._text[start : start + 2], ink) if self.question.has_diff and start else str

    def _render_row(self, row: _Row, ink: Style) -> str:
        before = CONTINUED if row.is_continued and self.question.has_diff else ""
        if not self._is_marked(row):
            return _NO_POINTER + self._colour(row, ink)(before + self._text[row.start : row.end])
        out, at = [], row.start
        for start, end in self._spans:
            start, end = max(start, at), min(end, row.end)
            if start < end:
                out += [self._text[at:start], ink.bad(self._text[start:end])]
                at = end
        return ink.bad(_POINTER) + before + "".join(out) + self._text[at : row.end]


def lasting_rows(question: PendingQuestion, width: int, ink: Style) -> Iterator[str]:
    """Yield what stays on the screen of an answered question: its text, a refused diff, and why it was asked."""
    action, *rest = safe(question.lasting_text).split("\n")
    diff = rest if question.has_diff else []
    yield from map(ink.warn, wrap_lines([action] if diff else [action, *rest], width))
    yield from (f"  {row}" for row in paint_diff(diff, width - 2, ink))  # as the diffs of finished edits are
    yield from map(ink.warn, wrap_lines(safe("\n".join(question.notes[:1])).split("\n"), width))
    yield from map(ink.dim, _wrap(safe(question.lasting_note), width) if question.lasting_note else ())


def _spans(text: str, marked: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Spans of the marked pieces, in order and disjoint."""
    spans: list[tuple[int, int]] = []
    for piece in {safe(m).removesuffix("…").strip() for m in marked}:
        at = text.find(piece) if piece else -1
        while at >= 0:
            spans.append((at, at + len(piece)))
            at = text.find(piece, at + len(piece))
    end = 0
    for start, stop in sorted(spans):
        if start >= end:
            yield start, stop
            end = stop


def _wrapped_rows(text: str, width: int, *, indent: int = 0) -> Iterator[_Row]:
    """Rows of at most `width` columns; nothing is left out, blanks at a break stay at the end of their row.

    All but the first of a line leave room for an indent.
    """
    line_start = 0
    for line in text.split("\n"):
        at, end = line_start, line_start + len(line)
        while True:
            is_continued = at > line_start
            stop = _find_row_end(text, at, end, width - indent * is_continued)
            yield _Row(at, stop, is_continued)
            at = stop
            if at >= end:
                break
        line_start = end + 1


def _find_row_end(text: str, at: int, end: int, width: int) -> int:
    """Return the end of a row that starts at `at`: after a blank if one is near."""
    used, stop = 0, at
    while stop < end:
        used += get_cwidth(text[stop])
        if used > width and stop > at:
            break
        stop += 1
    if stop >= end:
        return end
    blank = text.rfind(" ", max(at + 1, stop - _BREAK_WITHIN), stop)
    return blank + 1 if blank > at else stop


def _wrap(text: str, width: int) -> list[str]:
    """Wrap a note; a command in backticks stays in one row where it fits one, and a longer word is broken."""
    lines = [line for paragraph in text.split("\n") for line in wrap_words(paragraph, width)]
    return [line[row.start : row.end] for line in lines for row in _wrapped_rows(line, width)]


def _limit_rows(lines: list[str], rows: int, width: int) -> list[str]:
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], _cut_line(lines[rows - 1] + " …", width)] if rows > 0 else []


def _cut_line(line: str, width: int) -> str:
    stop = _find_row_end(line, 0, len(line), width)
    return line if stop >= len(line) else f"{line[: max(0, width - 1)]}…"
