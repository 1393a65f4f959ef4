"""The record of an edit reads like the edit: branches keep their `else`, both sides have room, omissions are marked."""

from __future__ import annotations

import json

from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.compose import openings
from perdure.context.tool_calls.describe import describe_call
from perdure.core.messages import ToolCall


def edit(old: str, new: str) -> CallLine:
    arguments = {"file_path": "tides.go", "old_string": old, "new_string": new}
    return describe_call(ToolCall("1", "Edit", json.dumps(arguments)), "The file tides.go has been updated.")


def branches(name: str) -> str:
    return f"if isSpring {{\n\t{name} = springLevel(day)\n}} else {{\n\t{name} = neapLevel(day)\n}}\n"


class TestBranches:
    def test_the_second_of_two_alike_keeps_its_else(self) -> None:
        line = edit("low := level(day)\nhigh := level(day)\n", branches("low") + branches("high"))
        rows = [row.strip() for row in line.detail.split("\n")]
        at = rows.index("+ high = springLevel(day)")
        assert rows[at : at + 3] == ["+ high = springLevel(day)", "+ } else {", "+ high = neapLevel(day)"]

    def test_an_else_that_was_there_before_stands_between_new_lines(self) -> None:
        old = "if isSpring {\n\tlow = 1\n} else {\n\tlow = 2\n}\n"
        assert "+ low = 3\n  + } else {\n  + low = 4" in edit(old, old.replace("1", "3").replace("2", "4")).detail

    def test_a_branch_for_which_there_is_no_room_is_marked(self) -> None:
        names = ("north", "south", "east", "west", "quay", "lock", "pier", "mole")
        body = "".join(branches(f"{name}LevelOfTheHarbourAtTheTimeOfTheHighestTide") for name in names)
        rows = edit("level(day)\n", body).detail.split("\n")
        at = next(n for n, row in enumerate(rows) if "springLevel" in row and "else" not in rows[n + 1])
        assert rows[at].endswith(" …")


def test_the_opening_of_an_edit_that_removes_much_has_both_sides() -> None:
    removed = "".join(f"func level{n}() int\n" for n in range(6))
    line = edit(removed, "func levels() []int\nfunc Highest(levels []int) int\n")
    opening = next(iter(openings(line.detail)))
    assert "− func level0() int" in opening
    assert "+ func levels() []int" in opening


def test_a_line_that_breaks_off_is_marked() -> None:
    line = edit("const items = all", "const items = all.filter(it =>\n  it.level > 3)").line
    assert line.endswith("it => …")
