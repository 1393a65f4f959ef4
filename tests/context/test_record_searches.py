"""A search is told by its hits: their text where they are few, else the lines by file; none must be sought again."""

from __future__ import annotations

import json
from typing import Any

import pytest

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


def test_hits_below_the_name_of_their_file_are_told_with_it() -> None:
    files = ("lib/tides.py", "lib/moon.py")
    hits = "\n\n".join(f"{file}\n" + "\n".join(f"{n}:    read_gauge()" for n in range(3, 12)) for file in files)
    detail = describe("grep", hits, pattern="read_gauge").detail
    assert "lib/tides.py:3, 4, 5, 6, 7, 8, 9, 10, 11" in detail
    assert "lib/moon.py:3, 4, 5, 6, 7, 8, 9, 10, 11" in detail


@pytest.mark.parametrize("start", ["", "2024-05-01 ", "2024-05-01T", "[", "May 1 "])
def test_times_are_no_files_and_line_numbers(start: str) -> None:
    lines = [f"{start}12:{n:02}:45 the gauge of port {n} is read" for n in range(5)]
    detail = describe("terminal", "\n".join(lines), command="grep gauge app.log").detail
    assert all(line in detail for line in lines)


@pytest.mark.parametrize("files", [20, 40])
def test_files_for_which_there_is_no_room_are_counted(files: int) -> None:
    hits = [f"lib/{n}.py:{n}: import tides" for n in range(files)]
    detail = describe("grep", "\n".join(hits), pattern="import").detail
    shown = detail.count(".py:")
    assert shown == files or f"… {files - shown} more" in detail


def test_hits_behind_much_context_are_told() -> None:
    body = [f"lib/tides.py-{n}-    step({n})" for n in range(31, 700)]
    detail = describe("grep", "\n".join(["lib/tides.py:30:one", *body, "lib/tides.py:700:two"]), pattern="o").detail
    assert "700: two" in detail
