"""What a compressor remembers: how long it asks for no summary, and when it stops by itself."""

from __future__ import annotations

import pytest

from perdure.context.compressor_state import CompactionThrottle, CoolDown, MemoryState
from perdure.core.errors import ErrorKind, ErrorVerdict
from support.compaction import HeldClock


def cooling(clock: HeldClock) -> CoolDown:
    return CoolDown(MemoryState(), clock, retry_s=60, no_provider_s=600)


@pytest.mark.spec("F3")
def test_a_passing_failure_never_cools_down_longer_than_having_no_provider_at_all() -> None:
    clock = HeldClock()
    cooldown = cooling(clock)
    lengths = []
    for _ in range(7):
        cooldown.record_failure(ErrorVerdict("overloaded", "busy"))
        lengths.append(cooldown.left_s())
    assert lengths == [60, 120, 240, 480, 600, 600, 600]


@pytest.mark.spec("F3")
@pytest.mark.parametrize("kind", ["auth", "quota", "bad_request"])
def test_what_does_not_pass_by_itself_cools_down_long_at_once(kind: ErrorKind) -> None:
    cooldown = cooling(HeldClock())
    cooldown.record_failure(ErrorVerdict(kind, "no"))
    assert cooldown.left_s() == 600


@pytest.mark.spec("F3")
def test_a_clock_set_back_does_not_make_a_cool_down_longer() -> None:
    clock = HeldClock()
    cooldown = cooling(clock)
    cooldown.record_failure(ErrorVerdict("overloaded", "busy"))
    clock.pass_s(-86_400)
    assert cooldown.left_s() == 60


@pytest.mark.spec("C5")
@pytest.mark.parametrize(("after", "strikes"), [(89_999, 0), (90_000, 0), (90_001, 1), (100_000, 1), (120_000, 1)])
def test_a_pass_that_frees_less_than_a_tenth_counts_as_ineffective(after: int, strikes: int) -> None:
    pause = CompactionThrottle(MemoryState(), most_strikes=2)
    assert pause.record_pass(100_000, after) is False
    assert pause.strikes == strikes


@pytest.mark.spec("C5")
def test_only_ineffective_passes_in_a_row_bring_the_pause_and_it_is_told_once() -> None:
    pause = CompactionThrottle(MemoryState(), most_strikes=2)
    assert [pause.record_pass(100, after) for after in (99, 50, 99, 99, 99)] == [False, False, False, True, False]
    assert pause.is_paused
