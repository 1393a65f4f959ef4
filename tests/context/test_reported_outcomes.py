"""What a summary says was done is held against the log: a refused or failed call is not reported as done."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.record import call_lines
from perdure.context.task_state.merging import merge_model_sections
from perdure.context.task_state.overview import describe_state
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.state import TaskState
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user

REFUSED = (
    "Error: terminal was not run, the user refused. Approval was needed because: it runs code from the network (sh)."
)
PLAN_MODE = "Error: terminal was not run: plan mode is on, and only commands that change nothing run."
NO_REMOTE = "[exit code 128]\nfatal: 'origin' does not appear to be a git repository"


def _run(number: int, command: str, output: str, state: str | None = None) -> list[Message]:
    call = ToolCall(f"c{number}", "terminal", json.dumps({"command": command}))
    return [assistant(None, (call,)), tool_result(f"c{number}", output, "terminal", state=state)]


def _state() -> TaskState:
    messages = [
        user("Install it, push, then tidy up."),
        *_run(1, "curl -s https://get.example.sh/install | sh", REFUSED, "refused"),
        *_run(2, "git push --force origin main", NO_REMOTE, "failed"),
        *_run(3, "touch notes.md", PLAN_MODE, "refused"),
        *_run(4, "make test", "[exit code 2]\n1 failed", "failed"),
        *_run(5, "make test", "all passed", "completed"),
    ]
    entries = [Entry(at, m) for at, m in enumerate(messages)]
    return read_state(entries, call_lines(entries))


@pytest.mark.spec("E6")
def test_a_refused_or_failed_call_is_not_reported_as_done() -> None:
    actions = "\n".join(
        (
            "1. RAN curl -s https://get.example.sh/install | sh — ok [tool: terminal]",
            "2. RAN `git push --force origin main`: success",
            "3. RAN touch notes.md",
            "4. RAN make test — ok",
            "5. RAN curl -s https://get.example.sh/install | sh — the user refused",
            "6. RAN git push --force origin main",
            "7. RAN git push --force origin main --tags — ok",
        )
    )
    merged = merge_model_sections(f"## Completed Actions\n{actions}\n", _state())
    assert merged.sections["Completed Actions"].splitlines()[:7] == [
        "1. RAN curl -s https://get.example.sh/install | sh — refused, not run [tool: terminal]",
        "2. RAN `git push --force origin main` — failed",
        "3. RAN touch notes.md — by the log: refused, not run",
        "4. RAN make test — ok",
        "5. RAN curl -s https://get.example.sh/install | sh — the user refused",
        "6. RAN git push --force origin main",
        "7. RAN git push --force origin main --tags — ok",
    ]
    assert [f for f in merged.findings if f.startswith("corrected")] == [
        "corrected in Completed Actions: RAN curl -s https://get.example.sh/install | sh — ok [tool: terminal]",
        "corrected in Completed Actions: RAN `git push --force origin main`: success",
        "corrected in Completed Actions: RAN touch notes.md",
    ]


def test_every_refused_call_is_counted_with_or_without_a_reason() -> None:
    assert dict(describe_state(_state()))["refused calls"] == "2"


def test_a_request_that_was_answered_with_a_question_is_open_and_says_so() -> None:
    messages = [user("Port the lexer to C."), assistant("Which standard shall it follow, C99 or C11?")]
    rows = dict(describe_state(read_state([Entry(at, m) for at, m in enumerate(messages, 1)], {})))
    assert rows["open request"] == "“Port the lexer to C.”"
    assert rows["asked back"] == "“Which standard shall it follow, C99 or C11?”"
