"""Due times: intervals, cron expressions, time zones and the days on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import ConfigError
from perdure.gateway.workers.recurrence import MAX_COUNTED, MIN_EVERY_MS, DueTimes, Recurrence

BERLIN = "Europe/Berlin"


def ms(text: str, timezone: str = BERLIN, *, fold: int = 0) -> int:
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone), fold=fold)
    return round(local.astimezone(UTC).timestamp() * 1000)


def utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%m-%d %H:%M")


def following(cron: str, after_ms: int, count: int, timezone: str = BERLIN) -> list[str]:
    recurrence, times = Recurrence(cron=cron, timezone=timezone), []
    for _ in range(count):
        after_ms = recurrence.next_after(after_ms)
        times.append(utc(after_ms))
    return times


@pytest.mark.spec("P2")
def test_a_fixed_time_keeps_its_local_hour_when_clocks_change() -> None:
    assert following("0 9 * * *", ms("2026-03-27 12:00"), 3) == ["03-28 08:00", "03-29 07:00", "03-30 07:00"]
    assert following("0 9 * * *", ms("2026-10-23 12:00"), 3) == ["10-24 07:00", "10-25 08:00", "10-26 08:00"]


def test_a_skipped_time_runs_right_after_the_change() -> None:
    assert following("30 2 * * *", ms("2026-03-28 12:00"), 2) == ["03-29 01:00", "03-30 00:30"]


def test_a_time_in_a_repeated_hour_runs_once() -> None:
    assert following("30 2 * * *", ms("2026-10-24 12:00"), 2) == ["10-25 00:30", "10-26 01:30"]
    # Asked for in the second pass of that hour, when the due time of the first is over.
    assert following("30 2 * * *", ms("2026-10-25 02:10", fold=1), 1) == ["10-26 01:30"]


def test_an_hourly_expression_runs_in_both_passes_of_a_repeated_hour() -> None:
    times = following("30 * * * *", ms("2026-10-25 01:00"), 4)
    assert times == ["10-24 23:30", "10-25 00:30", "10-25 01:30", "10-25 02:30"]


def test_an_interval_is_elapsed_time_also_when_clocks_change() -> None:
    due = Recurrence(every_ms=3_600_000, timezone=BERLIN).due_times(ms("2026-10-25 00:00"), ms("2026-10-25 04:00"))
    assert due == DueTimes(ms("2026-10-25 04:00"), 5, ms("2026-10-25 05:00"))


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("*/15 9-10 * * MON-FRI", ["11-16 09:00", "11-16 09:15"]),
        ("0 0 29 2 *", ["02-29 00:00"]),
        ("0 12 L * *", ["11-30 12:00", "12-31 12:00"]),
        ("@daily", ["11-15 00:00", "11-16 00:00"]),
        ("0  8\t* * SUN#3", ["11-15 08:00", "12-20 08:00"]),
    ],
)
def test_cron_expressions(cron: str, expected: list[str]) -> None:
    assert following(cron, ms("2026-11-14 12:00", "UTC"), len(expected), "UTC") == expected


@pytest.mark.parametrize(
    "cron",
    ["", "*", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "0 0 31 4 *", "x * * * *", "* * * * 1L/2",
     "-1 * * * *", "*/0 * * * *", "5-1 * * * *", "*," * 150 + "* * * * *", "@never"],
)  # fmt: skip
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(ConfigError):
        Recurrence(cron=cron)


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../../etc/passwd", "Europe", "Europe/Berlin\0"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="time zone"):
        Recurrence(cron="0 9 * * *", timezone=name)


def test_an_interval_has_at_least_a_minute() -> None:
    Recurrence(every_ms=MIN_EVERY_MS)
    for every_ms in (0, MIN_EVERY_MS - 1, -1, 400 * 86_400_000):
        with pytest.raises(ConfigError, match="1m"):
            Recurrence(every_ms=every_ms)
    with pytest.raises(ConfigError, match="either"):
        Recurrence()


def test_due_times_after_a_pause_are_counted_up_to_the_newest() -> None:
    recurrence = Recurrence(cron="0 * * * *", timezone="UTC")
    first = ms("2026-11-16 08:00", "UTC")
    assert recurrence.due_times(first, first) == DueTimes(first, 0, first + 3_600_000)
    due = recurrence.due_times(first, first + 5 * 3_600_000 - 1)
    assert due == DueTimes(first + 4 * 3_600_000, 4, first + 5 * 3_600_000)


def test_a_pause_of_years_is_counted_in_bounded_time() -> None:
    first, now = ms("2020-01-01 00:00", "UTC"), ms("2026-11-16 08:30", "UTC") + 30_000
    for recurrence in (Recurrence(cron="* * * * *"), Recurrence(every_ms=60_000)):
        assert recurrence.due_times(first, now) == DueTimes(now - 30_000, MAX_COUNTED, now + 30_000)


@given(
    st.sampled_from(["30 2 * * *", "*/20 * * * *", "15 1-3 * * *", "0 0 * * SUN", "0 */2 * * *"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata"]),
    st.integers(1_760_000_000_000, 1_800_000_000_000),
)
def test_the_next_due_time_is_always_later(cron: str, timezone: str, after_ms: int) -> None:
    recurrence = Recurrence(cron=cron, timezone=timezone)
    following = recurrence.next_after(after_ms)
    assert following > after_ms
    assert recurrence.due_times(following, following).newest_ms == following
