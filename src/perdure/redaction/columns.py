"""Columns whose header names a secret: Markdown tables, CSV and tab-separated text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.redaction.names import Promise, promise_of
from perdure.redaction.page import ScanText, Secret
from perdure.redaction.values import Form, is_drawn, is_secret

_LINE_END = re.compile(r"\r?\n|(?:\\r)?\\n")
_CELLS = {
    separator: re.compile(rf'[ ]*(?:"(?P<quoted>[^"\n]*)"[ ]*|(?P<bare>[^{separator}"\n]*))(?:{separator}|$)')
    for separator in (r"\|", ",", r"\t", ";")
}
_CELL_END = re.compile(r"[A-Za-z0-9_-]{0,40}[\"'`*\\]{0,4}[ ]{0,40}(?:[|,;\t\r\n]|\\[nrt])")
_HEADER_LINE = re.compile(r"[\w \t\"'`*.,;|()/→\\-]+")
_HEADER = re.compile(r"[\w \"'`*./-]{1,60}(?:\([\w ]{1,30}\))?")
_LONGEST_LINE, _MOST_ROWS = 4_000, 10_000
_EDGES = " \t\"'`*\\"


class Columns:
    """Reads every table once, from its header; a row of a table already read is never taken for a header."""

    def __init__(self, page: ScanText) -> None:
        self._text = page.text
        self._read_to = 0

    def below(self, at: int) -> Iterator[Secret]:
        """Secrets in the columns under the header line that holds this place, if it is one."""
        text = self._text
        if at < self._read_to or _CELL_END.match(text, at) is None:
            return
        earliest = max(self._read_to, at - _LONGEST_LINE)
        found = _LINE_END.search(text, at, at + _LONGEST_LINE)
        if found is None:
            self._read_to = at + _LONGEST_LINE
            return
        self._read_to = found.start()
        escaped = text.rfind("\\n", earliest, at)
        start = max(earliest, text.rfind("\n", earliest, at) + 1, escaped + 2 if escaped >= 0 else 0)
        header = text[start : found.start()].rpartition('": "')[2]  # the table may be a string in JSON
        separator = _separator(header)
        if separator is None or not _HEADER_LINE.fullmatch(header):
            return
        names = [cell for cell, _ in _cells(header, separator)]
        columns = {
            i: (name, promise) for i, name in enumerate(names) if (promise := promise_of(name.replace(" ", "_")))
        }
        if len(names) < 2 or not columns or not all(_HEADER.fullmatch(name) or not name for name in names):
            return
        yield from self._rows(found.end(), separator, len(names), columns)

    def _rows(self, at: int, separator: str, width: int, columns: dict[int, tuple[str, Promise]]) -> Iterator[Secret]:
        text = self._text
        for _ in range(_MOST_ROWS):
            ending = _LINE_END.search(text, at, at + _LONGEST_LINE)
            end = ending.start() if ending is not None else min(len(text), at + _LONGEST_LINE)
            row = text[at:end]
            cells = list(_cells(row, separator))
            if not row or len(cells) != width:
                return
            for i, (name, promise) in columns.items():
                value, shift = cells[i]
                if value and _is_cell_secret(name, promise, value):
                    yield Secret(promise.value, at + shift, at + shift + len(value))
            self._read_to = end
            if ending is None:
                return
            at = ending.end()


def _separator(header: str) -> str | None:
    for separator, pattern in (("|", r"\|"), ("\t", r"\t"), (",", ","), (";", ";")):
        if separator in header:
            return pattern
    return None


def _cells(line: str, separator: str) -> Iterator[tuple[str, int]]:
    """The cells of a line without their quotes, each with where it begins."""
    at, pattern = 0, _CELLS[separator]
    while at < len(line):
        cell = pattern.match(line, at)
        if cell is None or cell.end() == at:
            return
        group = "quoted" if cell["quoted"] is not None else "bare"
        bare = cell[group].strip(_EDGES)
        yield bare, cell.start(group) + cell[group].find(bare)
        at = cell.end()


def _is_cell_secret(name: str, promise: Promise, value: str) -> bool:
    if promise in (Promise.PASSWORD, Promise.PHRASE):
        return is_secret(name, promise, value, Form.BARE)
    return is_drawn(name, promise, value)
