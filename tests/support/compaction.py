"""What compaction tests hand to an engine: a clock that is held, a state that can be looked into."""

from __future__ import annotations

from typing import Any

from perdure.core.messages import Entry, Message


class HeldClock:
    """Time that passes only when told to."""

    def __init__(self, now_ms: int = 1_767_225_600_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic_s(self) -> float:
        return self.now / 1000

    def pass_s(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


class Shelf:
    """A KeyValue whose contents outlive the engine that wrote them."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self.kept.get(key)

    def set(self, key: str, value: Any) -> None:
        if value is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = value


def logged(raw: list[dict[str, Any]], start: int = 0) -> list[Entry]:
    """Dicts as entries of a log."""
    return [Entry(start + i, Message.from_dict(m)) for i, m in enumerate(raw)]
