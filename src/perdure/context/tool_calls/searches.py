"""The hits of a search as rows: each with its text where they are few, else the line numbers by file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.context.tool_calls.output import join_rows, one_line

# A hit: "path:12:text", or "12:text" in the only file that was searched. Lines around it have "-" for ":". A path with
# blanks has an extension; dates and times ("2024-05-01 12:30:45") are none, nor is a time a number and a text.
_HIT = re.compile(
    r"(?P<path>(?:[A-Za-z]:)?(?![\[(]?[\d.,/T-]+:)(?:[^\s:]{1,300}(?=:)|[^\s:][^:\n]{0,290}\.\w{1,10}(?=:)))?"
    r"(?(path):)(?P<number>\d{1,7}):(?(path)|(?!\d\d\b))(?P<text>.*)"
)
# The file above its hits.
_FILE = re.compile(r"([\w.@+-]{0,100}[/.][\w./@+-]{1,300}):?")
_BESIDE = re.compile(r"--$|(?:[^\s:][^\n]{0,300}?-)?\d{1,7}-")
_FEW_LINES = 15
_ROWS_CHARS = 500
_TEXT_CHARS = 150
# Hits of which the text is shown.
_FEW_HITS = 8
# A search that found more was too wide to decide anything.
_MOST_HITS = 48
_MOST_NUMBERS = 24
# What is neither a hit nor beside one, of all lines, in the output of a search for text.
_OTHER_SHARE = 0.2


def search_rows(lines: Sequence[str], total: int) -> list[str]:
    """Return the rows for what a search printed: of a longer output only its hits, if they are not too many."""
    if total <= _FEW_LINES:
        return join_rows([one_line(row, _TEXT_CHARS) for row in _without_repeated_paths(lines)], limit=_ROWS_CHARS)
    hits = _read_hits(lines)
    if not hits or len(hits) > _MOST_HITS:
        return []
    if len(hits) <= _FEW_HITS:
        rows = [
            f"{path}:{number}: {text.strip()}" if path else f"{number}: {text.strip()}" for path, number, text in hits
        ]
        return join_rows([one_line(row, _TEXT_CHARS) for row in _without_repeated_paths(rows)], limit=_ROWS_CHARS)
    numbers: dict[str, list[str]] = {}
    for path, number, _ in hits:
        numbers.setdefault(path, []).append(number)
    rows = [
        f"{path}:{_list_numbers(found)}" if path else f"lines {_list_numbers(found)}" for path, found in numbers.items()
    ]
    return join_rows(rows, limit=_ROWS_CHARS + _ROWS_CHARS // 2)


def _read_hits(lines: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return path, line number and text of each hit; none where the lines are of another kind."""
    hits: list[tuple[str, str, str]] = []
    file, other = "", 0
    for line in lines:
        if (match := _HIT.match(line)) is not None:
            hits.append((match["path"] or file, match["number"], match["text"]))
        elif _BESIDE.match(line) is not None:
            continue
        elif (heading := _FILE.fullmatch(line)) is not None:
            file = heading[1]
        else:
            other += 1
    return hits if other <= _OTHER_SHARE * len(lines) else []


def _without_repeated_paths(lines: Sequence[str]) -> list[str]:
    """Return the lines, a hit in the same file as the one before it by its number and text alone."""
    rows: list[str] = []
    last = ""
    for line in lines:
        match = _HIT.match(line)
        path = (match["path"] or "") if match is not None else ""
        rows.append(line[len(path) :] if path and path == last else line)
        last = path or last
    return rows


def _list_numbers(numbers: Sequence[str]) -> str:
    more = len(numbers) - _MOST_NUMBERS
    return ", ".join(numbers[:_MOST_NUMBERS]) + (f" … {more} more" if more > 0 else "")
