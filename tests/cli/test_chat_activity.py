"""What a chat shows while it works: live output, the plan, delegated agents, waits for a retry."""

from __future__ import annotations

import json

import pytest

from perdure.cli.chat.activity import Activity
from perdure.cli.chat.transcript import ChatTranscript
from perdure.cli.style import Style, cut_row
from perdure.core.errors import ErrorVerdict
from perdure.core.events import (
    CallStarted,
    Event,
    HelperFinished,
    HelperStarted,
    RetryScheduled,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.core.messages import Message, ToolCall

PLAIN = Style(is_color=False)
BUILD = ToolCall("c1", "terminal", json.dumps({"command": "make all"}))
TURN = TurnStarted("t_1", "s_1", "c_1")


class HandClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _activity(*events: Event, clock: HandClock | None = None) -> Activity:
    activity = Activity(PLAIN, tool_lines=6, clock_s=clock or HandClock())
    for event in (TURN, *events):
        activity.take(event)
    return activity


def _written(*events: Event) -> str:
    parts: list[str] = []
    transcript = ChatTranscript(parts.append, width=lambda: 80, ink=PLAIN)
    for event in (TURN, *events):
        transcript.show(event)
    return "".join(parts)


def _plan(*steps: tuple[str, str]) -> ToolFinished:
    items = [{"text": text, "status": status} for text, status in steps]
    call = ToolCall("c9", "todo", json.dumps({"items": items}))
    return ToolFinished(call, Message("tool", "1. …", tool_call_id="c9", name="todo"), 0.0)


def _done(call: ToolCall, helper: str = "") -> ToolFinished:
    return ToolFinished(call, Message("tool", "[exit 0]\nok", tool_call_id=call.id), 1.0, helper=helper)


def test_a_running_command_shows_its_first_and_last_lines() -> None:
    first = "".join(f"line {n}\n" for n in range(1, 100))
    last = "".join(f"line {n}\n" for n in range(496, 501))
    lines = _activity(ToolStarted(BUILD), ToolOutput(BUILD, first, last, 500)).lines(80)
    assert lines == [
        "● terminal make all … 0 s · 500 lines",
        "  line 1",
        "  … 494 more lines",
        *(f"  line {n}" for n in range(496, 501)),
    ]


def test_a_short_output_is_shown_whole_while_it_runs_and_gone_afterwards() -> None:
    activity = _activity(ToolStarted(BUILD), ToolOutput(BUILD, "one\ntwo\n", "", 2))
    assert activity.lines(80)[1:] == ["  one", "  two"]
    activity.take(_done(BUILD))
    assert activity.lines(80) == []


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_no_row_of_running_work_is_wider_than_the_terminal(width: int) -> None:
    long = ToolCall("c2", "terminal", json.dumps({"command": "echo " + "数" * 90}))
    events = [
        HelperStarted("h1", "look at " + "everything " * 20),
        ToolStarted(long, helper="h1"),
        ToolStarted(BUILD),
        ToolOutput(BUILD, "y" * 900, "", 0),
        _plan(("a step " * 40, "in_progress")),
    ]
    for line in _activity(*events).lines(width):
        assert cut_row(line, width) == line


def test_a_retry_counts_down_and_ends_with_the_next_event() -> None:
    clock = HandClock()
    verdict = ErrorVerdict("rate_limit", "slow down", 429)
    activity = _activity(RetryScheduled(verdict, 4.0, 2), clock=clock)
    assert activity.lines(80) == ["◌ rate limit: trying again in 4 s (attempt 2)"]
    clock.now_s += 2.5
    assert activity.lines(80) == ["◌ rate limit: trying again in 2 s (attempt 2)"]
    clock.now_s += 9
    assert activity.lines(80) == ["◌ rate limit: trying again (attempt 2)"]
    activity.take(RetryScheduled(ErrorVerdict("transport"), 1.0, 3))
    assert activity.lines(80) == ["◌ connection failure: trying again in 1 s (attempt 3)"]
    activity.take(TextDelta("At last."))
    assert activity.lines(80) == []


def test_a_retry_stays_on_screen_as_a_line_of_its_own() -> None:
    verdict = ErrorVerdict("overloaded", "busy", 529)
    text = _written(CallStarted("m", 1, 2, 3), RetryScheduled(verdict, 1.2, 2), TextDelta("Hi.\n\n"))
    assert text.startswith("· overloaded: trying again in 2 s (attempt 2)\n")


def test_the_plan_is_drawn_while_steps_are_open_and_printed_where_some_remain() -> None:
    first = _plan(("Read it", "completed"), ("Fix it", "in_progress"), ("Test it", "pending"))
    activity = _activity(first)
    assert activity.lines(80) == ["plan: 1 of 3 done · now: Fix it", "  ✓ Read it", "  ▸ Fix it", "  · Test it"]
    activity.end()
    assert activity.lines(80) == [], "nothing is drawn between turns"
    left = _written(first, TurnFinished("completed", ""))
    assert left.count("plan: 1 of 3 done · now: Fix it") == 2
    assert "  · Test it\n" in left
    done = _written(_plan(("Read it", "completed")), TurnFinished("completed", ""))
    assert done == "● plan: 1 of 1 done\n\n"


def test_the_plan_of_another_conversation_is_not_drawn() -> None:
    activity = _activity(_plan(("Fix it", "in_progress")))
    activity.take(TurnStarted("t_2", "s_2", "c_2"))
    assert activity.lines(80) == []


def test_delegated_agents_are_numbered_and_their_steps_belong_to_them() -> None:
    first, second = ToolCall("c1", "terminal", '{"command": "ls a"}'), ToolCall("c1", "terminal", '{"command": "ls b"}')
    events = [
        HelperStarted("h1", "look at a"),
        HelperStarted("h2", "look at b"),
        ToolStarted(first, helper="h1"),
        ToolStarted(second, helper="h2"),
        _done(first, "h1"),
    ]
    assert _activity(*events).lines(80) == [
        "◇ helper 1: look at a · 1 step · thinking … 0 s",
        "◇ helper 2: look at b · terminal ls b … 0 s",
    ]
    text = _written(*events, HelperFinished("h1", "completed", 2.0))
    assert text == (
        "◇ helper 1: look at a\n◇ helper 2: look at b\n"
        "  1 ● terminal ls a · 1.0 s · 11 characters\n◇ helper 1 done · 2.0 s · 1 step\n"
    )


def test_a_stopped_turn_marks_the_calls_of_helpers_too() -> None:
    text = _written(HelperStarted("h1", "look"), ToolStarted(BUILD, helper="h1"), TurnFinished("interrupted", ""))
    assert "■ terminal make all · stopped\n" in text


def test_a_call_behind_the_question_about_another_one_has_no_clock() -> None:
    clock, waiting = HandClock(), {"c1", "c2"}
    activity = Activity(PLAIN, tool_lines=6, clock_s=clock, awaits_approval=lambda call_id: call_id in waiting)
    first, second = ToolCall("c1", "terminal", '{"command": "rm a"}'), ToolCall("c2", "terminal", '{"command": "rm b"}')
    for event in (TURN, ToolStarted(first), ToolStarted(second)):
        activity.take(event)
    activity.hold("c1")
    clock.now_s += 8
    assert activity.lines(80) == ["● terminal rm a … waiting for you", "● terminal rm b … waiting for its approval"]
    waiting.clear()  # "always" settled the second one, too
    activity.release("c1")
    assert activity.lines(80) == ["● terminal rm a … 0 s", "● terminal rm b … 0 s"]
    clock.now_s += 2
    assert activity.lines(80) == ["● terminal rm a … 2 s", "● terminal rm b … 2 s"]


def test_a_call_that_waits_for_its_approval_is_counted_once_it_runs() -> None:
    clock = HandClock()
    activity = _activity(ToolStarted(BUILD), clock=clock)
    activity.hold(BUILD.id)
    clock.now_s += 8
    assert activity.lines(80) == ["● terminal make all … waiting for you"]
    activity.release(BUILD.id)
    clock.now_s += 2
    assert activity.lines(80) == ["● terminal make all … 2 s"]
