"""Compute when a schedule is due next: at a fixed interval, or by a cron expression in a time zone.

Cron expressions follow Debian's cron when clocks change: a job at a fixed time that is skipped runs right after the
change, and one in a repeated hour runs once. With `*` in the minute or hour field, a skipped hour is skipped and a
repeated hour runs twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from perdure.core.errors import ConfigError
from perdure.store.db.database import LAST_TIME_MS
from perdure.store.schedules import Schedule

MIN_EVERY_MS, MAX_EVERY_MS = 60_000, 366 * 86_400_000
# Due times counted after a long pause; there may be more.
MAX_COUNTED = 1_000
_MAX_CRON_CHARS = 200
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class DueTimes:
    """The due times up to now: the newest, how many before it (up to MAX_COUNTED), and the first one still to come."""

    newest_ms: int
    earlier: int
    next_ms: int


class Recurrence:
    """Computes the due times of a schedule. Raises ConfigError for an invalid interval, expression or time zone."""

    def __init__(self, *, every_ms: int | None = None, cron: str | None = None, timezone: str = "UTC") -> None:
        if (every_ms is None) == (cron is None):
            raise ConfigError("a schedule has either an interval or a cron expression")
        if every_ms is not None and not MIN_EVERY_MS <= every_ms <= MAX_EVERY_MS:
            raise ConfigError("an interval has at least one minute (1m) and at most 366 days (366d)")
        self._every_ms = every_ms
        self._zone = _zone_of(timezone)
        self.cron = None if cron is None else _parse_cron(cron)

    @classmethod
    def of(cls, schedule: Schedule) -> Recurrence:
        """Return the recurrence of a stored schedule."""
        return cls(every_ms=schedule.every_ms, cron=schedule.cron, timezone=schedule.timezone)

    def next_after(self, after_ms: int) -> int:
        """Return the first due time after `after_ms`; an interval counts from `after_ms` itself."""
        if self._every_ms is not None:
            return after_ms + self._every_ms
        times = CronSim(self.cron or "", datetime.fromtimestamp(after_ms / 1000, self._zone))
        for due in times:
            due_ms = _to_ms(due)
            # In a repeated hour, a job at a fixed time has its due time in the first pass, which may be over.
            if due_ms > after_ms:
                return due_ms
        return LAST_TIME_MS

    def due_times(self, first_ms: int, now_ms: int) -> DueTimes:
        """Return the due times from `first_ms`, which has passed, until now."""
        if self._every_ms is not None:
            earlier = max(0, now_ms - first_ms) // self._every_ms
            newest_ms = first_ms + earlier * self._every_ms
            return DueTimes(newest_ms, min(earlier, MAX_COUNTED), newest_ms + self._every_ms)
        newest_ms, earlier = first_ms, 0
        while (next_ms := self.next_after(newest_ms)) <= now_ms:
            if earlier == MAX_COUNTED:
                newest_ms = max(newest_ms, self._last_before(now_ms))
                return DueTimes(newest_ms, earlier, self.next_after(now_ms))
            newest_ms, earlier = next_ms, earlier + 1
        return DueTimes(newest_ms, earlier, next_ms)

    def _last_before(self, now_ms: int) -> int:
        now = datetime.fromtimestamp(now_ms / 1000, self._zone)
        return next((ms for due in CronSim(self.cron or "", now, reverse=True) if (ms := _to_ms(due)) <= now_ms), 0)


def _to_ms(time: datetime) -> int:
    return round(time.astimezone(UTC).timestamp()) * 1000


def _zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, not a name at all, a folder
        raise ConfigError(f"there is no time zone {name!r}; one looks like Europe/Berlin or UTC") from None


def _parse_cron(text: str) -> str:
    """Return a cron expression with five fields. Raises ConfigError."""
    expression = _MACROS.get(text.strip().lower(), " ".join(text.split()))
    if len(expression) > _MAX_CRON_CHARS or len(expression.split()) != 5:
        raise ConfigError(
            f"{text[:80]!r} is not a cron expression: it has five fields (minute, hour, day, month, weekday),"
            " like '0 9 * * 1-5'"
        )
    try:
        # From a leap year on, so that February 29th comes.
        first = next(CronSim(expression, datetime(2024, 1, 1, tzinfo=UTC)), None)
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        reason = str(error) or "it cannot be read"
        raise ConfigError(f"{text[:80]!r} is not a cron expression: {reason}") from None
    if first is None:
        raise ConfigError(f"{text[:80]!r} never comes")
    return expression
