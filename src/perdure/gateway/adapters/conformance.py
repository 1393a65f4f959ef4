"""Conformance checks for platform adapters, to be run against a fake of the platform.

    from perdure.gateway.adapters import conformance

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda c: c.__name__)
    def test_my_adapter(check):
        with my_platform() as (platform, adapter):
            asyncio.run(conformance.run(check, adapter, platform))

A failing check raises AssertionError with the reason.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from perdure.core.errors import NotFound, PerdureError, StoreUnavailable
from perdure.core.events import Notice, TextDelta, ToolStarted, TurnFinished
from perdure.core.messages import ToolCall
from perdure.gateway.adapters.base import Adapter
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import (
    ChatKey,
    ChatMessage,
    GatewayEvent,
    QuestionAsked,
    QuestionClosed,
    SequencedEvent,
    Ticket,
)


class Platform(Protocol):
    """A fake of the platform, seen from its users; its methods may be called from any thread."""

    def write(self, text: str) -> None:
        """Send a message as an allowed user."""
        ...

    def write_as_stranger(self, text: str) -> None: ...

    def repeat(self) -> None:
        """Deliver the last message again, as after a lost acknowledgement."""
        ...

    def messages(self) -> list[str]:
        """Return the current text of every message the adapter has sent, in order; a file counts as its content."""
        ...

    def choose(self, label: str) -> None:
        """Select one of the choices of the newest question."""
        ...


class ScriptedHub:
    """A hub that records what an adapter submits."""

    def __init__(self) -> None:
        self.submitted: list[tuple[ChatMessage, Principal]] = []
        self.answers: list[tuple[str, str]] = []
        # Exceptions that the next submissions raise, in order.
        self.errors: list[PerdureError] = []
        self.open_questions: set[str] = set()

    async def submit(self, incoming: ChatMessage, principal: Principal) -> Ticket:
        if self.errors:
            raise self.errors.pop(0)
        self.submitted.append((incoming, principal))
        return Ticket(f"t_{len(self.submitted)}", None, "running")

    async def answer(self, question_id: str, text: str, principal: Principal) -> None:
        if question_id not in self.open_questions:
            raise NotFound("that question is closed")
        self.open_questions.discard(question_id)
        self.answers.append((question_id, text))

    async def stop(self, chat: ChatKey, principal: Principal) -> bool:
        return False


Check = Callable[[Adapter, Platform, ScriptedHub], Awaitable[None]]


async def run(check: Check, adapter: Adapter, platform: Platform) -> None:
    """Run one check between the adapter's start and stop."""
    hub = ScriptedHub()
    await adapter.start(hub)
    try:
        await check(adapter, platform, hub)
    finally:
        await adapter.stop()
        await adapter.close()


async def check_messages_come_in_order(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that each message is submitted once, unchanged and in order, in one chat, with a unique key."""
    for i in range(5):
        platform.write(f"message {i}")
    await _wait_until(lambda: len(hub.submitted) >= 5, "five messages were sent, but not submitted")
    submitted = [incoming for incoming, _ in hub.submitted]
    _require(
        [t.content for t in submitted] == [f"message {i}" for i in range(5)],
        f"submitted as {[t.content for t in submitted]}",
    )
    _require({t.chat.platform for t in submitted} == {adapter.platform}, "the platform's name is not the adapter's")
    _require(len({t.chat for t in submitted}) == 1, "the messages of one user in one chat have several chat keys")
    _require(
        all(t.key for t in submitted) and len({t.key for t in submitted}) == 5,
        "every message needs a unique idempotency key",
    )
    _require(all(p.user == t.chat.user for t, p in hub.submitted), "the chat does not belong to the principal")


async def check_a_repeated_message_keeps_its_key(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that a message the platform delivers twice has the same idempotency key both times."""
    platform.write("once")
    await _wait_until(lambda: len(hub.submitted) >= 1, "a message was not submitted")
    platform.repeat()
    platform.write("after")
    await _wait_until(
        lambda: hub.submitted[-1][0].content == "after", "the message after a repeated one was not submitted"
    )
    keys = {incoming.key for incoming, _ in hub.submitted if incoming.content == "once"}
    _require(len(keys) == 1, f"one message was submitted with the keys {keys}")


async def check_strangers_are_rejected(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that an unknown user gets a reply and that no message is submitted."""
    platform.write_as_stranger("let me in")
    platform.write("hello")
    await _wait_until(lambda: len(hub.submitted) >= 1, "an allowed user's message was not submitted")
    _require([i.content for i, _ in hub.submitted] == ["hello"], "an unknown user's message was submitted")
    await _wait_until(lambda: bool(platform.messages()), "an unknown user got no reply")


async def check_commands_are_passed_unchanged(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that slash commands are passed to the hub, not handled by the platform."""
    platform.write("/compress database schema")
    await _wait_until(lambda: len(hub.submitted) >= 1, "a command was not submitted")
    _require(
        hub.submitted[0][0].content == "/compress database schema", f"submitted as {hub.submitted[0][0].content!r}"
    )


async def check_an_answer_is_shown_whole(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that the final text is displayed exactly once, with and without streaming."""
    deltas = ["The ", "answer ", "is ", "forty-two."]
    await _deliver(adapter, platform, hub, *map(TextDelta, deltas), TurnFinished("completed", "".join(deltas)))
    message = "\n".join(platform.messages())
    _require(message.count("The answer is forty-two.") == 1, f"displayed as {platform.messages()}")


async def check_a_long_answer_loses_nothing(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that an answer over the platform's limit is split or sent as a file, with every word."""
    for deltas in (2_000, 20_000):
        text = " ".join(f"word{i}" for i in range(deltas))
        await _deliver(adapter, platform, hub, TextDelta(text[:100]), TurnFinished("completed", text))
        message = set(re.findall(r"word\d+", "\n".join(platform.messages())))
        missing = {f"word{i}" for i in range(deltas)} - message
        _require(not missing, f"{len(missing)} of {deltas} words are not displayed")


async def check_failures_are_reported(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that text streamed before a failure remains, followed by the error."""
    failed = TurnFinished("failed", "", error="the model is overloaded; try again in a minute")
    await _deliver(adapter, platform, hub, TextDelta("I was about to "), failed)
    message = "\n".join(platform.messages())
    _require("the model is overloaded" in message, f"the error is not displayed: {platform.messages()}")
    _require("I was about to" in message, "the streamed text is missing")


async def check_text_before_a_tool_call_stays(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that text before a tool call and the answer are separate messages, with warnings between them."""
    call, warning = ToolStarted(ToolCall("c", "terminal")), Notice("The window is nearly full.", "warning")
    finished = TurnFinished("completed", "Done.")
    await _deliver(adapter, platform, hub, TextDelta("Let me look."), call, warning, TextDelta("Do"), finished)
    expected = ["Let me look.", "The window is nearly full.", "Done."]
    _require(platform.messages() == expected, f"displayed as {platform.messages()}")


async def check_a_blank_answer_is_reported(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that an answer without text is displayed as such, since no platform accepts an empty message."""
    for answer in ("", "  \n "):
        await _deliver(adapter, platform, hub, TurnFinished("completed", answer))
    _require(len(platform.messages()) == 2 and all(platform.messages()), f"displayed as {platform.messages()}")


async def check_a_takeover_continues_the_message(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that a turn taken over by another process continues in the message it began, once."""
    chat = await _chat(platform, hub)
    await adapter.deliver(chat, "t_1", _replay(TextDelta("The answ")))
    for _ in range(2):
        await adapter.deliver(chat, "t_1", _replay(TextDelta("The"), TurnFinished("completed", "The answer.")))
    _require(platform.messages() == ["The answer."], f"displayed as {platform.messages()}")


async def check_a_stop_after_a_takeover_keeps_the_text(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that text displayed before its process died stays if the turn is stopped afterwards."""
    chat = await _chat(platform, hub)
    await adapter.deliver(chat, "t_1", _replay(TextDelta("Half of it")))
    await adapter.deliver(chat, "t_1", _replay(TurnFinished("interrupted", "")))
    (message,) = platform.messages()
    _require("Half of it" in message and "stopped" in message, f"displayed as {message!r}")


async def check_a_question_of_a_dead_process_is_withdrawn(
    adapter: Adapter, platform: Platform, hub: ScriptedHub
) -> None:
    """Check that a question whose process died is closed with a notice, and that the next one is displayed."""
    chat = await _chat(platform, hub)
    await adapter.deliver(chat, "t_1", _replay(QuestionAsked("q_4", "approval", "make deploy")))
    again, closed = QuestionAsked("q_5", "approval", "make deploy"), QuestionClosed("q_5", "once")
    events = _replay(QuestionClosed("q_4", ""), again, closed, TurnFinished("completed", "Done."))
    await adapter.deliver(chat, "t_1", events)
    last_lines = [message.splitlines()[-1] for message in platform.messages()]
    _require("withdrawn" in last_lines[0], f"displayed as {platform.messages()}")
    _require(last_lines[1:] == ["→ once", "Done."], f"displayed as {platform.messages()}")


async def check_questions_are_answered_in_words(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that a message sent while a question is open counts as its answer."""
    chat = await _chat(platform, hub)
    hub.open_questions.add("q_6")
    await adapter.deliver(chat, "t_1", _replay(QuestionAsked("q_6", "clarify", "Which?", ("red", "blue"))))
    platform.write("green, please")
    await _wait_until(lambda: bool(hub.answers), "an answer in words was not submitted")
    _require(hub.answers == [("q_6", "green, please")], f"answered {hub.answers}")
    _require(len(hub.submitted) == 1, "an answer in words was submitted as a message, too")


async def check_questions_are_answered(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that a question is displayed with its choices and that the selected one is returned."""
    question = QuestionAsked("q_1", "clarify", "Which colour?", ("red", "a choice of rather more words than most"))
    hub.open_questions.add("q_1")
    events: asyncio.Queue[GatewayEvent] = asyncio.Queue()
    chat = await _chat(platform, hub)
    delivery = asyncio.create_task(adapter.deliver(chat, "t_1", _play(events)))
    events.put_nowait(question)
    await _wait_until(lambda: "Which colour?" in "\n".join(platform.messages()), "the question is not displayed")
    platform.choose("a choice of rather more words than most")
    await _wait_until(lambda: bool(hub.answers), "the answer was not submitted")
    _require(hub.answers == [("q_1", "a choice of rather more words than most")], f"answered {hub.answers}")
    events.put_nowait(QuestionClosed("q_1", hub.answers[0][1]))
    events.put_nowait(TurnFinished("completed", "Noted."))
    await delivery
    _require("Noted." in "\n".join(platform.messages()), "nothing is displayed after a question")


async def check_approvals_are_answered(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that a dangerous command is displayed with its reason, and that "no" is returned as no."""
    hub.open_questions.add("q_2")
    events: asyncio.Queue[GatewayEvent] = asyncio.Queue()
    chat = await _chat(platform, hub)
    delivery = asyncio.create_task(adapter.deliver(chat, "t_1", _play(events)))
    events.put_nowait(QuestionAsked("q_2", "approval", "rm -rf build", reason="deletes a folder"))
    await _wait_until(lambda: "rm -rf build" in "\n".join(platform.messages()), "the command is not displayed")
    _require("deletes a folder" in "\n".join(platform.messages()), "the reason is not displayed")
    platform.choose("No")
    await _wait_until(lambda: bool(hub.answers), "the answer was not submitted")
    _require(hub.answers == [("q_2", "no")], f"answered {hub.answers}")
    events.put_nowait(TurnFinished("completed", "It stays."))
    await delivery


async def check_a_stopped_turn_closes_its_question(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that a question is displayed as closed when its turn is stopped, for example by a new message."""
    question = QuestionAsked("q_3", "approval", "rm -rf build", reason="deletes a folder")
    closed = QuestionClosed("q_3", "", is_stopped=True)
    await _deliver(adapter, platform, hub, question, closed, TurnFinished("interrupted", ""))
    message = "\n".join(platform.messages())
    _require("the turn was stopped" in message, f"displayed as {platform.messages()}")
    _require("no answer in time" not in message, "a stopped turn is displayed as one that was not answered")


async def check_a_rejection_is_reported(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that a rejected message is answered with the error and that the next one is submitted."""
    hub.errors.append(PerdureError("twenty messages wait already; give it a moment"))
    platform.write("one too many")
    await _wait_until(
        lambda: "twenty messages wait" in "\n".join(platform.messages()),
        "the error of a rejected message is not displayed",
    )
    platform.write("later")
    await _wait_until(lambda: len(hub.submitted) >= 1, "nothing is submitted after a rejected message")


async def check_a_store_failure_loses_nothing(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that a message that could not be stored is submitted again, in order."""
    hub.errors.append(StoreUnavailable("the database is unavailable"))
    platform.write("first")
    platform.write("second")
    await _wait_until(lambda: len(hub.submitted) >= 2, "messages were lost while the store was unavailable")
    _require(
        [i.content for i, _ in hub.submitted][:2] == ["first", "second"],
        f"submitted as {[i.content for i, _ in hub.submitted]}",
    )


async def check_answers_are_delivered_after_stop(adapter: Adapter, platform: Platform, hub: ScriptedHub) -> None:
    """Check that after stop no message is submitted, while the answer of a running turn is delivered."""
    chat = await _chat(platform, hub)
    await adapter.stop()
    platform.write("too late")
    events: asyncio.Queue[GatewayEvent] = asyncio.Queue()
    events.put_nowait(TurnFinished("completed", "Just in time."))
    await adapter.deliver(chat, "t_1", _play(events))
    _require("Just in time." in "\n".join(platform.messages()), "the last answer is not displayed")
    _require(all(i.content != "too late" for i, _ in hub.submitted), "a message was submitted after stop")


CHECKS: tuple[Check, ...] = (
    check_messages_come_in_order,
    check_a_repeated_message_keeps_its_key,
    check_strangers_are_rejected,
    check_commands_are_passed_unchanged,
    check_an_answer_is_shown_whole,
    check_a_long_answer_loses_nothing,
    check_failures_are_reported,
    check_text_before_a_tool_call_stays,
    check_a_blank_answer_is_reported,
    check_a_takeover_continues_the_message,
    check_a_stop_after_a_takeover_keeps_the_text,
    check_questions_are_answered,
    check_questions_are_answered_in_words,
    check_a_question_of_a_dead_process_is_withdrawn,
    check_approvals_are_answered,
    check_a_stopped_turn_closes_its_question,
    check_a_rejection_is_reported,
    check_a_store_failure_loses_nothing,
    check_answers_are_delivered_after_stop,
)


async def _deliver(adapter: Adapter, platform: Platform, hub: ScriptedHub, *script: GatewayEvent) -> None:
    """Deliver a scripted turn to a chat."""
    events: asyncio.Queue[GatewayEvent] = asyncio.Queue()
    for event in script:
        events.put_nowait(event)
    chat = await _chat(platform, hub)
    await adapter.deliver(chat, f"t_{len(hub.submitted)}", _play(events))


async def _chat(platform: Platform, hub: ScriptedHub) -> ChatKey:
    """Return the chat of a submitted message."""
    before = len(hub.submitted)
    platform.write("a question")
    await _wait_until(lambda: len(hub.submitted) > before, "a message was not submitted")
    return hub.submitted[-1][0].chat


async def _replay(*events: GatewayEvent) -> AsyncIterator[SequencedEvent]:
    """Yield events to their end, as of a turn that is released to another process."""
    for number, event in enumerate(events, 1):
        yield SequencedEvent(number, "t_1", event)


async def _play(events: asyncio.Queue[GatewayEvent]) -> AsyncIterator[SequencedEvent]:
    number = 0
    while True:
        number, event = number + 1, await events.get()
        yield SequencedEvent(number, "t_1", event)
        if isinstance(event, TurnFinished):
            return


async def _wait_until(condition: Callable[[], bool], message: str, *, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        _require(time.monotonic() < deadline, message)
        await asyncio.sleep(0.01)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
