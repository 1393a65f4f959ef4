"""Discord's own ways: threads, mentions, bots, attachments, buttons, rate limits, outages, a process that took over."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.config.settings import DiscordSettings
from perdure.core.errors import ConfigError
from perdure.core.events import TextDelta, ToolStarted, TurnFinished
from perdure.core.messages import ToolCall
from perdure.core.visibility import User
from perdure.gateway.adapters.conformance import ScriptedHub
from perdure.gateway.events.types import (
    ChatKey,
    CommandAnswered,
    GatewayEvent,
    QuestionAsked,
    QuestionClosed,
    SequencedEvent,
)
from perdure.testing.discord_service import (
    BOT_ID,
    CHANNEL_ID,
    TOKEN,
    DiscordRefusal,
    DiscordService,
    StandInConsole,
)
from support.bot_api import MemoryState
from support.packages import package

discord = package("perdure.gateway.adapters.discord", needs="discord", reason="the extra `discord` is not installed")

ME = ChatKey("discord", User("discord:7"), "9007")
Story = Callable[[DiscordService, ScriptedHub, Any], Awaitable[None]]


def _live(
    story: Story,
    *,
    state: MemoryState | None = None,
    now: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> DiscordService:
    async def run(service: DiscordService) -> None:
        chosen = DiscordSettings(**{"allowed_users": ("7", "8"), "base_url": service.url, **settings})
        adapter = discord.DiscordAdapter(TOKEN, chosen, MemoryState() if state is None else state, now=now)
        hub = ScriptedHub()
        await adapter.start(hub)
        try:
            await asyncio.wait_for(story(service, hub, adapter), 120)
        finally:
            await adapter.stop()
            await adapter.close()

    with DiscordService() as service:
        asyncio.run(run(service))
        return service


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def _play(*events: GatewayEvent) -> AsyncIterator[SequencedEvent]:
    for number, event in enumerate(events, 1):
        yield SequencedEvent(number, "t_1", event)


def _texts(service: DiscordService) -> list[str]:
    return [message.text for message in service.sent]


# -- which messages are for the bot ------------------------------------------------------------------------------------


@pytest.mark.spec("P2")
def test_a_mention_in_a_channel_opens_a_thread_and_the_thread_is_the_chat() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        asked = service.say("what is this?", channel=CHANNEL_ID, mentions=True)
        await _until(lambda: hub.submitted)
        incoming, _ = hub.submitted[0]
        assert incoming.chat == ChatKey("discord", User("discord:7"), str(asked))
        assert (incoming.content, incoming.key) == ("what is this?", f"discord:{BOT_ID}:{CHANNEL_ID}:{asked}")
        assert service.threads == {asked: CHANNEL_ID}

        await _until(lambda: adapter._require_connection().get_channel(asked))
        service.say("and without a mention?", channel=asked)
        await _until(lambda: len(hub.submitted) == 2)
        assert hub.submitted[1][0].chat == incoming.chat

    _live(story)


def test_what_does_not_name_the_bot_in_a_channel_is_left_alone() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("just talking", channel=CHANNEL_ID)
        service.say("a stranger, just talking", channel=CHANNEL_ID, user=99)
        service.say("hello")
        await _until(lambda: hub.submitted)
        assert [incoming.content for incoming, _ in hub.submitted] == ["hello"]
        assert service.sent == []

    _live(story)


def test_messages_of_bots_are_ignored_and_those_of_the_bot_itself() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("I am a bot", is_bot=True)
        service.say("my own words", user=BOT_ID, is_bot=True)
        service.say("hello")
        await _until(lambda: hub.submitted)
        assert [incoming.content for incoming, _ in hub.submitted] == ["hello"]
        assert service.sent == []

    _live(story)


def test_without_threads_a_mention_is_answered_in_its_channel() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("hello", channel=CHANNEL_ID, mentions=True)
        await _until(lambda: hub.submitted)
        assert hub.submitted[0][0].chat.chat == str(CHANNEL_ID)
        assert service.threads == {}

    _live(story, threads=False)


def test_where_no_thread_may_be_made_a_mention_is_answered_in_its_channel() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.refuse = lambda m, path: (
            DiscordRefusal(403, 50_013, "Missing Permissions") if "threads" in path else None
        )
        service.say("hello", channel=CHANNEL_ID, mentions=True)
        await _until(lambda: hub.submitted)
        assert hub.submitted[0][0].chat.chat == str(CHANNEL_ID)

    _live(story)


def test_an_allowed_user_may_share_the_conversations_of_another_name() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("hello")
        await _until(lambda: hub.submitted)
        assert hub.submitted[0][1].user == User("alice")

    _live(story, allowed_users=("7=alice",))


def test_a_stranger_is_named_their_id_once() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("hi", user=99)
        service.say("hi again", user=99)
        service.say("hello")
        await _until(lambda: hub.submitted and service.sent)
        (notice,) = service.sent
        assert "99" in notice.text
        assert "gateway.discord.allowed_users" in notice.text

    _live(story)


def test_an_exclamation_mark_makes_a_command_and_other_words_stay() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("!usage")
        service.say("!compress the schema")
        service.say("!important: read this")
        await _until(lambda: len(hub.submitted) == 3)
        contents = [incoming.content for incoming, _ in hub.submitted]
        assert contents == ["/usage", "/compress the schema", "!important: read this"]

    _live(story)


# -- attachments -------------------------------------------------------------------------------------------------------


def test_images_and_text_files_arrive_with_the_message() -> None:
    files = [("a.png", "image/png", b"hi"), ("n.txt", "text/plain; charset=utf-8", "größer".encode())]

    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("look", files=files)
        await _until(lambda: hub.submitted)
        content: Any = hub.submitted[0][0].content
        assert content["content"][0]["text"] == "look\n\nn.txt:\n```\ngrößer\n```"
        assert content["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="

    _live(story)


@pytest.mark.parametrize(
    "file", [("a.bin", "application/octet-stream", b"\x00\xff"), ("big.txt", "text/plain", b"x" * 10_000_001)]
)
def test_a_binary_or_too_large_file_is_refused_with_a_reply(file: tuple[str, str, bytes]) -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("look", files=[file])
        await _until(lambda: service.sent)
        assert "text files of up to 10 MB" in service.sent[0].text
        assert hub.submitted == []
        assert not any(call.startswith("GET /files") for call in service.calls)

    _live(story)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_a_long_answer_comes_in_pieces_with_code_blocks_closed() -> None:
    code = "\n".join(f"line {n}" for n in range(700))
    answer = f"Here:\n```python\n{code}\n```\nDone."

    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        await adapter.deliver(ME, "t_1", _play(TextDelta(answer[:50]), TurnFinished("completed", answer)))

    texts = _texts(_live(story))
    assert 1 < len(texts) <= 10
    assert all(len(text) <= 2_000 and text.count("```") % 2 == 0 for text in texts)
    assert [line for text in texts for line in text.split("\n") if line.startswith("line ")] == code.split("\n")


def test_edits_are_throttled_and_the_message_ends_with_the_whole_answer() -> None:
    words = [f"word{n} " for n in range(200)]

    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        await adapter.deliver(ME, "t_1", _play(*map(TextDelta, words), TurnFinished("completed", "".join(words))))

    (message,) = _live(story).sent
    assert message.text == "".join(words).strip()
    assert len(message.texts) < 20


def test_a_command_answer_with_columns_is_a_code_block() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        await adapter.deliver(ME, "t_1", _play(CommandAnswered("a  1\nb  2", "info", None)))

    assert _texts(_live(story)) == ["```\na  1\nb  2\n```"]


def test_rate_limits_and_server_errors_delay_an_answer_and_double_nothing() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.busy = 3
        await adapter.deliver(ME, "t_1", _play(TurnFinished("completed", "Here it is.")))

    assert _texts(_live(story)) == ["Here it is."]


def test_an_answer_is_sent_once_where_the_response_to_it_was_lost() -> None:
    """The message was created, and the answer of the server did not arrive: the next attempt has the same nonce."""

    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        client = adapter._client
        first = await client.send(9007, "Hello.", nonce="n1")
        assert await client.send(9007, "Hello.", nonce="n1") == first

    assert _texts(_live(story)) == ["Hello."]


def test_a_message_that_was_deleted_while_it_was_written_is_sent_anew() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        async def events() -> AsyncIterator[SequencedEvent]:
            yield SequencedEvent(1, "t_1", TextDelta("Half"))
            service.messages.clear()
            yield SequencedEvent(2, "t_1", TurnFinished("completed", "Half and whole."))

        await adapter.deliver(ME, "t_1", events())

    assert _texts(_live(story)) == ["Half and whole."]


@pytest.mark.parametrize("has_id", [True, False], ids=["stored", "sent but not stored"])
def test_a_process_that_takes_over_goes_on_with_the_message_of_the_one_that_died(has_id: bool) -> None:
    """No cut stub beside the whole answer, and what was complete stays."""
    state = MemoryState()

    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        async def cut() -> AsyncIterator[SequencedEvent]:
            yield SequencedEvent(1, "t_1", TextDelta("Let me look."))
            yield SequencedEvent(2, "t_1", ToolStarted(ToolCall("c", "terminal")))
            yield SequencedEvent(3, "t_1", TextDelta("The answ"))
            await asyncio.Event().wait()

        first = asyncio.create_task(adapter.deliver(ME, "t_1", cut()))
        await _until(lambda: len(service.sent) == 2 and state.get("turn:t_1", {}).get("message"))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        if not has_id:
            state["turn:t_1"] = {**state["turn:t_1"], "message": None}
        for _ in range(2):  # once more, where the process died before the gateway had noted the delivery
            events = _play(TurnFinished("completed", "The answer is 42."))
            await adapter.deliver(ME, "t_1", events)
            assert [event async for event in events] == []
        assert state["turn:t_1"].keys() == {"done_at"}

    clock = itertools.count(step=10)
    assert _texts(_live(story, state=state, now=lambda: float(next(clock)))) == ["Let me look.", "The answer is 42."]


def test_a_long_answer_is_continued_after_the_piece_that_was_sent_last() -> None:
    state, answer = MemoryState(), " ".join(f"word{n}" for n in range(1_000))

    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        refusal = DiscordRefusal(403, 50_013, "Missing Permissions")
        service.refuse = lambda method, path: refusal if len(service.sent) == 2 and method == "POST" else None
        await adapter.deliver(ME, "t_1", _play(TurnFinished("completed", answer)))
        assert len(service.sent) == 2
        service.refuse = lambda method, path: None
        await adapter.deliver(ME, "t_1", _play(TurnFinished("completed", answer)))

    assert " ".join(_texts(_live(story, state=state))) == answer


# -- questions ---------------------------------------------------------------------------------------------------------


def test_a_button_of_somebody_else_or_of_a_closed_question_answers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        question = QuestionAsked("q_1", "approval", "make deploy", reason="it deploys")
        await adapter.deliver(ME, "t_1", _play(question))
        message = service.sent[-1]
        assert [label for label, _ in message.buttons] == ["Once", "This session", "Always", "No"]
        service.press(message, "Once", user=99)
        await _until(lambda: service.notices)
        service.press(message, "Once")
        await _until(lambda: len(service.notices) == 2)
        assert service.notices == ["This question is for somebody else.", "This question is closed."]
        assert hub.answers == []

    _live(story)
    # Each press was acknowledged, in the form that the library reads.
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == []


def test_a_closed_question_loses_its_buttons_and_shows_its_answer() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        question = QuestionAsked("q_1", "clarify", "Which?", ("red", "blue"))
        await adapter.deliver(
            ME, "t_1", _play(question, QuestionClosed("q_1", "red"), TurnFinished("completed", "Ok."))
        )
        assert service.sent[0].text.endswith("→ red")
        assert service.sent[0].buttons == []

    _live(story)


# -- the connection ----------------------------------------------------------------------------------------------------


def test_a_wrong_token_is_a_plain_error() -> None:
    with DiscordService() as service:
        settings = DiscordSettings(base_url=service.url)
        adapter = discord.DiscordAdapter("wrong", settings, MemoryState())

        async def run() -> None:
            try:
                with pytest.raises(ConfigError, match="rejected the bot token"):
                    await adapter.start(ScriptedHub())
            finally:
                await adapter.close()

        asyncio.run(run())


def test_without_the_privilege_to_read_texts_it_serves_direct_messages_and_mentions() -> None:
    async def run(service: DiscordService) -> None:
        service.allows_message_content = False
        settings = DiscordSettings(allowed_users=("7",), base_url=service.url)
        adapter, hub = discord.DiscordAdapter(TOKEN, settings, MemoryState()), ScriptedHub()
        await adapter.start(hub)
        await _until(lambda: service.connections)
        service.say("hello")
        await _until(lambda: hub.submitted)
        await adapter.stop()
        await adapter.close()

    with DiscordService() as service:
        asyncio.run(asyncio.wait_for(run(service), 120))


def test_a_mention_without_words_is_answered_with_a_hint() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        service.say("", user=7)
        await _until(lambda: service.sent)
        assert "!help" in service.sent[0].text
        assert hub.submitted == []

    _live(story)


def test_a_lost_connection_is_opened_again() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        await asyncio.to_thread(service.drop_connections)
        await _until(lambda: service.connections == 2)
        service.say("still there?")
        await _until(lambda: hub.submitted)

    _live(story)


def test_what_was_written_while_no_process_ran_is_submitted_at_the_next_start() -> None:
    state = MemoryState()

    async def run(service: DiscordService) -> None:
        settings = DiscordSettings(allowed_users=("7",), base_url=service.url)
        hub = ScriptedHub()
        first = discord.DiscordAdapter(TOKEN, settings, state)
        await first.start(hub)
        service.say("one")
        await _until(lambda: state)
        await first.stop()
        await first.close()
        service.say("two")
        service.say("not for me", channel=CHANNEL_ID)
        second = discord.DiscordAdapter(TOKEN, settings, state)
        await second.start(hub)
        service.say("three")
        await _until(lambda: len(hub.submitted) == 3)
        await second.stop()
        await second.close()
        assert [incoming.content for incoming, _ in hub.submitted] == ["one", "two", "three"]
        assert len({incoming.chat for incoming, _ in hub.submitted}) == 1

    with DiscordService() as service:
        asyncio.run(asyncio.wait_for(run(service), 120))


# -- the stand-in in a terminal --------------------------------------------------------------------------------------


def _typed(service: DiscordService, *lines: str) -> list[str]:
    """What the stand-in prints for lines that are typed."""
    shown: list[str] = []
    console = StandInConsole(service, shown.append)
    for line in lines:
        console.enter(line)
    return shown


def test_the_stand_in_shows_edits_and_buttons_and_presses_them() -> None:
    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        shown: list[str] = []
        console = StandInConsole(service, shown.append)
        await asyncio.to_thread(console.enter, "hello\n")
        await _until(lambda: hub.submitted)
        hub.open_questions.add("q_1")
        question = QuestionAsked("q_1", "approval", "make deploy", reason="it runs make")
        await adapter.deliver(ME, "t_1", _play(question))
        assert [line.splitlines()[-4:] for line in shown] == [["  [Once]", "  [This session]", "  [Always]", "  [No]"]]
        await asyncio.to_thread(console.enter, "[Never]\n")
        assert shown[1:] == [
            "stand-in: the open question has no button [Never]; it has: [Once] [This session] [Always] [No]"
        ]
        await asyncio.to_thread(console.enter, "[Once]\n")
        await _until(lambda: hub.answers)
        await adapter.deliver(ME, "t_1", _play(QuestionClosed("q_1", "once"), TurnFinished("completed", "Ok.")))
        assert shown[2].startswith("bot edits> May I run this?")
        assert "[Once]" not in shown[2]
        assert shown[3] == "bot> Ok."
        assert hub.answers == [("q_1", "once")]
        assert len(hub.submitted) == 1

    _live(story)


def test_the_stand_in_reports_what_cannot_be_done_and_sends_nothing() -> None:
    with DiscordService() as service:
        assert _typed(service, "[Once]", "#1 hello", "+no-such-file hello") == [
            "stand-in: no question is open, so no button was pressed",
            "stand-in: there is no thread #1; `@bot TEXT` opens one",
            "stand-in: No such file or directory",
        ]
        assert service.messages == []


def test_the_stand_in_mentions_replies_in_threads_and_attaches_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("milk")

    async def story(service: DiscordService, hub: ScriptedHub, adapter: Any) -> None:
        await asyncio.to_thread(_typed, service, "@bot hello")
        await _until(lambda: len(hub.submitted) == 1)
        await asyncio.to_thread(_typed, service, "#1 and then?", f"+{tmp_path / 'notes.txt'} what is it?")
        await _until(lambda: len(hub.submitted) == 3)
        by_chat = sorted((i.chat.chat == "9007", str(i.content)) for i, _ in hub.submitted)
        assert [is_direct for is_direct, _ in by_chat] == [False, False, True]
        assert [text for _, text in by_chat][:2] == ["and then?", "hello"]
        assert "milk" in by_chat[2][1]

    _live(story)


def test_the_stand_in_prints_help() -> None:
    command = [sys.executable, "-m", "perdure.testing.discord_service", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "[Once]" in result.stdout
