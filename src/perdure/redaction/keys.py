"""Keys that carry their service's mark at their start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from perdure.redaction.formats import FORMATS, Format
from perdure.redaction.page import Page, Secret
from perdure.redaction.shapes import is_filler, looks_random

# How far before a run a head may begin, by the character between them (`dp.audit.…`, `access_token$sandbox$…`).
_LOOK_BACK = {ord("."): 24, ord("$"): 42, ord("~"): 7}
_BACKSLASH, _SLASH = ord("\\"), ord("/")
# No key is longer than this, its first characters show its kind, and this much refused is skipped as a whole.
_LONGEST, _JUDGED, _LONG = 32_768, 200, 64
# Past this, a run within encoded data is looked at only where it begins.
_ENCODED = 4096
# Keys whose mark stands in their middle or at their end.
_UNHEADED = re.compile(
    r"(?P<mailchimp>(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9_]))"
    r"|(?P<terraform>(?<=[A-Za-z0-9]{14})\.atlasv1\.[A-Za-z0-9_-]{60,})"
)
# Where a key may begin although a letter stands before it: an escape in quoted text, or the end of a terminal colour.
_ESCAPED = re.compile(
    r"(?:\\[nrtbf0]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9A-F]{2}|\x1b\[[\d;]*m|\[\d{1,3}(?:;\d+)*m)$"
)


@cache
def _rows() -> dict[str, list[tuple[str, Format]]]:
    """By head: the heads and rows to try there, the longest first (`sk-or-`, then `sk-`)."""
    heads = sorted(((head, row) for row in FORMATS for head in row.heads.split()), key=lambda pair: -len(pair[0]))
    return {long: [(head, row) for head, row in heads if long.startswith(head)] for long, _ in heads}


@cache
def _body(pattern: str) -> re.Pattern[str]:
    """Compiled when its head is first met: most never are, and all together take longer than most conversations."""
    return re.compile(pattern)


@cache
def _heads() -> re.Pattern[str]:
    return re.compile(_trie(set(_rows())))


@cache
def _telling() -> re.Pattern[str]:
    """What makes a run worth a look, at its start: a digit somewhere in it, told by an empty match, or a head.

    Most runs are names with neither.
    """
    return re.compile(rf"(?=[A-Za-z_-]*+[0-9])|{_heads().pattern}")


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
    telling, text, raw, done = _telling().match, page.text, page.raw, 0
    for start, end in page.runs():
        between = raw[start - 1] if start else 0
        if between == _SLASH and raw[start - 3 : start] == b"1//":
            at = start - 3
        elif between in _LOOK_BACK:
            at = max(start - _LOOK_BACK[between], done)
        elif (tells := telling(text, start)) is not None:
            # A name with a head, most likely; a key of letters alone stands at the start of its run.
            at = start if tells[0] else max(start, done)
        elif between == _BACKSLASH:
            at = start
        else:
            continue
        if page.is_inside_blob(start):
            continue
        if end - start > _ENCODED and page.is_inside_blob(start + 1):
            end = start + _LONG
        for found in _keys_within(text, at, end):
            yield found
            done = found.end


def _keys_within(text: str, at: int, end: int) -> Iterator[Secret]:
    if (odd := _UNHEADED.search(text, at, end)) is not None:
        start = odd.start() - (14 if odd.lastgroup == "terraform" else 0)
        if may_begin(text, start):
            yield Secret(str(odd.lastgroup), start, odd.end())
    search = _heads().search
    while (head := search(text, at, end)) is not None:
        at = head.start() + 1
        if not may_begin(text, head.start()):
            continue
        read, found = _key_at(text, head)
        if found is not None:
            yield found
        if found is not None or read - at > _LONG:
            at = read  # what was read and refused is not read again, or a text of nothing but heads would take for ever


def _key_at(text: str, head: re.Match[str]) -> tuple[int, Secret | None]:
    """How far was read, and the key if it is one."""
    read = head.end()
    for kept, row in _rows()[head[0]]:
        body = _body(row.body).match(text, head.start() + len(kept), head.end() + _LONGEST)
        if body is None:
            continue
        read = max(read, body.end())
        if row.plain and not looks_random(body[0][:_JUDGED]):
            continue
        return read, None if is_filler(body[0][:_JUDGED]) else Secret(row.kind, head.start(), body.end(), kept)
    return read, None


def may_begin(text: str, at: int) -> bool:
    """Whether a key can start here: not in the middle of a word, unless an escape ends there."""
    before = text[at - 1 : at]
    return not (before.isascii() and before.isalnum()) or _ESCAPED.search(text, max(0, at - 12), at) is not None
