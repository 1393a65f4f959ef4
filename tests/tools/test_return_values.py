"""What the function of a tool returns reaches the model as JSON, whatever type of Python it has."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import itertools
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pydantic
import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.errors import ToolError
from perdure.core.messages import ToolCall
from perdure.tools.return_values import MAX_ITEMS, collect_items, to_json
from perdure.tools.runtime import ToolRuntime, ToolScope
from perdure.tools.tool import Tool, ToolRegistry, tool, tool_from_function


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


class Account(pydantic.BaseModel):
    user: str
    token: str = pydantic.Field(default="secret", repr=False)


class Team(pydantic.BaseModel):
    name: str
    members: list[Account]
    login: Login | None = None


@dataclasses.dataclass
class Login:
    user: str
    token: str = dataclasses.field(default="secret", repr=False)


class Array:
    """An array of another library: its text is shortened, `tolist` has all of it."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __str__(self) -> str:
        return "[0 1 ... 9]"

    def tolist(self) -> list[Any]:
        return self._items


class Scalar:
    """A number of an array library."""

    def __init__(self, number: Any) -> None:
        self._number = number

    def item(self) -> Any:
        return self._number


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
        (Array([[1, 2], [float("nan"), True]]), [[1, 2], ["NaN", True]]),
        ({Scalar(5): [Scalar(1.5), Scalar(True)]}, {"5": [1.5, True]}),
        ({"rows": (i for i in range(3)), "pairs": zip("ab", [1, 2], strict=True)}, {
            "rows": [0, 1, 2], "pairs": [["a", 1], ["b", 2]],
        }),
        ({"n": 10**6_000, "m": 10**4_000}, {"n": hex(10**6_000), "m": 10**4_000}),
        ([Login("ann"), Account(user="bob")], [{"user": "ann"}, {"user": "bob"}]),
        (Team(name="t", members=[Account(user="bob")], login=Login("ann")), {
            "name": "t", "members": [{"user": "bob"}], "login": {"user": "ann"},
        }),
    ],
)  # fmt: skip
def test_values_of_python_are_json(value: object, expected: object) -> None:
    assert json.loads(to_json(value)) == expected


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = [Color.RED]
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        to_json(endless)


def test_an_iterator_inside_a_value_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_ITEMS:,} items"):
        to_json({"rows": itertools.count()})


def _result_of(function: Callable[..., Any] | Tool) -> str:
    made = function if isinstance(function, Tool) else tool_from_function(function)
    runtime = ToolRuntime(ToolRegistry([made]), clock=SystemClock())
    batch = runtime.batch([ToolCall("c1", made.name, "{}")], ToolScope("t", "c"))
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


def test_a_generator_is_closed_at_its_limit_and_once_its_call_timed_out() -> None:
    closed = {"endless": threading.Event(), "slow": threading.Event()}

    def endless() -> Iterator[int]:
        """Yields."""
        try:
            yield from itertools.count()
        finally:
            closed["endless"].set()

    @tool(timeout_s=0.2)
    def slow() -> Iterator[int]:
        """Yields."""
        try:
            while True:
                yield 1
                time.sleep(0.01)
        finally:
            closed["slow"].set()

    references = [endless()]  # not closed by its garbage collection
    with pytest.raises(ToolError, match=f"more than {MAX_ITEMS:,} items"):
        asyncio.run(collect_items(references[0], name="endless"))
    assert closed["endless"].is_set()
    assert "took longer than" in _result_of(slow)
    assert closed["slow"].wait(5)


def test_a_generator_that_fails_is_an_error() -> None:
    def half() -> Iterator[str]:
        """Yields."""
        yield "a"
        raise SystemExit("no more")

    assert _result_of(half).startswith("Error: half failed: SystemExit")
