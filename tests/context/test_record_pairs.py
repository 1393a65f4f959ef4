"""Calls and results that do not come in pairs: logged twice, without a result, or without a call."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.record import call_lines, draw_record
from perdure.context.tool_calls.describe import describe_call
from perdure.context.tool_calls.wrapped_calls import is_wrapped_in
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user
from perdure.core.rules import MISSING_RESULT

_CODE = "rates = load('rates.csv')\nfor rate in rates:\n    print(rate, \"\\n\")\n"
_PASSED_ON = f"Calling tools:\n[{{'id': 'call_7', 'function': {{'name': 'interpreter', 'arguments': {_CODE!r}}}}}]"


def _call(name: str, call_id: str, **arguments: str) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


def _entries(*messages: Message) -> list[Entry]:
    return [Entry(n, m) for n, m in enumerate(messages)]


def test_a_call_that_was_passed_on_by_another_one_is_told_once_with_its_result() -> None:
    for stub in ((), (tool_result("c1", MISSING_RESULT),)):
        entries = _entries(
            user("Print the rates."),
            assistant("All of them:", (_call("python", "c1", code=_CODE),)),
            *stub,
            assistant("", (_call("call", "c2", raw=_PASSED_ON),)),
            tool_result("c2", "Call id: call_7\nObservation:\nExecution logs:\n3.9\n4.5"),
            assistant("There are two."),
        )
        lines = call_lines(entries)
        assert [line.name for line in lines.values()] == ["python"]
        record = draw_record(entries, budget=4_000)
        assert "no result recorded" not in record
        assert "Calling tools" not in record
        assert record.count("load('rates.csv')") <= 1
        assert "→ 3.9 | 4.5" in record


def test_calls_that_only_follow_each_other_stay_two() -> None:
    entries = _entries(
        assistant("", (_call("python", "c1", code=_CODE),)),
        assistant("", (_call("python", "c2", code="print('something else that is longer than the first')" * 3),)),
        tool_result("c2", "something else"),
    )
    assert len(call_lines(entries)) == 2
    assert not is_wrapped_in(_call("ls", "c1", path="a"), _call("run", "c2", command="ls a b c d"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"command": "pytest tests/test_rates.py"}, {"command": "pip install rates && pytest tests/test_rates.py"}),
        ({"path": "a.py", "content": _CODE}, {"path": "b.py", "content": f"{_CODE}print(len(rates))\n"}),
        ({"command": "grep -rn load_rates src"}, {"prompt": "Run grep -rn load_rates src, then list all callers."}),
    ],
)
def test_a_longer_call_after_one_without_a_result_is_no_wrapper(first: dict[str, str], second: dict[str, str]) -> None:
    entries = _entries(
        assistant("", (_call("tool", "c1", **first),)),
        assistant("", (_call("tool", "c2", **second),)),
        tool_result("c2", "3 passed"),
    )
    assert list(call_lines(entries)) == [(0, "c1"), (1, "c2")]


def test_an_interpreter_fails_with_the_reason_of_its_error() -> None:
    result = (
        "Call id: call_1\nError:\nCode execution failed at line 'x = load(1)' due to: TypeError: load() takes no"
        " arguments\nNow let's retry: take care not to repeat previous errors!"
    )
    line = describe_call(_call("python", "c1", code="x = load(1)"), result)
    assert line.outcome == "failed"
    assert line.line.endswith("→ FAILED: TypeError: load() takes no arguments")
