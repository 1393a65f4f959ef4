"""Events reach every listener in order, and no listener can slow or break a turn."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from perdure.agent.callbacks import Callbacks, status_line
from perdure.agent.runner import MAX_WAITING, EventBus
from perdure.core.errors import ErrorVerdict
from perdure.core.events import (
    CallFinished,
    CallStarted,
    CompactionFinished,
    Event,
    ModelSwitched,
    Notice,
    ReasoningDelta,
    Recovered,
    RetryScheduled,
    TextDelta,
    ToolCallParsed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from perdure.core.messages import ToolCall, tool_result
from perdure.core.usage import CanonicalUsage

CALL = ToolCall("c", "terminal")


def test_an_async_reader_gets_everything_in_order_from_another_thread() -> None:
    bus = EventBus()

    async def read() -> list[str]:
        subscription = bus.subscribe()

        def speak() -> None:
            for i in range(500):
                bus.emit(TextDelta(str(i)))
            subscription.close()

        threading.Thread(target=speak).start()
        return [e.text async for e in subscription if isinstance(e, TextDelta)]

    assert asyncio.run(read()) == [str(i) for i in range(500)]


@pytest.mark.spec("J8")
def test_a_listener_that_fails_hears_the_next_event_all_the_same() -> None:
    bus, heard = EventBus(), []

    def listener(event: Event) -> None:
        heard.append(event)
        raise RuntimeError("listener bug")

    finish = bus.listen(listener)
    bus.emit(Notice("one"))
    bus.emit(Notice("two"))
    finish()
    assert heard == [Notice("one"), Notice("two")]


@pytest.mark.spec("J8")
def test_a_slow_listener_never_holds_up_the_one_who_speaks() -> None:
    bus, release, heard = EventBus(), threading.Event(), []

    def slow(event: Event) -> None:
        release.wait(5)
        heard.append(event)

    finish = bus.listen(slow)
    started = time.perf_counter()
    for i in range(MAX_WAITING + 5_000):
        bus.emit(TextDelta(str(i)))
    bus.emit(Notice("kept"))
    assert time.perf_counter() - started < 2
    release.set()
    finish()
    assert heard[-1] == Notice("kept")
    assert len(heard) < MAX_WAITING, "what waited was merged"
    text = "".join(e.text for e in heard if isinstance(e, TextDelta))
    assert text == "".join(str(i) for i in range(MAX_WAITING + 5_000)), "and nothing of it was lost"


@pytest.mark.spec("J8")
def test_every_callback_hears_what_it_is_for() -> None:
    heard: list[tuple[str, tuple[object, ...]]] = []

    def note(name: str):  # type: ignore[no-untyped-def]  # a recorder for any signature
        return lambda *arguments: heard.append((name, arguments))

    names = ["tool_progress", "thinking", "reasoning", "step", "stream_delta", "tool_gen", "status"]
    callbacks = Callbacks(**{f"{n}_callback": note(n) for n in names})
    result = tool_result("c", "ok")
    for event in (
        CallStarted("m", 1, 2, 1),
        ReasoningDelta("hm"),
        TextDelta("hi"),
        ToolCallParsed(CALL),
        CallFinished("m", CanonicalUsage()),
        ToolStarted(CALL),
        ToolFinished(CALL, result, 0.1),
        Notice("saved"),
        TurnFinished("completed", "bye"),
    ):
        callbacks.hear(event)
    assert heard == [
        ("thinking", (True,)),
        ("reasoning", ("hm",)),
        ("stream_delta", ("hi",)),
        ("tool_gen", (CALL,)),
        ("thinking", (False,)),
        ("tool_progress", ("start", CALL, None)),
        ("tool_progress", ("end", CALL, result)),
        ("status", ("saved",)),
        ("step", ("bye",)),
    ]
    Callbacks().hear(TextDelta("nobody listens"))


def test_changes_of_state_are_told_in_one_line() -> None:
    assert status_line(CompactionFinished("compacted", 9_000, 1_000, "s_1")) == "Compacted: about 9,000 → 1,000 tokens."
    assert status_line(ModelSwitched("a", "b", "rate limit")) == "model a → b (rate limit)"
    assert status_line(ModelSwitched("a", "a", "chosen")) == "model a (chosen)"
    retry = RetryScheduled(ErrorVerdict("transport"), 1.2, 2)
    assert status_line(retry) == "connection failure: trying again in 2 s (attempt 2)"
    assert status_line(Recovered(ErrorVerdict("prompt_too_long"), "compacting")) == "prompt too long: compacting"
    assert status_line(TextDelta("x")) is None
