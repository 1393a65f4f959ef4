"""Timeouts and retries of a model call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

# A longer wait is the caller's decision: another route may be faster than waiting.
LONG_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of a call, in seconds."""

    connect_s: float = 10.0
    # Until the first content of a stream, in silence.
    first_token_s: float = 300.0
    # Until the first content of a stream, while keep-alive signals arrive.
    queued_s: float = 900.0
    # Between two chunks of a stream.
    idle_s: float = 120.0
    # Between two pieces of content, while only keep-alive signals arrive.
    keep_alive_s: float = 300.0
    # For a complete response that is not streamed.
    reply_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policy: the number of attempts and the backoff between them."""

    attempts: int = 3
    base_s: float = 0.5
    cap_s: float = 8.0
    # A longer retry-after is left to the caller, who may have another route.
    max_retry_after_s: float = LONG_WAIT_S

    def wait_s(self, attempt: int, *, retry_after_s: float | None, random: float) -> float | None:
        """Return the delay before attempt `attempt` + 1; None when there is no further attempt."""
        if attempt >= self.attempts:
            return None
        if retry_after_s is not None:
            # Jitter, but never earlier than the service requires.
            return None if retry_after_s > self.max_retry_after_s else retry_after_s * (1 + 0.1 * random)
        return min(self.cap_s, self.base_s * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * random)


class StreamTimer:
    """The deadline of a stream: content extends it, keep-alive signals only up to a limit.

    It is not rescheduled for each chunk: that would cost more than parsing the chunk.
    """

    def __init__(self, timer: asyncio.Timeout, timeouts: Timeouts, *, started_s: float) -> None:
        self._timer = timer
        self._timeouts = timeouts
        self._time_s = asyncio.get_running_loop().time
        self._renewable_s = 0.0
        # Time of the last content; the start of the call until then.
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
        """Extend the deadline for an event without content: the connection is alive, the model may not be."""
        self._is_kept_alive = True
        limits = self._timeouts
        silence_s, longest_s = (
            (limits.idle_s, limits.keep_alive_s) if self.has_event else (limits.first_token_s, limits.queued_s)
        )
        self._timer.reschedule(min(self._time_s() + silence_s, self._last_event_s + max(silence_s, longest_s)))
        self._renewable_s = 0.0

    def timeout_message(self) -> str:
        """Return the error message for a deadline that has passed."""
        limits = self._timeouts
        elapsed_s = self._time_s() - self._last_event_s
        waited_s = f"{elapsed_s:.0f}" if elapsed_s >= 10 else f"{elapsed_s:.1f}"
        if self.has_event:
            reason = f"nothing arrived for {limits.idle_s:g} s"
            if self._is_kept_alive:
                reason = f"for {waited_s} s nothing arrived but keep-alive signals"
            return f"the reply stopped: {reason}. Try again; the partial reply was discarded."
        reason = f"no reply within {waited_s} s, only keep-alive signals"
        return f"{reason}: the service is slow or stuck. Try again, or choose another model."
