"""Persistent state of the compressor: cool-downs, throttle, compaction count, last focus.

Values are small JSON values in the injected `KeyValue`, under `compressor.*`; invalid ones are ignored.
"""

from __future__ import annotations

from typing import Any

from perdure.core.error_policy import POLICIES
from perdure.core.errors import ErrorVerdict
from perdure.core.ports import Clock, KeyValue

_COOLDOWN = "compressor.cooldown"
_PAUSE = "compressor.pause"
_COUNT = "compressor.count"
_FOCUS = "compressor.focus"
_TOLD = "compressor.told."

# A pass that frees a smaller share counts as ineffective.
LEAST_SAVED = 0.10


class MemoryState:
    """An in-memory KeyValue, the default without a session."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value


class CoolDown:
    """Blocks summary requests for a while after failures, persistently."""

    def __init__(self, state: KeyValue, clock: Clock, *, retry_s: float, no_provider_s: float) -> None:
        self._state = state
        self._clock = clock
        self._retry_s = retry_s
        self._no_provider_s = no_provider_s

    def left_s(self) -> float:
        """Return the seconds until the next summary request is allowed; a clock set back never extends them."""
        until_ms, length_s = self._read()[1:]
        remaining = (until_ms - self._clock.now_ms()) / 1000
        return min(max(0.0, remaining), length_s)

    def record_failure(self, verdict: ErrorVerdict | None, *, is_lasting: bool = False) -> None:
        """Start a cool-down: short and doubling for transient failures, long for lasting ones."""
        failures = self._read()[0] + 1
        if is_lasting or (verdict is not None and POLICIES[verdict.kind].is_lasting):
            length_s = self._no_provider_s
        else:
            length_s = min(self._retry_s * 2 ** (failures - 1), max(self._retry_s, self._no_provider_s))
            if verdict is not None and verdict.retry_after_s:
                length_s = max(length_s, min(verdict.retry_after_s, 3600.0))
        until = self._clock.now_ms() + int(length_s * 1000)
        self._state.set(_COOLDOWN, {"failures": failures, "until_ms": until, "length_s": length_s})

    def record_success(self) -> None:
        """Reset the back-off after a summary."""
        self.reset()

    def reset(self) -> None:
        """Allow summary requests again at once, after a switch to another model."""
        if self._state.get(_COOLDOWN) is not None:
            self._state.set(_COOLDOWN, None)

    def _read(self) -> tuple[int, int, float]:
        stored = _mapping(self._state.get(_COOLDOWN))
        return (
            int(_number(stored.get("failures"))),
            int(_number(stored.get("until_ms"))),
            float(_number(stored.get("length_s"))),
        )


class CompactionThrottle:
    """Pauses automatic compaction after repeated passes that free too little."""

    def __init__(self, state: KeyValue, *, most_strikes: int) -> None:
        self._state = state
        self._most = most_strikes

    @property
    def strikes(self) -> int:
        return int(_number(_mapping(self._state.get(_PAUSE)).get("strikes")))

    @property
    def is_paused(self) -> bool:
        return self.strikes >= self._most

    def record_pass(self, before_tokens: int, after_tokens: int) -> bool:
        """Record how much a compaction freed; return True if it is the one that starts the pause."""
        if before_tokens - after_tokens >= LEAST_SAVED * before_tokens and after_tokens < before_tokens:
            self.end_pause()
            return False
        was_on = self.is_paused
        self._state.set(_PAUSE, {"strikes": self.strikes + 1})
        return self.is_paused and not was_on

    def end_pause(self) -> None:
        """End the pause: a prompt fits again, or the user requested a compaction."""
        if self._state.get(_PAUSE) is not None:
            self._state.set(_PAUSE, None)


class CompactionChain:
    """Counts the compactions of this conversation."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    @property
    def count(self) -> int:
        return int(_number(self._state.get(_COUNT)))

    def count_compaction(self) -> None:
        self._state.set(_COUNT, self.count + 1)


class LastFocus:
    """Stores the topic that the newest handoff was written for; a handoff is identified by its source line."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def record(self, source: str, topic: str | None) -> None:
        self._state.set(_FOCUS, {"source": source, "topic": topic} if topic else None)

    def is_new(self, source: str, topic: str | None) -> bool:
        """Whether the handoff was not written for `topic`, so that it has to be rewritten."""
        return bool(topic) and _mapping(self._state.get(_FOCUS)) != {"source": source, "topic": topic}


class OneTimeNotices:
    """Remembers which notices were already shown, in the injected state."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def is_due(self, what: str) -> bool:
        """Return True on the first call for a notice, False on later ones."""
        if self._state.get(_TOLD + what):
            return False
        self._state.set(_TOLD + what, True)
        return True


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
