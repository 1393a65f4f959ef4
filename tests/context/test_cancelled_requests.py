"""Requests that the user takes back: closed whatever the wording, never resumed; and what only sounds like it."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.record import call_lines
from perdure.context.record.sections import write_sections
from perdure.context.record.state import read_state
from perdure.context.record.task import TaskState
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user


def state_of(*messages: Message) -> TaskState:
    entries = [Entry(n, m) for n, m in enumerate(messages, 1)]
    return read_state(entries, call_lines(entries))


def status_after(request: str, message: str, *, reply: str = "Which part first?") -> str:
    state = state_of(user("Hello."), assistant("Hi."), user(request), assistant(reply), user(message))
    return next(r.status for r in state.requests if r.text == request)


@pytest.mark.spec("E2", "E1c")
@pytest.mark.parametrize(
    "message",
    [
        "Never mind.",
        "Forget about the mailer.",
        "Actually, drop the mailer.",
        "Please cancel the mailer port.",
        "No need for the mailer anymore.",
        "Let's not do the mailer.",
        "We decided against the mailer, sorry.",
        "The mailer is off the table now.",
        "I changed my mind about the mailer, leave it.",
        "You don't have to port the mailer any more.",
        "Leave it, we no longer want the mailer.",
        "Vergiss den Mailer.",
    ],
)
def test_a_request_that_is_taken_back_is_closed(message: str) -> None:
    assert status_after("Please port the mailer to asyncio.", message) == "cancelled"


@pytest.mark.spec("E2")
@pytest.mark.parametrize(
    ("request_text", "message"),
    [
        ("Please port the mailer to asyncio.", "Forget about the ledger."),
        ("Please port the mailer and the ledger.", "Skip the mailer."),
        ("Write the export.", "We don't need tests for the export."),
        ("Fix the login page.", "Don't do the styling of the login page."),
        ("Fix the login page.", "Don't start with the login page until I say so."),
        ("Fix the login page.", "Can we drop the login page?"),
        ("Migrate the users.", "Never use floats for money."),
    ],
)
def test_what_takes_back_something_else_or_a_part_leaves_the_request_open(request_text: str, message: str) -> None:
    assert status_after(request_text, message) == "open"


@pytest.mark.spec("E2")
def test_the_message_stays_a_request_because_it_may_ask_for_work() -> None:
    change, cancel = "I want to change my flight reservation.", "Actually, cancel the reservation."
    state = state_of(user(change), assistant("To which day?"), user(cancel))
    assert [(r.text, r.status) for r in state.requests] == [(change, "cancelled"), (cancel, "open")]


@pytest.mark.spec("E2")
@pytest.mark.parametrize("message", ["Forget about the mailer.", "Never mind."])
def test_continue_does_not_resume_what_was_cancelled_after_a_promise(message: str) -> None:
    state = state_of(
        user("Port the mailer to asyncio."),
        assistant("I will do that next."),
        user(message),
        assistant("All right."),
        user("continue"),
    )
    assert state.open_requests == () or all("Port" not in r.text for r in state.open_requests)


@pytest.mark.spec("E2", "E1c")
def test_plan_and_goal_forget_what_was_cancelled() -> None:
    items = [
        {"text": "port the mailer to asyncio", "status": "pending"},
        {"text": "rename tables", "status": "pending"},
    ]
    call = ToolCall("c1", "todo", json.dumps({"items": items}))
    state = state_of(
        user("Port the mailer to asyncio."),
        assistant(None, (call,)),
        tool_result(call.id, "1. [ ] port the mailer to asyncio\n2. [ ] rename tables", "todo"),
        assistant("Which part first?"),
        user("Rename the tables of the ledger as well."),
        assistant("Which ones?"),
        user("Forget about the mailer."),
    )
    sections = write_sections(state)
    assert "Port the mailer" not in "\n".join(sections.values())
    assert [i.text for i in state.open_plan] == ["rename tables"]
    assert "Rename the tables" in sections["Active Task"]
