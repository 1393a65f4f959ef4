"""Ids sort by the moment they were made, and never repeat."""

from __future__ import annotations

from perdure.core.concurrency import SystemClock
from perdure.store.encoding import TimeIds
from support.store import FakeClock


def test_later_ids_sort_after_earlier_ones_within_and_across_milliseconds() -> None:
    clock = FakeClock()
    ids = TimeIds(clock)
    new_ids = []
    for n in range(500):
        new_ids.append(ids.new("s_"))
        clock.pass_ms(n % 3)
    assert new_ids == sorted(set(new_ids))
    assert {len(i) for i in new_ids} == {21}


def test_ids_stay_sorted_when_the_clock_is_set_back() -> None:
    clock = FakeClock()
    ids = TimeIds(clock)
    before = ids.new("c_")
    clock.pass_ms(-3_600_000)
    assert ids.new("c_") > before


def test_two_processes_never_generate_the_same_id() -> None:
    clock = SystemClock()
    one, two = TimeIds(clock), TimeIds(clock)
    assert not {one.new("t_") for _ in range(2_000)} & {two.new("t_") for _ in range(2_000)}
    assert one.new("t_").startswith("t_")
    assert clock.monotonic_s() <= clock.monotonic_s()
