"""Memoisation bounded in bytes.

`functools.lru_cache` bounds how many results it holds, not how large they are: sixty thousand words are a few
megabytes, sixty thousand base64 runs are gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TypeVar

K = TypeVar("K", bound=Sized)
V = TypeVar("V")

LONGEST_KEY = 256
# A key without its characters, its value's container, and their place in the table.
_ENTRY_BYTES = 250


class Memo(dict[K, V]):
    """`memo[key]` is `compute(key)`, remembered while all of it stays within `max_bytes`, then begun anew.

    An entry counts as `bytes_per_char` for each character of its key, the most its key and value may take: measuring
    it would cost more than computing most values again. A key longer than `longest_key` is computed each time: it is
    rarely asked for twice, and costs the most to hold. A hit is a plain dict lookup, faster than `lru_cache`.
    """

    def __init__(
        self, compute: Callable[[K], V], *, max_bytes: int, bytes_per_char: int, longest_key: int = LONGEST_KEY
    ) -> None:
        super().__init__()
        self._compute = compute
        self._max_bytes = max_bytes
        self._bytes_per_char = bytes_per_char
        self._longest_key = longest_key
        self.used_bytes = 0

    def __missing__(self, key: K) -> V:
        value = self._compute(key)
        length = len(key)
        if length <= self._longest_key:
            used = self.used_bytes + _ENTRY_BYTES + length * self._bytes_per_char
            if used > self._max_bytes:
                self.clear()
                used = _ENTRY_BYTES + length * self._bytes_per_char
            self.used_bytes = used
            self.remember(key, value)
        return value

    def remember(self, key: K, value: V) -> None:
        """Where an entry goes; a subclass may hold some of them elsewhere."""
        self[key] = value

    def clear(self) -> None:
        super().clear()
        self.used_bytes = 0
