"""Intervals of message positions: merged where they touch, in the order they came in."""

from __future__ import annotations

from perdure.core.datastructures import intervals_of, merge_intervals


def test_neighbours_are_merged_and_the_order_is_kept() -> None:
    assert merge_intervals([(9, 9), (3, 5), (6, 8)]) == ((9, 9), (3, 8))
    assert merge_intervals([(3, 5), (5, 7), (7, 6), (9, 9)]) == ((3, 7), (9, 9))


def test_positions_become_intervals() -> None:
    assert intervals_of([1, 2, 3, 7, 5, 6]) == ((1, 3), (7, 7), (5, 6))
    assert intervals_of([]) == ()
