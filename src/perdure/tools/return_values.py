"""What a tool's function returns, as text for the model: JSON for values of Python, and the items of generators."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence, Set, ValuesView
from functools import partial
from itertools import islice
from typing import Any

from perdure.core.concurrency import run_abandonable
from perdure.core.errors import ToolError

MAX_ITEMS = 10_000
_MAX_DEPTH = 100


def to_json(value: object) -> str:
    """Return a value as JSON text: fields of dataclasses and pydantic models, values of enums, items of sets.

    NaN and the infinities, which JSON does not have, become texts; so does what has no other form. Raises ValueError
    for a value that contains itself.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # not plain JSON: a second pass is only needed then
        return json.dumps(_to_plain(value), ensure_ascii=False, allow_nan=False)


async def collect_items(source: Iterator[Any] | AsyncIterator[Any], *, name: str) -> list[Any]:
    """Return the items of a generator or another iterator that a tool returned.

    An iterator runs in a worker thread, an async one on the event loop. Raises ToolError for more than `MAX_ITEMS`.
    """
    if isinstance(source, AsyncIterator):
        items = await _collect_async(source)
    else:
        items = await run_abandonable(partial(list, islice(source, MAX_ITEMS + 1)), name="perdure-tool")
    if len(items) > MAX_ITEMS:
        raise ToolError(f"{name} yielded more than {MAX_ITEMS:,} items and was stopped; ask for fewer")
    return items


async def _collect_async(source: AsyncIterator[Any]) -> list[Any]:
    items: list[Any] = []
    try:
        async for item in source:
            items.append(item)
            if len(items) > MAX_ITEMS:
                break
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:  # of a generator: its `finally` runs now
            await close()
    return items


def _to_plain(value: Any, depth: int = 0) -> Any:
    """Return a value made of dicts, lists, texts, finite numbers, booleans and None alone."""
    if depth > _MAX_DEPTH:
        raise ValueError("the value contains itself, or is nested too deeply for JSON")
    if isinstance(value, enum.Enum):
        return _to_plain(value.value, depth + 1)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _name_of(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    fields = _fields_of(value)
    if fields is not None:
        return {_key(k): _to_plain(v, depth + 1) for k, v in fields.items()}
    if isinstance(value, Set):
        return _sort_items([_to_plain(item, depth + 1) for item in value])
    if isinstance(value, Sequence | ValuesView):
        return [_to_plain(item, depth + 1) for item in value]
    return str(value)


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a dict, a dataclass or a pydantic model; None for other values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    fields = dump() if callable(dump) and hasattr(type(value), "model_fields") else None
    return fields if isinstance(fields, Mapping) else None


def _key(key: Any) -> str:
    plain = _to_plain(key)
    return plain if isinstance(plain, str) else to_json(plain)


def _name_of(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _sort_items(items: list[Any]) -> list[Any]:
    """Return the items of a set in the same order each time."""
    try:
        return sorted(items)
    except TypeError:  # of several types
        return sorted(items, key=to_json)
