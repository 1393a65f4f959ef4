"""What a compressor remembers between compactions and across restarts: cool-downs, strikes, the pause, the count.

All of it lies in the state handed in (`KeyValue`), under `compressor.*`, as small JSON values; anything unreadable
there counts as nothing.
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

# A pass that frees less than this share of what was there has not been worth its price.
LEAST_SAVED = 0.10


class MemoryState:
    """A KeyValue for those who bring none: it lives as long as the engine."""

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
    """How long no summary is asked for after a failure (F3)."""

    def __init__(self, state: KeyValue, clock: Clock, *, retry_s: float, no_provider_s: float) -> None:
        self._state = state
        self._clock = clock
        self._retry_s = retry_s
        self._no_provider_s = no_provider_s

    def left_s(self) -> float:
        """Seconds until a summary may be asked for again; 0 now. A clock set back never makes it longer than it was."""
        until_ms, length_s = self._read()[1:]
        remaining = (until_ms - self._clock.now_ms()) / 1000
        return min(max(0.0, remaining), length_s)

    def failed(self, verdict: ErrorVerdict | None, *, is_lasting: bool = False) -> None:
        """A passing failure: short, growing with each in a row; one that will not pass: long at once."""
        failures = self._read()[0] + 1
        if is_lasting or (verdict is not None and POLICIES[verdict.kind].is_lasting):
            length_s = self._no_provider_s
        else:
            length_s = min(self._retry_s * 2 ** (failures - 1), max(self._retry_s, self._no_provider_s))
            if verdict is not None and verdict.retry_after_s:
                length_s = max(length_s, min(verdict.retry_after_s, 3600.0))
        until = self._clock.now_ms() + int(length_s * 1000)
        self._state.set(_COOLDOWN, {"failures": failures, "until_ms": until, "length_s": length_s})

    def succeeded(self) -> None:
        """A summary was written."""
        self.reset()

    def reset(self) -> None:
        """A summary may be asked for at once: the failures were those of another model."""
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
    """Strikes of compactions that saved too little, and the pause two of them in a row bring (C5)."""

    def __init__(self, state: KeyValue, *, most_strikes: int) -> None:
        self._state = state
        self._most = most_strikes

    @property
    def strikes(self) -> int:
        return int(_number(_mapping(self._state.get(_PAUSE)).get("strikes")))

    @property
    def is_on(self) -> bool:
        return self.strikes >= self._most

    def scored(self, before_tokens: int, after_tokens: int) -> bool:
        """Takes the score of a pass, both figures of one estimator; True where it brought the pause."""
        if before_tokens - after_tokens >= LEAST_SAVED * before_tokens and after_tokens < before_tokens:
            self.lift()
            return False
        was_on = self.is_on
        self._state.set(_PAUSE, {"strikes": self.strikes + 1})
        return self.is_on and not was_on

    def lift(self) -> None:
        """A real prompt fits again, or the user asked."""
        if self._state.get(_PAUSE) is not None:
            self._state.set(_PAUSE, None)


class CompactionChain:
    """How often this conversation was compacted."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    @property
    def count(self) -> int:
        return int(_number(self._state.get(_COUNT)))

    def compacted(self) -> None:
        self._state.set(_COUNT, self.count + 1)


class LastFocus:
    """The topic that the newest handoff was written for; a handoff is identified by its source line."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def record(self, source: str, topic: str | None) -> None:
        self._state.set(_FOCUS, {"source": source, "topic": topic} if topic else None)

    def is_new(self, source: str, topic: str | None) -> bool:
        """Whether `topic` is one that the handoff was not written for."""
        return bool(topic) and _mapping(self._state.get(_FOCUS)) != {"source": source, "topic": topic}


class OneTimeNotices:
    """What was pointed out once and need not be again, for as long as the state handed in lasts."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def is_due(self, what: str) -> bool:
        """True the first time it is asked about `what`."""
        if self._state.get(_TOLD + what):
            return False
        self._state.set(_TOLD + what, True)
        return True


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
