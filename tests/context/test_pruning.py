"""Tool output outside head and tail becomes one informative line each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.summary_input import shorten_json, transcribe
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user
from support.histories import JSON


def called(name: str, result: str, **arguments: Any) -> list[Message]:
    call = ToolCall("call_1", name, json.dumps(arguments))
    return [assistant(None, (call,)), tool_result("call_1", result)]


def blocks(messages: Sequence[Message]) -> list[str]:
    told = transcribe([Entry(i, m) for i, m in enumerate(messages)])
    assert told.sizes == [len(block.encode()) for block in told.blocks]
    return told.blocks


def pruned_line(name: str, result: str, **arguments: Any) -> str:
    return blocks(called(name, result, **arguments))[-1]


@pytest.mark.spec("D1")
def test_a_command_is_told_with_its_exit_code_and_length() -> None:
    line = pruned_line("terminal", "FAILED test_a\n" * 2_999 + "exit code: 1", command="pytest tests/")
    assert line.startswith("[terminal] ran `pytest tests/` → exit 1, 3,000 lines")


@pytest.mark.spec("D1")
@pytest.mark.parametrize(
    ("name", "arguments", "result", "wanted"),
    [
        (
            "read_file",
            {"path": "src/app.py", "offset": 10, "limit": 50},
            "x = 1\n" * 50,
            "src/app.py (offset 10, limit 50)",
        ),
        ("grep", {"pattern": "def main"}, "src/a.py:1\n" * 40, "searched `def main`"),
        ("fetch", {"url": "https://example.test/doc"}, "text " * 100, "https://example.test/doc"),
        ("odd", {"depth": 3, "all": True}, "text " * 100, "depth=3, all=true"),
        (
            "terminal",
            {"command": "make"},
            "cc a.c\n" * 50 + "a.c:3: error: no such file\nmake: stopped",
            "no such file",
        ),
        ("terminal", {"command": "make"}, '{"exit_code": 2, "output": "' + "x" * 300 + '"}', "exit 2"),
        ("terminal", {"command": "npm t"}, "ok\n" * 99 + "全部失败: 3 个用例\n", "全部失败"),
    ],
)
def test_the_line_says_what_the_call_was_about(name: str, arguments: dict[str, Any], result: str, wanted: str) -> None:
    line = pruned_line(name, result, **arguments)
    assert wanted in line
    assert "\n" not in line
    assert len(line) < 400


@pytest.mark.spec("D1")
def test_shortened_arguments_keep_numbers_and_booleans() -> None:
    given_in = {"n": 12345678901, "ratio": 0.5, "force": True, "none": None, "text": "y" * 5_000, "list": [1] * 100}
    out = json.loads(shorten_json(json.dumps(given_in)))
    assert {k: out[k] for k in ("n", "ratio", "force", "none")} == {
        k: given_in[k] for k in ("n", "ratio", "force", "none")
    }
    assert out["list"][:20] == [1] * 20


@pytest.mark.spec("D1")
@given(st.dictionaries(st.text(max_size=8), JSON | st.text(min_size=400, max_size=600), max_size=4))
def test_shortened_arguments_are_always_valid_json_with_the_same_keys(value: dict[str, Any]) -> None:
    out = json.loads(shorten_json(json.dumps(value)))
    assert out.keys() == value.keys()


@pytest.mark.spec("D1")
@pytest.mark.parametrize("arguments", ["not json " * 90, "[1, 2", "", "null", "[" * 3_000])
def test_arguments_that_are_no_json_become_some(arguments: str) -> None:
    json.loads(shorten_json(arguments))


@pytest.mark.spec("D1", "D5")
@pytest.mark.parametrize("arguments", ['{"a":' * 100_000, "[" * 100_000, '{"a":' + "[" * 900 + "]" * 900 + "}"])
def test_a_call_nested_too_deep_to_be_read_is_told_all_the_same(arguments: str) -> None:
    call = ToolCall("c1", "plot", arguments)
    told = blocks([assistant("Drawing.", (call,)), tool_result("c1", "drawn " * 90)])
    assert told[0].startswith("ASSISTANT: Drawing.\n→ calls plot ")
    assert told[1].startswith("[plot] ")
    assert sum(map(len, told)) < 2_000


@pytest.mark.spec("D1", "E9")
def test_a_key_in_an_output_is_gone_before_the_line_is_cut() -> None:
    key = "sk-ant-api03-" + "Ab3dE5fG7h" * 9
    line = pruned_line(
        "terminal", f"{'noise ' * 200}\nerror: key {key} was refused", command=f"curl -H 'x-api-key: {key}'"
    )
    told = "\n".join(blocks(called("terminal", "x" * 900, command=f"login {key}")))
    for text in (line.split("→")[1], told):
        assert key[:24] not in text


@pytest.mark.spec("D1")
def test_blocks_tell_who_spoke_and_leave_handoffs_out() -> None:
    handoff = Message("user", "what was before", kind="handoff")
    assert blocks([handoff, user("do it"), *called("terminal", "fine", command="ls")]) == [
        "USER: do it",
        'ASSISTANT: → calls terminal {"command": "ls"}',
        "[terminal] result: fine",
    ]


@pytest.mark.spec("D1")
def test_of_blocks_alike_the_last_tells_what_came_of_it() -> None:
    long = "all is well here\n" * 90
    calls = [m for path in ("a.py", "b.py", "c.py") for m in called("read_file", long, path=path)]
    told = blocks([*calls, *called("terminal", "fine", command="ls"), *called("terminal", "fine", command="ls")])
    assert [line for line in told if not line.startswith("ASSISTANT")] == [
        "[read_file] a.py → the same output as a later call",
        "[read_file] b.py → the same output as a later call",
        '[read_file] c.py → 90 lines, last: "all is well here"',
        "[terminal] result: fine",
        "[terminal] result: fine",
    ]


@pytest.mark.spec("D1")
@pytest.mark.parametrize("content", [None, "", "   ", ()])
def test_empty_content_never_crashes(content: Any) -> None:
    messages = [
        Message("user", content),
        Message("assistant", content, kind="assistant"),
        Message("tool", content, kind="tool"),
    ]
    blocks(messages)
