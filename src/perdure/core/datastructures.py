"""Intervals of message positions, a memo bounded in bytes, dataclasses read as mappings, arrays read as lists."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

# Both ends are included.
Interval = tuple[int, int]


def merge_intervals(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Join each interval with the one before it where they overlap or touch; empty ones are dropped.

    The order is kept, since a view may list later positions first. Sort the intervals to get their union.
    """
    merged: list[Interval] = []
    for lo, hi in intervals:
        if hi < lo:
            continue
        if merged and merged[-1][0] <= lo <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], hi))
        else:
            merged.append((lo, hi))
    return tuple(merged)


def intervals_of(positions: Iterable[int]) -> tuple[Interval, ...]:
    """Return runs of consecutive positions as intervals (first, last), in the order given."""
    positions = list(positions)
    # As of almost every history.
    if positions and positions == list(range(positions[0], positions[0] + len(positions))):
        return ((positions[0], positions[-1]),)
    merged: list[Interval] = []
    first = last = None
    for position in positions:
        if first is not None and last is not None:
            if position == last + 1:  # as almost every one
                last = position
                continue
            if first <= position <= last:
                continue
            merged.append((first, last))
        first = last = position
    if first is not None and last is not None:
        merged.append((first, last))
    return tuple(merged)


K = TypeVar("K", bound=Sized)
V = TypeVar("V")

LONGEST_KEY = 256
# A key without its characters, its value's container, and their place in the table.
_ENTRY_BYTES = 250


class Memo(dict[K, V]):
    """A cache of `compute(key)` by key, limited to about `max_bytes`; when full, it is cleared.

    An entry counts as `bytes_per_char` for each character of its key, the most its key and value may take: measuring it
    would cost more than computing most values again. A key longer than `longest_key` is not cached: it is rarely asked
    for twice, and costs the most to hold. A hit is a plain dict lookup, faster than `lru_cache`.
    """

    def __init__(
        self, compute: Callable[[K], V], *, max_bytes: int, bytes_per_char: int, longest_key: int = LONGEST_KEY
    ) -> None:
        super().__init__()
        self._compute = compute
        self._max_bytes = max_bytes
        self._bytes_per_char = bytes_per_char
        self._longest_key = longest_key
        self.used_bytes = 0

    def __missing__(self, key: K) -> V:
        value = self._compute(key)
        length = len(key)
        if length <= self._longest_key:
            used = self.used_bytes + _ENTRY_BYTES + length * self._bytes_per_char
            if used > self._max_bytes:
                self.clear()
                used = _ENTRY_BYTES + length * self._bytes_per_char
            self.used_bytes = used
            self.remember(key, value)
        return value

    def remember(self, key: K, value: V) -> None:
        """Store a computed value; a subclass may override this to keep some values elsewhere."""
        self[key] = value

    def clear(self) -> None:
        super().clear()
        self.used_bytes = 0


class MappingAccess:
    """Mixin for dataclasses that are also read like a dict (`result["x"]`): fields and public properties are the keys.

    It is not registered as a `Mapping`, so that no result is mistaken for a message dict, and has no length, so that it
    is always true.
    """

    __slots__ = ()

    def keys(self) -> list[str]:
        """Return the names of the fields, then those of the properties."""
        kind: Any = type(self)
        properties = (name for name in dir(kind) if isinstance(getattr(kind, name), property))
        return [f.name for f in fields(kind)] + [name for name in properties if not name.startswith("_")]

    def __getitem__(self, name: str) -> Any:
        """Return the value of a field or property. Raises KeyError."""
        if name not in self.keys():
            raise KeyError(f"{name!r}; there are: {', '.join(self.keys())}")
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name) if name in self.keys() else default

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.keys()]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain dicts, lists, texts and numbers, which `json.dumps` takes."""
        return {name: _to_plain(value) for name, value in self.items()}


def _to_plain(value: object) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "to_dict"):
        return _to_plain(value.to_dict())
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | Set):
        return [_to_plain(item) for item in value]
    if is_dataclass(value):
        return {f.name: _to_plain(getattr(value, f.name)) for f in fields(value)}
    return str(value)


def array_values(value: object) -> object:
    """Return an array of another library as lists, its scalar as a number, text or date; other values as they are."""
    for name in ("tolist", "item"):
        convert = getattr(type(value), name, None)  # of the class: some objects have any attribute
        if not callable(convert):
            continue
        try:
            plain = convert(value)
        except (TypeError, ValueError):  # another method of that name
            continue
        if isinstance(plain, bool | int | float | str | list | datetime.date):
            return plain
    return value


def array_or_text(value: object) -> object:
    """Return what JSON has for a value of another type: for `json.dumps(default=…)`."""
    plain = array_values(value)
    return str(value) if plain is value else plain
