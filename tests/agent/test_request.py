"""The projection: what is sent keeps every rule, what was sent stays as it was, appending costs only what is new."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.agent.model_request import Projection, project
from perdure.core import rules
from perdure.core.messages import Entry, Message, TextPart, ToolCall, assistant, tool_result, user
from support.histories import broken_histories, valid_histories


def _entries(messages: list[Message]) -> list[Entry]:
    return [Entry(i, m) for i, m in enumerate(m for m in messages if m.role not in ("system", "developer"))]


def _sent(projection: Projection) -> list[Message]:
    return [e.message for e in projection.entries()]


@pytest.mark.spec("K3")
@given(broken_histories())
def test_whatever_the_view_what_is_sent_keeps_every_rule(history: list[Message]) -> None:
    assert rules.violations([e.message for e in project(_entries(history))]) == []


@pytest.mark.spec("L4")
@given(broken_histories(), st.data())
def test_asking_in_between_sends_the_same_as_asking_once(history: list[Message], data: st.DataObject) -> None:
    entries = _entries(history)
    step_by_step = Projection()
    for entry in entries:
        step_by_step.append(entry)
        if data.draw(st.booleans()):
            step_by_step.entries()
    assert _sent(step_by_step) == [e.message for e in project(entries)]


@given(valid_histories())
def test_a_valid_view_is_sent_as_the_very_same_entries(history: list[Message]) -> None:
    entries = _entries(history)
    assert all(a is b for a, b in zip(project(entries), entries, strict=True))


@pytest.mark.spec("L4")
def test_a_new_turn_never_touches_what_was_sent_before() -> None:
    projection = Projection(_entries([user("a"), user("b"), assistant("c")]))
    before = list(projection.entries())
    projection.append(Entry(3, user("d")))
    assert projection.entries()[: len(before)] == before


@pytest.mark.spec("J4")
def test_an_interrupted_call_is_sent_with_a_stub_until_its_turn_is_over() -> None:
    call = ToolCall("call_1", "terminal")
    projection = Projection(_entries([user("a"), assistant(None, (call,))]))
    assert [m.role for m in _sent(projection)] == ["user", "assistant", "tool"]
    projection.append(Entry(2, tool_result("call_1", "real")))
    assert [m.text for m in _sent(projection)] == ["a", "", "real"]


@pytest.mark.spec("J14")
def test_a_recalled_passage_stands_beside_its_message_and_nowhere_else() -> None:
    first, second = project(_entries([user("what was it?"), assistant("this")]), sidecars={0: "recalled: port 8080"})
    assert first.message.parts == (TextPart("what was it?"), TextPart("recalled: port 8080"))
    assert second.message.text == "this"
