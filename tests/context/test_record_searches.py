"""A search is told by its hits: their text where they are few, else the lines by file; none must be sought again."""

from __future__ import annotations

import json
from typing import Any

from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.describe import describe_call
from perdure.core.messages import ToolCall


def describe(name: str, result: str, **arguments: Any) -> CallLine:
    return describe_call(ToolCall("c1", name, json.dumps(arguments)), result)


# All uses of a function, more than fit with their text.
USES = "\n".join(
    [f"lib/tides.py:{n}:    level = read_gauge(port_{n})" for n in (12, 40, 77, 131)]
    + [f"lib/ports/harbour.py:{n}:    read_gauge(self.port)" for n in range(200, 212)]
    + ["tests/test_tides.py:9:    assert read_gauge(PORT) == 3"]
)


def test_many_hits_are_told_by_file_and_line() -> None:
    line = describe("grep", USES, pattern="read_gauge", path="lib")
    assert line.line.endswith("→ 17 lines")
    assert "lib/tides.py:12, 40, 77, 131" in line.detail
    assert "lib/ports/harbour.py:200, 201," in line.detail
    assert "tests/test_tides.py:9" in line.detail


def test_a_search_in_a_shell_is_told_the_same() -> None:
    line = describe("terminal", USES, command="grep -rn read_gauge lib tests")
    assert "lib/tides.py:12, 40, 77, 131" in line.detail


def test_the_hit_within_much_context_is_told() -> None:
    body = "\n".join(f"lib/tides.py-{n}-    step({n})" for n in range(31, 61))
    line = describe("grep", f"lib/tides.py:30:def read_gauge(port: int) -> float:\n{body}", pattern="def read_gauge")
    assert "lib/tides.py:30: def read_gauge(port: int) -> float:" in line.detail
    assert "step(31)" not in line.detail


def test_hits_of_one_file_name_it_once() -> None:
    hits = "lib/tides.py:12: read_gauge(1)\nlib/tides.py:40: read_gauge(2)\nlib/moon.py:7: read_gauge(3)"
    detail = describe("grep", hits, pattern="read_gauge").detail
    assert detail.count("lib/tides.py") == 1
    assert ":40: read_gauge(2)" in detail
    assert "lib/moon.py:7: read_gauge(3)" in detail


def test_a_search_of_one_file_lists_its_lines() -> None:
    hits = "\n".join(f"{n}:    read_gauge(port)" for n in range(20, 40))
    assert "lines 20, 21, 22," in describe("grep", hits, pattern="read_gauge", path="lib/tides.py").detail


def test_a_search_that_found_nearly_everything_is_counted() -> None:
    hits = "\n".join(f"lib/module_{n}.py:{n}: import tides" for n in range(1, 90))
    line = describe("grep", hits, pattern="import")
    assert line.detail == line.line


def test_file_names_are_no_hits() -> None:
    names = "\n".join(f"lib/module_{n}.py" for n in range(30))
    line = describe("glob", names, pattern="lib/*.py")
    assert line.detail == line.line
