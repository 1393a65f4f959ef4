"""The text that the secret searches share, as a string and as one byte per character, so that positions agree."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_TOKEN = bytes(65 if i in _LETTERS + b"_-" else 32 for i in range(256))
_CLASSES = bytes(48 if 48 <= i <= 57 else 65 if i in _LETTERS else 32 for i in range(256))
_BASE64 = bytes(65 if i in _LETTERS + b"+/=" else 32 for i in range(256))
SHORTEST_RUN = 16
_RUN = b"A" * SHORTEST_RUN
_NONE: tuple[re.Match[str], ...] = ()
_BLOB = b"A" * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """The kind and span of a secret in a text, and its prefix that may stay readable."""

    kind: str
    start: int
    end: int
    visible_prefix: str = ""


class ScanText:
    """A text with its bytes and lower-case bytes; each character outside ASCII is one `?` in both."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.raw = text.encode("ascii", "replace")
        self.lower = self.raw.lower()
        self._positions: dict[bytes, list[int]] = {}

    def positions(self, word: bytes) -> list[int]:
        """Return the positions of a lower-case word, case-insensitively; cached."""
        if (positions := self._positions.get(word)) is None:
            positions = self._positions[word] = []
            find = self.lower.find
            at = find(word)
            while at >= 0:
                positions.append(at)
                at = find(word, at + len(word))
        return positions

    def matches(self, word: bytes, pattern: re.Pattern[str], back: int = 0) -> Iterable[re.Match[str]]:
        """Return the matches of a pattern that begin at the positions of a word, or `back` characters before.

        Matches do not overlap, so that the time stays linear whatever the text repeats.
        """
        # Most texts have none of the words, and a generator costs as much as the search.
        positions = self.positions(word)
        return self._matches(positions, pattern, back) if positions else _NONE

    def _matches(self, positions: list[int], pattern: re.Pattern[str], back: int) -> Iterator[re.Match[str]]:
        done = 0
        for at in positions:
            if at - back >= done and (match := pattern.match(self.text, at - back)) is not None:
                yield match
                done = match.end()

    def has_mix(self, start: int, end: int) -> bool:
        """Whether a digit is next to a letter between two positions, as in every random value."""
        find = self._classes.find
        return find(b"A0", start, end) >= 0 or find(b"0A", start, end) >= 0

    @cached_property
    def _classes(self) -> bytes:
        return self.raw.translate(_CLASSES)

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """The runs of at least SHORTEST_RUN letters, digits, `_` and `-`: every key has one, most text has few."""
        return list(_stretches(self.raw.translate(_TOKEN), _RUN))

    @cached_property
    def mixed_runs(self) -> list[tuple[int, int]]:
        """The runs in which a digit is next to a letter: a few of them, for most are names."""
        find = self._classes.find
        return [
            (start, end) for start, end in self.runs if find(b"A0", start, end) >= 0 or find(b"0A", start, end) >= 0
        ]

    def is_inside_blob(self, at: int) -> bool:
        """Whether the position is inside a run so long that it is encoded data, where short keys occur by chance."""
        index = bisect_left(self._blobs, (at, 0)) - 1
        return index >= 0 and at < self._blobs[index][1]

    @cached_property
    def _blobs(self) -> list[tuple[int, int]]:
        # So long a stretch fills a block of half its length from end to end; hardly a text has one without a space.
        block, find = len(_BLOB) // 2, self.raw.find
        for at in range(0, len(self.raw) - block + 1, block):
            if find(b" ", at, at + block) < 0 and find(b"\n", at, at + block) < 0:
                return list(_stretches(self.raw.translate(_BASE64), _BLOB))
        return []


def _stretches(classes: bytes, shortest: bytes) -> Iterator[tuple[int, int]]:
    at = classes.find(shortest)
    while at >= 0:
        end = classes.find(b" ", at)
        end = len(classes) if end < 0 else end
        yield at, end
        at = classes.find(shortest, end)


# A key may follow a letter that ends an escape in quoted text or a terminal colour sequence.
_ESCAPED = re.compile(
    r"(?:\\[nrtbf0]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9A-F]{2}|\x1b\[[\d;]*m|\[\d{1,3}(?:;\d+)*m)$"
)


def may_begin(text: str, at: int) -> bool:
    """Whether a key can start at this position: not in the middle of a word, unless an escape ends there."""
    before = text[at - 1 : at]
    return not (before.isascii() and before.isalnum()) or _ESCAPED.search(text, max(0, at - 12), at) is not None


def alternation(words: set[str]) -> str:
    """Build a regex alternation with shared prefixes, longest word first; a flat one is four times slower here."""
    branches: dict[str, set[str]] = {}
    for word in words - {""}:
        branches.setdefault(word[0], set()).add(word[1:])
    tails = [re.escape(first) + alternation(rest) for first, rest in sorted(branches.items())]
    pattern = tails[0] if len(tails) == 1 and "" not in words else f"(?:{'|'.join(tails)})"
    return pattern + "?" if tails and "" in words else pattern if tails else ""
