"""Telegram's own ways: photos, files, groups, slow-downs, a second reader, a wrong token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from perdure.config.settings import TelegramSettings
from perdure.core.errors import ConfigError
from perdure.core.events import TextDelta, ToolStarted, TurnFinished
from perdure.core.messages import ToolCall
from perdure.gateway.adapters.conformance import ScriptedHub
from perdure.gateway.events.types import (
    ChatKey,
    CommandAnswered,
    GatewayEvent,
    QuestionAsked,
    QuestionClosed,
    SequencedEvent,
)
from support.bot_api import TOKEN, BotApi, bot_api

telegram = pytest.importorskip("perdure.gateway.adapters.telegram", reason="the extra `telegram` is not installed")
ME = ChatKey("telegram", "telegram:7", "7")


def test_a_photo_arrives_as_an_image_with_its_caption() -> None:
    taken = _taken(lambda api: api.send_photo(b"\xff\xd8picture", caption="what is this?"))

    parts = taken[0]["content"]
    assert parts[0] == {"type": "text", "text": "what is this?"}
    assert parts[1]["image_url"]["url"] == "data:image/jpeg;base64,/9hwaWN0dXJl"


def test_a_text_file_arrives_with_its_name_and_content() -> None:
    taken = _taken(lambda api: api.send_file("notes.txt", "größer 大".encode(), caption="read this"))

    assert taken == ["read this\n\nnotes.txt:\n```\ngrößer 大\n```"]


def test_a_binary_file_is_rejected_with_a_reply() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        api.send_file("a.bin", b"\x00\xff\xfe", mime="application/octet-stream")
        await _until(lambda: api.sent)

        assert "text files" in api.sent[0].text
        assert hub.submitted == []

    _live(story)


def test_a_command_in_a_group_loses_the_bots_name_and_the_chat_is_the_groups() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        api.say("/usage@perdure_bot", chat=-55)
        await _until(lambda: hub.submitted)

        incoming, person = hub.submitted[0]
        assert incoming.content == "/usage"
        assert incoming.chat == ChatKey("telegram", "telegram:7", "-55")
        assert person.user_key == "telegram:7"

    _live(story)


def test_start_is_answered_with_a_greeting_and_reaches_no_model() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        api.say("/start")
        await _until(lambda: api.sent)

        assert "/help" in api.sent[0].text
        assert hub.submitted == []

    _live(story)


def test_the_commands_are_registered_with_the_app() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        await _until(lambda: api.commands)

        assert {"compress", "usage", "new", "undo"} <= {c["command"] for c in api.commands}

    _live(story)


def test_a_mapped_user_id_shares_that_users_conversations() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        api.say("hello")
        await _until(lambda: hub.submitted)

        assert hub.submitted[0][1].user_key == "alice"

    _live(story, allowed=("7=alice",))


def test_an_answer_grows_in_one_message_and_is_not_edited_at_every_word() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        words = [TextDelta(f"word{i} ") for i in range(200)]
        await adapter.deliver(ME, "t_1", _played([*words, TurnFinished("completed", "All of it.")]))

        assert [s.text for s in api.sent] == ["All of it."]
        assert len(api.sent[0].texts) <= 3

    _live(story)


def test_text_before_a_tool_call_is_a_message_of_its_own() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        ran = ToolStarted(ToolCall("a", "web", "{}"))
        script = [TextDelta("Let me look."), ran, TextDelta("Found."), TurnFinished("completed", "Found.")]
        await adapter.deliver(ME, "t_1", _played(script))

        assert [s.text for s in api.sent] == ["Let me look.", "Found."]
        assert (7, "typing") in api.actions

    _live(story)


def test_rate_limits_are_retried_and_nothing_is_lost() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        api.busy["sendMessage"] = 1
        await adapter.deliver(ME, "t_1", _played([CommandAnswered("Compacted.")]))

        assert [s.text for s in api.sent] == ["Compacted."]

    _live(story)


def test_the_buttons_go_once_a_question_is_answered_and_the_answer_stays() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        asked = QuestionAsked("q_1", "clarify", "Which?", ("red", "blue"))
        closed = QuestionClosed("q_1", "blue")
        await adapter.deliver(ME, "t_1", _played([asked, closed, TurnFinished("completed", "Blue it is.")]))

        assert api.sent[0].text == "Which?\n→ blue"
        assert api.sent[0].keyboard == []

    _live(story)


def test_a_question_may_be_answered_in_words() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        hub.open_questions.add("q_1")
        events: asyncio.Queue[GatewayEvent] = asyncio.Queue()
        delivering = asyncio.create_task(adapter.deliver(ME, "t_1", _from(events)))
        events.put_nowait(QuestionAsked("q_1", "clarify", "What name?"))
        await _until(lambda: api.sent)
        api.say("Perdure")
        await _until(lambda: hub.answers)
        events.put_nowait(TurnFinished("completed", "Done."))
        await delivering

        assert hub.answers == [("q_1", "Perdure")]
        assert hub.submitted == []

    _live(story)


def test_a_wrong_token_fails_at_start() -> None:
    async def started(url: str) -> None:
        adapter = telegram.TelegramAdapter("999:wrong", TelegramSettings(base_url=url))
        await adapter.start(ScriptedHub())

    with bot_api() as (_, url), pytest.raises(ConfigError, match="BotFather"):
        asyncio.run(started(url))


def test_of_two_pollers_one_waits_and_takes_over_when_the_other_stops() -> None:
    async def story() -> None:
        with bot_api() as (api, url):
            settings = TelegramSettings(allowed_users=("7",), base_url=url)
            first, second = (telegram.TelegramAdapter(TOKEN, settings, conflict_delay_s=0.5) for _ in range(2))
            hub = ScriptedHub()
            await first.start(hub)
            await second.start(hub)
            api.say("one")
            await _until(lambda: hub.submitted)
            await first.stop()
            await first.close()
            api.say("two")
            await _until(lambda: any(i.content == "two" for i, _ in hub.submitted))
            await second.stop()
            await second.close()

            by_key = {i.key: i.content for i, _ in hub.submitted}
            assert sorted(by_key.values()) == ["one", "two"]

    asyncio.run(story())


# -- telling ---------------------------------------------------------------------------------------------------------

Story = Callable[[BotApi, ScriptedHub, Any], Awaitable[None]]


def _live(story: Story, allowed: tuple[str, ...] = ("7",)) -> None:
    """A bot that runs, from its start to its stop, with a story in between."""

    async def told() -> None:
        with bot_api() as (api, url):
            adapter = telegram.TelegramAdapter(TOKEN, TelegramSettings(allowed_users=allowed, base_url=url))
            hub = ScriptedHub()
            await adapter.start(hub)
            try:
                await story(api, hub, adapter)
            finally:
                await adapter.stop()
                await adapter.close()

    asyncio.run(told())


def _taken(say: Callable[[BotApi], object]) -> list[Any]:
    """What the hub is handed for one message."""
    contents: list[Any] = []

    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        say(api)
        await _until(lambda: hub.submitted)
        contents.extend(incoming.content for incoming, _ in hub.submitted)

    _live(story)
    return contents


async def _played(script: Sequence[GatewayEvent]) -> AsyncIterator[SequencedEvent]:
    for number, event in enumerate(script, 1):
        yield SequencedEvent(number, "t_1", event)


async def _from(events: asyncio.Queue[GatewayEvent]) -> AsyncIterator[SequencedEvent]:
    event: GatewayEvent | None = None
    while not isinstance(event, TurnFinished):
        event = await events.get()
        yield SequencedEvent(1, "t_1", event)


async def _until(is_so: Callable[[], object], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():
            await asyncio.sleep(0.01)
