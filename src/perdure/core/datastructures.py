"""Data structures: intervals of message positions, and a memo bounded in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import TypeVar

# Both ends are included.
Interval = tuple[int, int]


def merge_intervals(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Join each interval with the one before it where they overlap or touch; empty ones are dropped.

    The order is kept, since a view may list later positions first. Sort the intervals to get their union.
    """
    merged: list[Interval] = []
    for lo, hi in intervals:
        if hi < lo:
            continue
        if merged and merged[-1][0] <= lo <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], hi))
        else:
            merged.append((lo, hi))
    return tuple(merged)


def intervals_of(positions: Iterable[int]) -> tuple[Interval, ...]:
    """Positions as intervals, in the order given."""
    return merge_intervals((position, position) for position in positions)


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
