"""The digest: a handoff that code alone writes, good enough to work from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.context.analysis import actions_of, analyze_message, outcome_of, verb_of
from perdure.context.digest import build_digest
from perdure.context.handoff import SECTIONS
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user


def step(number: int, said: str, tool: str, result: str, **arguments: object) -> list[Message]:
    call_id = f"call_{number}"
    return [assistant(said, (ToolCall(call_id, tool, json.dumps(arguments)),)), tool_result(call_id, result)]


def session() -> list[Message]:
    return [
        user("Please fix the flaky upload test in this repository."),
        *step(1, "Let me look at the test first.", "read_file", "def test_upload(): ...", path="tests/test_upload.py"),
        *step(2, "I will run it.", "terminal", "E  TimeoutError: no reply\n1 failed in 3.1s", command="pytest tests/"),
        assistant("The root cause is that the fake server sleeps, so I'll use an event instead of a sleep."),
        user("Does that slow the suite down?"),
        assistant("No. The event returns at once, so the suite gets faster."),
        *step(
            3, "Now the change itself.", "edit_file", "ok", path="tests/fake_server.py", old="sleep(2)", new="wait()"
        ),
        *step(4, "Run it again.", "terminal", "12 passed in 0.8s", command="pytest tests/"),
        *step(5, "Deploying to look at it live.", "deploy", "Error: quota exceeded for project blue-17", target="blue"),
        *step(
            6,
            "Note what is left.",
            "todo",
            "saved",
            todos=[{"content": "ask for more quota", "status": "pending"}, {"content": "fix", "status": "completed"}],
        ),
    ]


@pytest.mark.spec("E1")
@pytest.mark.parametrize(
    ("command", "result", "wanted"),
    [
        ("cd /srv/shop && make", "done", "Folder: /srv/shop"),
        ("git switch -c fix/cents", "", "Branch: fix/cents"),
        ("git checkout -b fix/cents", "Switched to a new branch 'fix/cents'", "Branch: fix/cents"),
        ("git status", "On branch release-2\nnothing to commit", "Branch: release-2"),
        ("cd app; git switch main", "Switched to branch 'main'", "Folder: app; Branch: main"),
    ],
)
def test_the_state_says_where_commands_last_went(command: str, result: str, wanted: str) -> None:
    digest = build_digest([user("go"), *step(1, "", "terminal", result, command=command)], budget_chars=8_000)
    assert f"- {wanted}" in digest["Active State"].split("\n")


@pytest.mark.spec("E1")
def test_a_file_put_back_and_a_folder_that_was_not_there_say_nothing_of_where() -> None:
    messages = [
        *step(1, "", "terminal", "", command="git checkout -- src/app.py"),
        *step(2, "", "terminal", "bash: cd: /nowhere: No such file or directory", command="cd /nowhere"),
    ]
    state = build_digest([user("go"), *messages], budget_chars=8_000).get("Active State", "")
    assert "Branch:" not in state
    assert "Folder:" not in state


@pytest.mark.spec("F1", "E1")
def test_every_section_is_one_of_the_thirteen_and_says_what_happened() -> None:
    digest = build_digest(session(), budget_chars=8_000)
    assert set(digest) <= set(SECTIONS)
    assert "flaky upload test" in digest["Goal"]
    assert "event instead of a sleep" in digest["Key Decisions"]
    assert "Does that slow the suite down?" in digest["Resolved Questions"]
    assert "The event returns at once" in digest["Resolved Questions"]
    assert "ask for more quota" in digest["Remaining Work"]
    assert "fix (completed)" not in digest["Remaining Work"]
    assert "12 passed" in digest["Active State"]
    assert "tests/fake_server.py" in digest["Active State"]


@pytest.mark.spec("E3")
def test_completed_actions_are_numbered_with_target_outcome_and_tool() -> None:
    lines = build_digest(session(), budget_chars=8_000)["Completed Actions"].split("\n")
    assert [line.split(". ", 1)[0] for line in lines] == [str(n) for n in range(1, len(lines) + 1)]
    edited = next(line for line in lines if "fake_server" in line)
    assert edited.split(". ", 1)[1].startswith("EDITED tests/fake_server.py — ")
    assert edited.endswith("— ok; “Now the change itself.” [tool: edit_file]")
    assert sum("pytest tests/" in line for line in lines) == 1, "calls on one target share a line"


@pytest.mark.spec("E1", "F1")
def test_blocked_has_the_exact_error_and_forgets_what_was_overcome() -> None:
    blocked = build_digest(session(), budget_chars=8_000)["Blocked"]
    assert "Error: quota exceeded for project blue-17" in blocked
    assert "pytest" not in blocked


@pytest.mark.spec("F1", "E5")
def test_it_builds_on_the_previous_handoff_and_continues_its_numbers() -> None:
    previous = {
        "Goal": "Make the suite stable.",
        "Completed Actions": "1. READ setup.cfg — ok [tool: read_file]\n2. RAN make — ok [tool: terminal]",
        "Constraints & Preferences": "- “Never push to main.”",
        "Critical Context": "- The quota is 40 runs a day.",
        "Key Decisions": "- Use pytest rather than unittest.",
        "Relevant Files": "- setup.cfg: the options",
    }
    digest = build_digest(session(), previous=previous, budget_chars=9_000)
    assert digest["Goal"] == "Make the suite stable."
    for name in ("Constraints & Preferences", "Critical Context", "Relevant Files"):
        assert previous[name] in digest[name]
    assert "Use pytest rather than unittest." in digest["Key Decisions"]
    assert digest["Completed Actions"].startswith("1. READ setup.cfg")
    assert "\n3. " in digest["Completed Actions"]


@pytest.mark.spec("F1", "C9")
@settings(max_examples=40, deadline=None)
@given(room=st.integers(0, 6_000))
def test_it_keeps_within_its_room(room: int) -> None:
    assert sum(map(len, build_digest(session() * 5, budget_chars=room).values())) <= room


@pytest.mark.spec("E9")
def test_secrets_are_redacted() -> None:
    secret = "sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 4
    digest = build_digest([user(f"use {secret}"), *step(1, f"with {secret}", "run", f"used {secret}", command="go")])
    assert digest
    assert all(secret not in text for text in digest.values())


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [tool_result("lost", "a result without its call")],
        [assistant(None, (ToolCall("", "", "{not json"),))],
        [user(""), assistant("")],
        [Message.from_dict({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]})],
    ],
)
def test_odd_histories_never_fail(messages: list[Message]) -> None:
    build_digest(messages, budget_chars=2_000)


@pytest.mark.spec("E4")
def test_a_chat_in_another_language_is_told_in_it() -> None:
    chat = [
        user("下周去东京,预算一共八千元。你能帮我安排吗？"),
        assistant("可以。建议周二出发,因为周中的机票便宜很多。"),
        user("酒店住哪里好呢？"),
    ]
    digest = build_digest(chat, budget_chars=4_000)
    assert "下周去东京" in digest["Goal"]
    assert "建议周二出发" in digest["Resolved Questions"]
    assert "酒店住哪里好呢" in digest["Pending User Asks"]


@pytest.mark.parametrize(
    ("text", "outcome", "is_error"),
    [
        ("3 failed, 9 passed in 2s", "3 failed, 9 passed in 2s", True),
        ("12 passed", "12 passed", False),
        ("line\n" * 50 + "exit code 2\nmake: *** error 2", "make: *** error 2 (52 lines)", True),
        ("Traceback (most recent call last):\n  x\nValueError: bad", "ValueError: bad", True),
        ("", "nothing returned", False),
        ("errors are handled here\n" * 60, "errors are handled here (61 lines)", False),
    ],
)
def test_outcomes_are_read_off_the_result(text: str, outcome: str, is_error: bool) -> None:
    assert outcome_of(text) == (outcome, is_error)


@pytest.mark.parametrize(
    ("tool", "verb"),
    [("Edit", "edited"), ("str_replace_editor", "edited"), ("Bash", "ran"), ("book_flight", "wrote"), ("x", "called")],
)
def test_a_tool_is_known_by_its_name(tool: str, verb: str) -> None:
    assert verb_of(tool) == verb


def test_a_call_without_result_is_told_as_such() -> None:
    actions = actions_of([assistant("Start.", (ToolCall("c", "terminal", '{"command": "sleep 9"}'),))])
    assert actions[0].outcome == "no result yet"


@pytest.mark.spec("E9")
@pytest.mark.parametrize("pad", [91, 217, 280])
def test_a_secret_that_a_line_is_cut_through_leaves_no_half(pad: int) -> None:
    key, url = "sk-ant-api03-" + "Zq7W" * 20, "postgres://bob:s3cr3tPassw0rd@db.local/x"
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Start {'w ' * (pad // 2)}{key} and {url}"}]
    for n in range(40):
        command = f"{'x ' * (pad // 2)}curl {url} -k {key} {n}"
        function = {"name": "terminal", "arguments": json.dumps({"command": command})}
        result = f"{'e ' * pad}{url} {key}\n{'out ' * 900}\nerror: {'e ' * (pad // 3)}{url} failed {key}"
        messages += [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": result},
        ]
    messages += [{"role": "assistant", "content": "Half of it is done."}, {"role": "user", "content": "next?"}]
    handoff = perdure.compress(messages, context_length=32_000).handoff
    assert not [piece for piece in ("s3cr3tPass", "tPassw0rd", "Zq7WZq7W") if piece in handoff]


def test_an_outcome_goes_on_where_its_first_line_says_too_little() -> None:
    outcome, is_error = outcome_of('{\n  "status": "every parcel was delivered"\n}')
    assert "every parcel was delivered" in outcome
    assert not is_error


@pytest.mark.spec("E1", "E3")
@pytest.mark.parametrize(
    ("text", "outcome", "is_error"),
    [
        ("[exit 0]\n3 files and no error", "3 files and no error", False),
        ("[exit 1]\nTraceback:\n  raise ValueError(f'{x}')\nValueError: not 60000", "ValueError: not 60000", True),
        ("Patched a.py:\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2", "`return 1` → `return 2`", False),
        ("Patched a.py:\n@@ -1 +1,2 @@\n import os\n+import re", "added `import re`", False),
    ],
)
def test_an_outcome_tells_what_changed_or_went_wrong(text: str, outcome: str, is_error: bool) -> None:
    assert outcome_of(text) == (outcome, is_error)


@pytest.mark.spec("E1")
def test_reading_code_that_raises_errors_is_no_problem_but_a_refused_read_is() -> None:
    source = "def price(grams):\n    if grams > 10_000:\n        raise ValueError('too heavy')\n    return 390\n"
    for text, is_blocked in ((source, False), ("Error: no such file: rates.py", True)):
        messages = [user("Look."), *step(1, "First the table.", "read_file", text, path="rates.py")]
        assert ("Blocked" in build_digest(messages)) == is_blocked


@pytest.mark.spec("E1")
def test_a_question_that_is_answered_in_sight_is_not_pending() -> None:
    asked = [user("Which prices are affected?"), *step(1, "Let me see.", "read_file", "zone,cents", path="rates.csv")]
    assert "Which prices" in build_digest(asked)["Pending User Asks"]
    answer = analyze_message(assistant("Eight of fifteen are one cent too low."))
    assert "Pending User Asks" not in build_digest(asked, after=[answer])


@pytest.mark.spec("E1")
def test_a_goal_is_told_in_whole_sentences_where_they_fit() -> None:
    request = "The tests fail since this morning. Find out why and fix it. " + "Mind the rates of every zone. " * 40
    goal = build_digest([user(request)], budget_chars=2_000)["Goal"]
    assert goal.startswith("The conversation began with: “The tests fail since this morning. Find out why and fix it.")
    assert goal.endswith(".”")


@pytest.mark.spec("F1", "E5")
def test_nothing_a_previous_handoff_still_waits_for_or_settled_is_discarded() -> None:
    before = {
        "Completed Actions": "41. EDITED src/old.py — done [tool: edit]",
        "Blocked": "- the staging key has expired",
        "Key Decisions": "- SQLite, because it needs no server",
        "Resolved Questions": "- “Which port?” — 8443",
        "Pending User Asks": "- “Can we drop Python 3.9?”",
    }
    call = ToolCall("c", "write_file", '{"path": "src/new.py"}')
    sections = build_digest([user("Write it."), assistant(None, (call,)), tool_result("c", "ok")], previous=before)
    assert {name: text in sections.get(name, "") for name, text in before.items()} == dict.fromkeys(before, True)
    assert "\n42. " in sections["Completed Actions"], "the numbers go on"
