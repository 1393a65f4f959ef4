"""What a tool's function returns, as text for the model: JSON for values of Python, and the items of generators."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import threading
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence, Set, ValuesView
from functools import partial
from typing import Any

from perdure.core.concurrency import run_abandonable
from perdure.core.datastructures import array_values
from perdure.core.errors import ToolError

MAX_ITEMS = 10_000
_MAX_DEPTH = 100
# Python writes an integer of up to 4,300 digits in decimal, unless a program sets another limit.
_MOST_BITS = 14_000


def to_json(value: object) -> str:
    """Return a value as JSON: fields of dataclasses and pydantic models, values of enums, items of sets and arrays.

    A field that its class leaves out of its representation is left out here, too. NaN and the infinities, which JSON
    does not have, become texts; so does what has no other form. Raises ValueError for a value that contains itself, and
    for an iterator inside it with more than `MAX_ITEMS`.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # not plain JSON: a second pass is only needed then
        return json.dumps(_to_plain(value), ensure_ascii=False, allow_nan=False)


async def collect_items(source: Iterator[Any] | AsyncIterator[Any], *, name: str) -> list[Any]:
    """Return the items of a generator or another iterator that a tool returned.

    An iterator runs in a worker thread, an async one on the event loop; it stops at its next item if the caller is
    cancelled. Raises ToolError for more than `MAX_ITEMS`.
    """
    if isinstance(source, AsyncIterator):
        items = await _collect_async(source)
    else:
        is_abandoned = threading.Event()
        try:
            items = await run_abandonable(partial(_collect, source, is_abandoned), name="perdure-tool")
        finally:
            is_abandoned.set()
    if len(items) > MAX_ITEMS:
        raise ToolError(f"{name} yielded more than {MAX_ITEMS:,} items and was stopped; ask for fewer")
    return items


def _collect(source: Iterator[Any], is_abandoned: threading.Event) -> list[Any]:
    items: list[Any] = []
    try:
        for item in source:
            items.append(item)
            if len(items) > MAX_ITEMS or is_abandoned.is_set():
                break
    finally:
        if isinstance(source, Generator):  # its `finally` runs now
            source.close()
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
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _MOST_BITS else hex(value)
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
    if isinstance(value, Iterator):
        items = _collect(value, threading.Event())
        if len(items) > MAX_ITEMS:
            raise ValueError(f"an iterator in the value has more than {MAX_ITEMS:,} items")
        return [_to_plain(item, depth + 1) for item in items]
    plain = array_values(value)
    return str(value) if plain is value else _to_plain(plain, depth + 1)


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a dict, a dataclass or a pydantic model; None for other values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}
    dump = getattr(value, "model_dump", None)
    if not callable(dump) or not hasattr(type(value), "model_fields"):
        return None
    hidden = _hidden_fields(value)
    fields = dump(exclude=hidden) if hidden else dump()
    return fields if isinstance(fields, Mapping) else None


def _hidden_fields(value: Any, depth: int = 0) -> dict[Any, Any]:
    """Return what `model_dump` is to exclude: the fields of a model, and of those in it, that its repr leaves out."""
    if depth > _MAX_DEPTH or isinstance(value, type):
        return {}
    parts: dict[Any, Any] = {}
    if isinstance(fields := getattr(type(value), "model_fields", None), Mapping):
        parts = {name: getattr(value, name, None) for name, field in fields.items() if getattr(field, "repr", True)}
        hidden: dict[Any, Any] = dict.fromkeys(fields.keys() - parts.keys(), True)
    elif dataclasses.is_dataclass(value):
        hidden = {field.name: True for field in dataclasses.fields(value) if not field.repr}
        parts = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value) if f.repr}
    elif isinstance(value, Mapping):
        hidden, parts = {}, dict(value)
    elif isinstance(value, list | tuple):
        hidden, parts = {}, dict(enumerate(value))
    else:
        return {}
    inner = {name: _hidden_fields(part, depth + 1) for name, part in parts.items()}
    return hidden | {name: excluded for name, excluded in inner.items() if excluded}


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
