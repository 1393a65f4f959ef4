"""How long a call is waited for, and how often it is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds, and for what."""

    connect_s: float = 10.0
    # Until the first event of a stream; keep-alive comments do not count.
    first_token_s: float = 300.0
    # Between two pieces of a stream; anything that arrives counts.
    idle_s: float = 120.0
    # For the whole of a reply that is not streamed.
    reply_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call that got no reply is tried again, and after what wait."""

    attempts: int = 3
    base_s: float = 0.5
    cap_s: float = 8.0
    # A service that asks for more patience than this is left to the caller, who may know another route.
    max_retry_after_s: float = 30.0

    def wait_s(self, attempt: int, *, retry_after_s: float | None, random: float) -> float | None:
        """How long to wait before attempt `attempt` + 1; None when there is to be none."""
        if attempt >= self.attempts:
            return None
        if retry_after_s is not None:
            # Spread out, but never earlier than was asked for.
            return None if retry_after_s > self.max_retry_after_s else retry_after_s * (1 + 0.1 * random)
        return min(self.cap_s, self.base_s * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * random)


class IdleTimer:
    """The idle time-out of a stream, put off while pieces arrive; not at each: that costs more than reading it."""

    def __init__(self, timer: asyncio.Timeout, idle_s: float) -> None:
        self._timer = timer
        self._idle_s = idle_s
        self._time_s = asyncio.get_running_loop().time
        self._renewable_s = 0.0

    def renew(self) -> None:
        now_s = self._time_s()
        if now_s >= self._renewable_s:
            self._timer.reschedule(now_s + self._idle_s)
            self._renewable_s = now_s + self._idle_s / 8
