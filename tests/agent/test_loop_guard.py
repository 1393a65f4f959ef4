"""A model that makes the same calls with the same results again and again is noticed, and told."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.agent.turn_limits import LoopGuard, RepeatedCalls, with_note
from perdure.config.settings import Settings
from perdure.core.events import CompactionFinished, Notice
from perdure.core.messages import ImagePart, Message, TextPart, ToolCall, tool_result
from perdure.testing.simulator import Call, Say, ScriptRequest
from support.agents import Bench, bench

TOLD = "you have now made"


def rounds(guard: LoopGuard, *steps: tuple[str, str]) -> list[RepeatedCalls]:
    """What the guard reports over calls and their results, one call a step."""
    found = []
    for n, (arguments, result) in enumerate(steps):
        call = ToolCall(f"c{n}", "terminal", arguments)
        if loop := guard.observe([call], [tool_result(call.id, result)]):
            found.append(loop)
    return found


def cycle(length: int, times: int) -> list[tuple[str, str]]:
    return [(f'{{"command": "step {n}"}}', f"result {n}") for n in range(length)] * times


@pytest.mark.parametrize(("length", "times"), [(1, 5), (2, 3), (4, 3), (7, 3), (20, 3)])
def test_a_cycle_is_reported_once(length: int, times: int) -> None:
    steps = cycle(length, times)
    assert rounds(LoopGuard(3), *steps[:-1]) == []
    (loop,) = rounds(LoopGuard(3), *cycle(length, 4 * times))
    assert (len(loop.tools), loop.repeats) == (length, times)


def test_work_before_the_cycle_does_not_hide_it() -> None:
    work = [(f'{{"command": "other {n}"}}', "done") for n in range(200)]
    (loop,) = rounds(LoopGuard(3), *work, *cycle(4, 3))
    assert loop.repeats == 3


@pytest.mark.parametrize(
    "steps",
    [
        [('{"path": "a.py"}', "the same text")] * 4,
        [('{"command": "status"}', f"{n} % done") for n in range(50)],
        [(f'{{"command": "test {n}"}}', "ok") for n in range(50)],
        [*cycle(4, 2), ("{}", "another way"), *cycle(4, 2)],
        [
            step
            for n in range(20)
            for step in (('{"command": "make"}', f"{20 - n} errors"), ('{"command": "edit"}', "ok"))
        ],
    ],
    ids=["one file read again", "polling", "one result for all", "interrupted", "a fix with each round"],
)
def test_work_that_gets_on_is_no_loop(steps: list[tuple[str, str]]) -> None:
    assert rounds(LoopGuard(3), *steps) == []


def test_the_order_of_arguments_and_the_time_a_run_took_make_no_difference() -> None:
    steps = [
        ('{"a": 1, "b": 2}' if n % 2 else '{"b": 2, "a": 1}', f"1 failed in {n}.{n}1s; kept at output:o{n} (/tmp/{n})")
        for n in range(5)
    ]
    assert len(rounds(LoopGuard(3), *steps)) == 1


def test_each_loop_is_reported_and_none_where_it_is_switched_off() -> None:
    steps = [*cycle(4, 3), ("{}", "something else"), *cycle(2, 3), *cycle(4, 3)]
    assert [len(loop.tools) for loop in rounds(LoopGuard(3), *steps)] == [4, 2]
    assert rounds(LoopGuard(0), *steps) == []
    assert rounds(LoopGuard(1), *cycle(4, 1)) == [], "once is no repetition"


def test_the_note_stands_behind_the_last_result_whatever_its_form() -> None:
    image = Message("tool", (TextPart("seen"), ImagePart("data:image/png;base64,AA")), tool_call_id="c", kind="tool")
    first, last = with_note([tool_result("a", "one"), tool_result("b", "two")], "[note]")
    assert (first.text, last.text) == ("one", "two\n\n[note]")
    assert with_note([image], "[note]")[0].parts[-1] == TextPart("[note]")
    assert with_note([tool_result("a", "")], "[note]")[0].text == "[note]"


# -- in a turn -------------------------------------------------------------------------------------------------------


def look(step: int) -> str:
    """Looks at one step."""
    return f"step {step}: " + f"line {step} of a listing that is long " * 60


def circling(stop_when: Callable[[ScriptRequest], bool]) -> Callable[[ScriptRequest], Say | str]:
    numbers = itertools.count()

    def script(asked: ScriptRequest) -> Say | str:
        if stop_when(asked):
            return "I was going in circles."
        return Say("Let me see.", calls=(Call("look", {"step": next(numbers) % 4}),))

    return script


def heard_of(b: Bench) -> list[object]:
    events: list[object] = []
    b.agent.events.tap(events.append)
    return events


def test_the_person_and_the_model_are_told_once_also_across_compactions(tmp_path: Path) -> None:
    with bench(tmp_path, circling(lambda a: TOLD in str(a.body["messages"][-1])), tools=[look], window=8_000) as b:
        events = heard_of(b)
        result = b.agent.run_conversation("Do the four steps.")
        assert result.final_response == "I was going in circles."
        (notice,) = [e for e in events if isinstance(e, Notice) and "in circles" in e.text]
        assert "the same 4 calls" in notice.text
        assert notice.level == "warning"
        assert any(isinstance(e, CompactionFinished) for e in events)
        assert len(b.sim.requests) == 13, "twelve calls, and the one that heard of them"
        assert str(b.sim.requests[-1].body).count(TOLD) == 1


def test_a_model_that_does_not_listen_is_told_no_more(tmp_path: Path) -> None:
    settings = Settings.model_validate({"agent": {"max_turns": 30}})
    with bench(tmp_path, circling(lambda a: not a.body.get("tools")), tools=[look], settings=settings) as b:
        events = heard_of(b)
        assert b.agent.run_conversation("Do the four steps.").outcome == "budget"
        assert sum(isinstance(e, Notice) and "in circles" in e.text for e in events) == 1
        said = [e.message.text for e in b.store.log.originals(b.agent.session_id or "")]
        assert sum(TOLD in text for text in said) == 1


def test_a_loop_goes_on_over_a_crash() -> None:
    guard, after = LoopGuard(3), LoopGuard(3)
    steps = cycle(4, 3)
    messages: list[Message] = []
    for n, (arguments, result) in enumerate(steps[:-1]):
        call = ToolCall(f"c{n}", "terminal", arguments)
        messages += [Message("assistant", None, (call,), kind="assistant"), tool_result(call.id, result)]
    guard.replay(messages)
    (loop,) = rounds(guard, steps[-1])
    assert loop.repeats == 3
    noted = tool_result("c", f"{steps[-1][1]}\n\n{loop.note}")
    after.replay([*messages, Message("assistant", None, (ToolCall("c", "terminal", steps[-1][0]),)), noted])
    assert rounds(after, *cycle(4, 3)) == [], "it was told before the crash"


def test_a_new_request_begins_anew(tmp_path: Path) -> None:
    def script(asked: ScriptRequest) -> Say | str:
        last = asked.body["messages"][-1]
        return "Seen." if last["role"] == "tool" else Say("", calls=(Call("look", {"step": 1}),))

    with bench(tmp_path, script, tools=[look]) as b:
        events = heard_of(b)
        for _ in range(7):
            b.agent.chat("Look again, please.")
        assert not [e for e in events if isinstance(e, Notice) and "in circles" in e.text]
