"""Closed intervals of message positions, and the one way to merge them."""

from __future__ import annotations

from collections.abc import Iterable

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
