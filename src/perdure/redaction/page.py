"""A text as the searches see it: byte for character, so that positions agree and the fast byte searches apply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_TOKEN = bytes(65 if i in _LETTERS + b"_-" else 32 for i in range(256))
_DIGIT = bytes(65 if 48 <= i < 58 else 32 for i in range(256))
_BASE64 = bytes(65 if i in _LETTERS + b"+/=" else 32 for i in range(256))
_SHORTEST = b"A" * 20
_BLOB = b"A" * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret stands, and the start of it that may stay readable."""

    kind: str
    start: int
    end: int
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Every character outside ASCII, lone surrogates included, is one `?` in `raw` and in `lower`."""

    text: str
    raw: bytes
    lower: bytes

    @classmethod
    def of(cls, text: str) -> Page:
        raw = text.encode("ascii", "replace")
        return cls(text, raw, raw.lower())

    def places(self, word: bytes) -> Iterator[int]:
        """Where a lower-case word stands, in any case."""
        at = self.lower.find(word)
        while at >= 0:
            yield at
            at = self.lower.find(word, at + len(word))

    def runs(self) -> Iterator[tuple[int, int]]:
        """Stretches of 20 or more letters, digits, `_` and `-`: every key has one, most text has few."""
        return _stretches(self.raw.translate(_TOKEN), _SHORTEST)

    def digits(self) -> bytes:
        """`A` where a digit stands: most runs are names without any, and are told apart from keys by that."""
        return self.raw.translate(_DIGIT)

    def blobs(self) -> list[tuple[int, int]]:
        """Stretches so long that they are encoded data, an image mostly, in which any short key occurs by chance."""
        return list(_stretches(self.raw.translate(_BASE64), _BLOB))


def _stretches(classes: bytes, shortest: bytes) -> Iterator[tuple[int, int]]:
    at = classes.find(shortest)
    while at >= 0:
        end = classes.find(b" ", at)
        end = len(classes) if end < 0 else end
        yield at, end
        at = classes.find(shortest, end)
