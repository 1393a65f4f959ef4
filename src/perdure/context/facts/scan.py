"""Exact facts in a text: paths, URLs, file names, ids, hashes, identifiers, numbers.

A text is split once and its distinct pieces are classified; what a piece is depends on the piece alone, so the answer
is kept. That is several times faster than searching the text for each kind of fact in turn.
"""

from __future__ import annotations

import re

from perdure.core.memo import Memo

# What never stands inside a path, an identifier or a number ends a piece. Bytes, because translating text that is not
# all ASCII is six times slower; what is not ASCII is taken apart when a piece is classified.
_ENDS = b"\"'`<>()[]{},;:=|*#!?&%$^\\"
_TABLE = bytes.maketrans(_ENDS, b" " * len(_ENDS))

_URL = re.compile(r"https?://[^\s'\"<>)\]},\\`，。、；（）「」】]+")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?:[\w.@+ -]+\\)*[\w.@+-]+")
_RUN = re.compile(r"[\w.@+/~-]+")
_ASCII_RUN = re.compile(r"[\w.@+/~-]+", re.ASCII)
_PART = re.compile(r"[^\W_]+(?:_[^\W_]+)*")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_EXTENSION = re.compile(r"\w[\w-]*(?:\.[\w-]+)*\.[A-Za-z]\w{0,7}")
_CONTEXT_LINE = re.compile(r"(\.[A-Za-z]\w{0,7})-\d+(?:-.*)?$")
_MIXED_CASE = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")

_ARROW = "→".encode()
_LINE_NUMBER = re.compile(rb"\n *\d+\xe2\x86\x92")

LONGEST = 200
_SHORTEST = 4
_SHORTEST_NAME = 6
_MEMO_BYTES = 24_000_000


def scan(text: str) -> frozenset[str]:
    """Every distinct fact of a text."""
    found: set[str] = set()
    if "://" in text:
        found.update(u.rstrip(".,:;") for u in _URL.findall(text))
    if ":\\" in text:
        found.update(_WINDOWS_PATH.findall(text))
    data = text.encode("utf-8", "replace")
    if _ARROW in data:
        # A viewer's line numbers are nobody's facts; another arrow parts what stands on either side of it.
        data = _LINE_NUMBER.sub(b" ", b"\n" + data).replace(_ARROW, b" ")
    # Most pieces are words that have none: those met before are set aside all at once.
    pieces = set(data.translate(_TABLE).split()) - _NO_FACTS
    return frozenset(found.union(*map(_MEMO.__getitem__, pieces)))


def pieces_of(text: str) -> set[bytes]:
    """The distinct pieces of a text, as they stand in it."""
    return set(text.encode("utf-8", "replace").translate(_TABLE).split())


def is_plain(piece: bytes) -> bool:
    """A word, or too short to hold a fact: told at once."""
    return len(piece) < _SHORTEST or (piece.isalpha() and (piece[1:].islower() or piece.isupper()))


class _FactsMemo(Memo[bytes, tuple[str, ...]]):
    """The facts in each piece; those without any are in a set of their own."""

    def remember(self, key: bytes, value: tuple[str, ...]) -> None:
        if value:
            self[key] = value
        else:
            _NO_FACTS.add(key)

    def clear(self) -> None:
        super().clear()
        _NO_FACTS.clear()


_NO_FACTS: set[bytes] = set()


def _facts_in(raw: bytes) -> tuple[str, ...]:
    if is_plain(raw):
        return ()
    piece = raw.decode("utf-8", "replace")
    runs = [piece]
    if not piece.isascii():
        # A name glued to CJK words counts on its own, and as a path in that script where it has a slash.
        whole = _RUN.findall(piece)
        runs = [r for w in whole for r in _ASCII_RUN.findall(w)] + [w for w in whole if "/" in w and not w.isascii()]
    return tuple({f for r in runs for f in _readings(r.rstrip(".-+@~/")) if _SHORTEST <= len(f) <= LONGEST})


_MEMO = _FactsMemo(_facts_in, max_bytes=_MEMO_BYTES, bytes_per_char=20)


def _readings(piece: str) -> list[str]:
    """A piece as a whole where it is a path, file name or id, else the names and numbers it is made of."""
    if "/" in piece:
        # Searchers print lines around a hit as `path-12-text`; the path is what counts.
        piece = _CONTEXT_LINE.sub(r"\1", piece)
        # What begins with two slashes is the rest of a URL, or a comment.
        return [piece] if not piece.startswith("//") and any(map(str.isalnum, piece)) else []
    if _UUID.fullmatch(piece):
        return [piece]
    names = [p for p in _PART.findall(piece) if _is_name(p)]
    if not piece.isdigit() and (_EXTENSION.fullmatch(piece) or any(map(str.isdigit, piece))):
        return [piece, *names] if piece not in names else names
    return names


def _is_name(part: str) -> bool:
    if part.isdigit():
        # A bare year says too little about what it dates.
        return len(part) >= 4 and not (len(part) == 4 and part[:2] in ("19", "20"))
    if len(part) < _SHORTEST_NAME:
        return False
    return "_" in part or any(map(str.isdigit, part)) or _MIXED_CASE.search(part) is not None
