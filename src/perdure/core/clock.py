"""The real clock. Everything that needs the time is handed one, so that tests can hold it."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time and a stopwatch, from the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
