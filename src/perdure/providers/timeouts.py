"""How long a call is waited for, and how often it is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

# A longer wait is the caller's to decide about: another route may do, and a person may not want to sit it out.
LONG_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds, and for what."""

    connect_s: float = 10.0
    # Until the first event of a stream, while nothing at all arrives.
    first_token_s: float = 300.0
    # Until the first event of a stream, while keep-alive signals show that the service still works on it.
    queued_s: float = 900.0
    # Between two pieces of a stream.
    idle_s: float = 120.0
    # Between two events of a stream, while nothing but keep-alive signals arrives.
    keep_alive_s: float = 300.0
    # For the whole of a reply that is not streamed.
    reply_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call that got no reply is tried again, and after what wait."""

    attempts: int = 3
    base_s: float = 0.5
    cap_s: float = 8.0
    # A service that asks for more patience than this is left to the caller, who may know another route.
    max_retry_after_s: float = LONG_WAIT_S

    def wait_s(self, attempt: int, *, retry_after_s: float | None, random: float) -> float | None:
        """How long to wait before attempt `attempt` + 1; None when there is to be none."""
        if attempt >= self.attempts:
            return None
        if retry_after_s is not None:
            # Spread out, but never earlier than was asked for.
            return None if retry_after_s > self.max_retry_after_s else retry_after_s * (1 + 0.1 * random)
        return min(self.cap_s, self.base_s * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * random)


class StreamTimer:
    """The deadline of a stream: events put it off, keep-alive signals only so far.

    It is not moved at each piece: that would cost more than reading the piece.
    """

    def __init__(self, timer: asyncio.Timeout, timeouts: Timeouts, *, started_s: float) -> None:
        self._timer = timer
        self._timeouts = timeouts
        self._time_s = asyncio.get_running_loop().time
        self._renewable_s = 0.0
        # When the last event came; the call's start until there was one.
        self._last_event_s = started_s
        self.has_event = False
        self._is_kept_alive = False

    def on_progress(self) -> None:
        now_s = self._time_s()
        self._last_event_s, self.has_event, self._is_kept_alive = now_s, True, False
        if now_s >= self._renewable_s:
            self._timer.reschedule(now_s + self._timeouts.idle_s)
            self._renewable_s = now_s + self._timeouts.idle_s / 8

    def on_keep_alive(self) -> None:
        """A comment or a ping: somebody holds the line, which is no sign that a model still writes."""
        self._is_kept_alive = True
        limits = self._timeouts
        silence_s, most_s = (
            (limits.idle_s, limits.keep_alive_s) if self.has_event else (limits.first_token_s, limits.queued_s)
        )
        self._timer.reschedule(min(self._time_s() + silence_s, self._last_event_s + max(silence_s, most_s)))
        self._renewable_s = 0.0

    def timeout_message(self) -> str:
        """What to say once the deadline has passed."""
        limits = self._timeouts
        elapsed_s = self._time_s() - self._last_event_s
        waited_s = f"{elapsed_s:.0f}" if elapsed_s >= 10 else f"{elapsed_s:.1f}"
        if self.has_event:
            what = f"nothing came for {limits.idle_s:g} s"
            if self._is_kept_alive:
                what = f"for {waited_s} s nothing came but keep-alive signals"
            return f"the reply stopped: {what}. Try again; nothing was kept of it."
        what = f"no reply within {waited_s} s, only keep-alive signals"
        return f"{what}: the service is slow or stuck. Try again, or choose another model."
