"""What the function of a tool returns reaches the model as JSON, whatever type of Python it has."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pydantic
import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.messages import ToolCall
from perdure.tools.return_values import MAX_ITEMS, to_json
from perdure.tools.runtime import ToolRuntime, ToolScope
from perdure.tools.tool import ToolRegistry, tool_from_function


@dataclasses.dataclass
class Order:
    id: int
    total: float
    tags: frozenset[str] = frozenset()


class Invoice(pydantic.BaseModel):
    id: int
    lines: list[str] = []
    due: datetime.date | None = None


class Color(enum.Enum):
    RED = "red"


UNIQUE = uuid.UUID(int=5)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Order(7, 1.5, frozenset({"b", "a"})), {"id": 7, "total": 1.5, "tags": ["a", "b"]}),
        (Invoice(id=7, due=datetime.date(2026, 5, 1)), {"id": 7, "lines": [], "due": "2026-05-01"}),
        ([Invoice(id=1), {"nested": Order(2, float("nan"))}], [
            {"id": 1, "lines": [], "due": None}, {"nested": {"id": 2, "total": "NaN", "tags": []}},
        ]),
        (Color.RED, "red"),
        ({Color.RED: Color.RED, (1, 2): None}, {"red": "red", "[1, 2]": None}),
        ({2, 1}, [1, 2]),
        ({2, "b", 1}, ["b", 1, 2]),
        ([float("inf"), -float("inf"), 1.5], ["Infinity", "-Infinity", 1.5]),
        ({"p": decimal.Decimal("1.10"), "id": UNIQUE, "raw": b"ab"}, {"p": "1.10", "id": str(UNIQUE), "raw": "ab"}),
        ({"k": 1}.values(), [1]),
    ],
)  # fmt: skip
def test_values_of_python_are_json(value: object, expected: object) -> None:
    assert json.loads(to_json(value)) == expected


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = [Color.RED]
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        to_json(endless)


def _result_of(function: Callable[..., Any]) -> str:
    runtime = ToolRuntime(ToolRegistry([tool_from_function(function)]), clock=SystemClock())
    batch = runtime.batch([ToolCall("c1", function.__name__, "{}")], ToolScope("t", "c"))
    (message,) = asyncio.run(batch.run())
    return message.text


def test_the_items_of_a_generator_are_its_result() -> None:
    closed: list[str] = []

    def plain() -> Iterator[str]:
        """Yields."""
        yield "a"
        yield "b"

    async def later() -> AsyncIterator[Order]:
        """Yields."""
        try:
            yield Order(1, 2.0)
        finally:
            closed.append("later")

    async def lazily() -> Iterator[int]:
        """Returns an iterator."""
        return map(abs, [-1, -2])

    assert _result_of(plain) == '["a", "b"]'
    assert _result_of(later) == '[{"id": 1, "total": 2.0, "tags": []}]'
    assert _result_of(lazily) == "[1, 2]"
    assert closed == ["later"]


def test_a_generator_without_an_end_is_stopped() -> None:
    async def endless() -> AsyncIterator[int]:
        """Yields."""
        for i in itertools.count():
            yield i

    def counting() -> Iterator[int]:
        """Counts."""
        return itertools.count()

    for function in (endless, counting):
        assert f"{function.__name__} yielded more than {MAX_ITEMS:,} items" in _result_of(function)


def test_a_generator_that_fails_is_an_error() -> None:
    def half() -> Iterator[str]:
        """Yields."""
        yield "a"
        raise SystemExit("no more")

    assert _result_of(half).startswith("Error: half failed: SystemExit")
