"""Keys that carry their service's mark at their start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from perdure.redaction.formats import FORMATS, Format
from perdure.redaction.grammar import dotted_token, issued_key
from perdure.redaction.page import ScanText, Secret
from perdure.redaction.shapes import is_filler, looks_random

# Signs inside a key that end a run; its head may stand before them: `dp.audit.…`, `access_token$sandbox$…`, `glc_a+…`.
_JOINTS = frozenset(b".$~+/=%")
_JOINED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.$~+/=%"
_LOOK_BACK = 200
_BEFORE_LETTERS = frozenset(b"\\.$~")
_PLUS = ord("+")
_SPLITS = {ord(sign): _JOINED[:64] + sign.encode() for sign in ".+"}
# No key is longer than this, its first characters show its kind, and this much refused is skipped as a whole.
_LONGEST, _JUDGED, _LONG = 32_768, 200, 64
# A mark may stand in the short rest of a key behind its last run.
_MARK_BEHIND = 14
# Past this, a run within encoded data is looked at only where it begins.
_ENCODED = 4096
# Keys whose mark stands in their middle or at their end.
_UNHEADED = re.compile(
    r"(?P<mailchimp>(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9_]))"
    r"|(?P<dropbox>(?<=[A-Za-z0-9]{10}[B-Za-z0-9])A{10}[A-Za-z0-9_=-]{43})"
    r"|(?P<maxmind>[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9]))"
    r"|(?P<newrelic_license>[0-9a-z]{32}FFFFNRAL(?![A-Za-z0-9]))"
    r"|(?P<newrelic_mobile>AA[0-9a-f]{40}-NRMA(?![A-Za-z0-9]))"
    r"|(?P<azure_registry>(?<=[A-Za-z0-9+/]{42})\+ACR[A-Za-z0-9]{6}(?![A-Za-z0-9]))"
    r"|(?P<azure_storage>(?<=[A-Za-z0-9+/]{76})\+ASt[A-Za-z0-9+/]{6}==)"
    r"|(?P<terraform>(?<=[A-Za-z0-9]{14})\.atlasv1\.[A-Za-z0-9_=-]{60,})"
)
_MARKS = ("-us", "AAAAAAAAAA", "_mmk", "NRAL", "NRMA", "+ACR", "+ASt", ".atlasv1.")
_BEFORE_MARK = {"terraform": 14, "dropbox": 11, "azure_registry": 42, "azure_storage": 76}
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


def prefixed_keys(page: ScanText) -> Iterator[Secret]:
    """Every key of the table, wherever it stands except by chance inside encoded data."""
    telling, text, raw, done = _telling().match, page.text, page.raw, 0
    for start, end in page.runs():
        between = raw[start - 1] if start else 0
        tells = telling(text, start)
        if tells is None and between not in _BEFORE_LETTERS:
            continue  # a name with neither a digit nor a head, most likely
        if page.is_inside_blob(start):
            continue
        at = start
        if between in _JOINTS:
            before = raw[max(done, start - _LOOK_BACK) : start]
            at = start - len(before) + len(before.rstrip(_JOINED))
        if end - start > _ENCODED and page.is_inside_blob(start + 1):
            end = start + _LONG
        at = max(at, done)
        for found in _keys_within(text, at, end):
            yield found
            at = max(at, found.end)
        if tells is not None and not tells[0] and at <= start:
            issued = _issued(raw, text, start, end, done)
            if issued is not None:
                yield issued
                at = issued.end
        done = max(at, end)


def _issued(raw: bytes, text: str, start: int, end: int, done: int) -> Secret | None:
    """A key of an issuer that no row names, whose earlier part may stand before a dot or a plus sign."""
    between, first = raw[start - 1] if start else 0, start
    if between in _SPLITS:
        before = raw[max(done, start - _LOOK_BACK) : start]
        first = start - len(before) + len(before.rstrip(_SPLITS[between]))
    if (first < start or raw[end : end + 1] == b".") and (dotted := dotted_token(text, first, end)) is not None:
        return dotted
    return issued_key(text, first if between == _PLUS else start, end)


def _keys_within(text: str, at: int, end: int) -> Iterator[Secret]:
    piece = text[at : end + _MARK_BEHIND]
    if any(mark in piece for mark in _MARKS) and (odd := _UNHEADED.search(text, at, end + _MARK_BEHIND)) is not None:
        start = odd.start() - _BEFORE_MARK.get(str(odd.lastgroup), 0)
        if may_begin(text, start):
            yield Secret(str(odd.lastgroup).replace("_", "-"), start, odd.end())
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
