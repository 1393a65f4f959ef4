"""Keys that carry their service's mark at their start."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache

from perdure.redaction.formats import FORMATS, Format
from perdure.redaction.page import Page, Secret
from perdure.redaction.shapes import is_filler, is_wordy, looks_random

# How far before a run a head may begin, by the character between them (`dp.audit.…`, `access_token$sandbox$…`).
_LOOK_BACK = {ord("."): 20, ord("$"): 42, ord("~"): 7}
_BACKSLASH = ord("\\")
# Where a key may begin although a letter stands before it: an escape in quoted text, or the end of a terminal colour.
_ESCAPED = re.compile(r"(?:\\[nrtbf0]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9A-F]{2}|\x1b\[[\d;]*m|\[\d{1,3}(?:;\d+)*m)$")


@cache
def _rows() -> dict[str, list[tuple[str, Format, re.Pattern[str]]]]:
    """By head: the heads and rows to try there, the longest first (`sk-or-`, then `sk-`)."""
    heads = sorted(((head, row) for row in FORMATS for head in row.heads.split()), key=lambda pair: -len(pair[0]))
    body = {row.kind: re.compile(row.body) for row in FORMATS}
    return {long: [(head, row, body[row.kind]) for head, row in heads if long.startswith(head)] for long, _ in heads}


@cache
def _heads() -> re.Pattern[str]:
    return re.compile(_trie(set(_rows())))


def _trie(words: set[str]) -> str:
    """An alternation that shares beginnings and prefers the longest word; a flat one is four times slower here."""
    branches: dict[str, set[str]] = {}
    for word in words - {""}:
        branches.setdefault(word[0], set()).add(word[1:])
    tails = [re.escape(first) + _trie(rest) for first, rest in sorted(branches.items())]
    joined = tails[0] if len(tails) == 1 and "" not in words else f"(?:{'|'.join(tails)})"
    return joined + "?" if tails and "" in words else joined if tails else ""


def prefixed_keys(page: Page) -> Iterator[Secret]:
    """Every key of the table, wherever it stands except by chance inside encoded data."""
    begins, digits, raw, done = _heads().match, page.digits(), page.raw, 0
    blobs = page.blobs()
    starts = [start for start, _ in blobs]
    for start, end in page.runs():
        between = raw[start - 1] if start else 0
        if between in _LOOK_BACK or digits.find(b"A", start, end) >= 0:
            at = max(start - _LOOK_BACK.get(between, 0), done)
        elif begins(page.text, start) or between == _BACKSLASH:
            at = start  # a name, most likely; a key of letters alone stands at the start of its run
        else:
            continue
        for found in _keys_within(page.text, at, end):
            if not _inside(blobs, starts, found.start):
                yield found
                done = found.end


def _keys_within(text: str, at: int, end: int) -> Iterator[Secret]:
    search = _heads().search
    while (head := search(text, at, end)) is not None:
        at = head.start() + 1
        if may_begin(text, head.start()) and (found := _key_at(text, head)) is not None:
            yield found
            at = found.end


def _key_at(text: str, head: re.Match[str]) -> Secret | None:
    for kept, row, pattern in _rows()[head[0]]:
        body = pattern.match(text, head.start() + len(kept))
        if body is None or (row.plain and not _drawn(body[0])):
            continue
        return None if is_filler(body[0]) else Secret(row.kind, head.start(), body.end(), kept)
    return None


def _drawn(body: str) -> bool:
    pieces = [piece for piece in re.split(r"[_.-]", body) if len(piece) >= 8]
    return not is_wordy(body) and any(looks_random(piece) for piece in pieces)


def may_begin(text: str, at: int) -> bool:
    """Whether a key can start here: not in the middle of a word, unless an escape ends there."""
    before = text[at - 1 : at]
    return not (before.isascii() and before.isalnum()) or _ESCAPED.search(text, max(0, at - 12), at) is not None


def _inside(blobs: list[tuple[int, int]], starts: list[int], at: int) -> bool:
    index = bisect_right(starts, at) - 1
    return index >= 0 and starts[index] < at < blobs[index][1]
