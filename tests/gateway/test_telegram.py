"""Telegram's own ways: photos, files, groups, slow-downs, a second reader, a wrong token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, get_args

import pytest

from perdure.config.settings import TelegramSettings
from perdure.core.errors import ConfigError, StoreError, StoreUnavailable
from perdure.core.events import Notice, TextDelta, ToolStarted, TurnFinished
from perdure.core.messages import ToolCall
from perdure.core.ports import ApprovalAnswer
from perdure.core.visibility import User
from perdure.gateway.adapters.conformance import ScriptedHub
from perdure.gateway.adapters.streamed_reply import parse_button
from perdure.gateway.events.types import (
    ChatKey,
    CommandAnswered,
    GatewayEvent,
    QuestionAsked,
    QuestionClosed,
    SequencedEvent,
)
from perdure.store.inbox import InboxFull
from support.bot_api import TOKEN, BotApi, MemoryState, Refused, bot_api
from support.packages import package

telegram = package(
    "perdure.gateway.adapters.telegram", needs="telegram", reason="the extra `telegram` is not installed"
)
ME = ChatKey("telegram", User("telegram:7"), "7")


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
        assert incoming.chat == ChatKey("telegram", User("telegram:7"), "-55")
        assert person.user == User("telegram:7")

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

        assert hub.submitted[0][1].user == User("alice")

    _live(story, allowed=("7=alice",))


def test_an_answer_grows_in_one_message_and_is_not_edited_at_every_word() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        words = [TextDelta(f"word{i} ") for i in range(200)]
        await adapter.deliver(ME, "t_1", _played([*words, TurnFinished("completed", "All of it.")]))

        assert [s.text for s in api.sent] == ["All of it."]
        assert len(api.sent[0].texts) <= 3

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


def test_a_wrong_token_fails_at_start() -> None:
    async def started(url: str) -> None:
        adapter = telegram.TelegramAdapter("999:wrong", TelegramSettings(base_url=url), MemoryState())
        await adapter.start(ScriptedHub())

    with bot_api() as (_, url), pytest.raises(ConfigError, match="BotFather"):
        asyncio.run(started(url))


def test_of_two_pollers_one_waits_and_takes_over_when_the_other_stops() -> None:
    async def story() -> None:
        with bot_api() as (api, url):
            settings = TelegramSettings(allowed_users=("7",), base_url=url)
            state = MemoryState()
            first, second = (telegram.TelegramAdapter(TOKEN, settings, state, conflict_delay_s=0.5) for _ in range(2))
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


# -- one update is one sender's concern ------------------------------------------------------------------------------

_BLOCKED = Refused(403, "Forbidden: bot was blocked by the user")
_PERSON = {"id": 7, "is_bot": False, "first_name": "P"}
_CHAT = {"id": 7, "type": "private"}


@pytest.mark.parametrize(
    "content",
    [
        {"message": {}},
        {"message": []},
        {"message": {"message_id": "x", "date": "y", "chat": {"id": "z"}}},
        {"message": {"message_id": 1, "date": 10**18, "chat": _CHAT, "from": _PERSON, "text": "far future"}},
        {"callback_query": {"id": "1"}},
        {"callback_query": {"id": "1", "from": _PERSON, "chat_instance": "1", "data": "q_1|a9"}},
        {"unknown": {"field": 1}},
    ],
    ids=["empty", "list", "types", "date", "query", "button", "unknown"],
)
def test_a_malformed_update_does_not_hold_up_the_next(content: dict[str, Any]) -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        api.push_update(**content)
        api.say("hello")
        await _until(lambda: hub.submitted)

        assert [incoming.content for incoming, _ in hub.submitted] == ["hello"]

    _live(story)


def test_a_stranger_who_blocked_the_bot_does_not_hold_up_the_others() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        api.refuse = lambda method, given: _BLOCKED if str(given.get("chat_id")) == "99" else None
        api.say("hi", user=99)
        api.say("hello")
        await _until(lambda: hub.submitted)

    _live(story)


def test_the_poller_does_not_wait_for_a_rate_limited_notice_to_a_stranger() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        limited = Refused(429, "Too Many Requests: retry after 900", retry_after=900)
        api.refuse = lambda method, given: limited if str(given.get("chat_id")) == "99" else None
        api.say("hi", user=99)
        api.say("hello")
        await _until(lambda: hub.submitted)

    _live(story)


def test_a_stranger_is_notified_once_an_hour() -> None:
    clock = SkippingClock()

    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        for number in range(3):
            api.say(f"hi {number}", user=99)
        api.say("hello")
        await _until(lambda: hub.submitted and api.sent)
        clock.time_s += 3_601
        api.say("hi again", user=99)
        await _until(lambda: len(api.sent) == 2)

        assert all("allowed users only" in s.text for s in api.sent)

    _live(story, clock=clock)


def test_a_slow_download_holds_up_its_own_chat_only_and_no_stop() -> None:
    state = MemoryState()

    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        def submitted(user: str) -> list[Any]:
            return [incoming.content for incoming, principal in hub.submitted if principal.user == User(user)]

        api.serves_files.clear()
        api.send_file("notes.txt", b"the file")
        api.say("and this")
        api.say("/stop")
        api.say("hello", user=8)
        await _until(lambda: submitted("telegram:8"))
        assert (submitted("telegram:8"), submitted("telegram:7")) == (["hello"], ["/stop"])
        api.serves_files.set()
        await _until(lambda: len(submitted("telegram:7")) == 3)
        assert "the file" in str(submitted("telegram:7")[1])
        assert submitted("telegram:7")[2] == "and this"
        await _until(lambda: not state)

    _live(story, allowed=("7", "8"), state=state)


def test_a_message_whose_download_a_stopped_process_did_not_finish_is_processed_by_the_next() -> None:
    async def story() -> None:
        with bot_api() as (api, url):
            settings, state = TelegramSettings(allowed_users=("7", "8"), base_url=url), MemoryState()
            first, second = (telegram.TelegramAdapter(TOKEN, settings, state) for _ in range(2))
            hub = ScriptedHub()
            api.serves_files.clear()
            await first.start(hub)
            api.send_file("notes.txt", b"the file", caption="read it")
            await _until(lambda: state)
            api.say("next", user=8)  # received with the confirmation of the first
            await _until(lambda: hub.submitted)
            # Unless it is confirmed too, the next process rightly receives it once more.
            await _until(lambda: not api.has_unconfirmed_updates)
            await first.stop()
            await first.close()
            assert len(hub.submitted) == 1
            api.serves_files.set()
            await second.start(hub)
            await _until(lambda: len(hub.submitted) == 2 and not state)
            await second.stop()
            await second.close()
            assert "the file" in str(hub.submitted[1][0].content)

    asyncio.run(story())


def test_the_key_of_a_message_names_the_bot() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        number = api.say("hello")
        await _until(lambda: hub.submitted)
        assert hub.submitted[0][0].key == f"telegram:{TOKEN.partition(':')[0]}:7:{number}"

    _live(story)


def test_a_process_that_takes_over_edits_the_cut_message_of_the_one_that_died() -> None:
    state = MemoryState()

    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        async def cut() -> AsyncIterator[SequencedEvent]:
            for event in (TextDelta("Let me look."), ToolStarted(ToolCall("c", "terminal")), TextDelta("The answ")):
                clock.time_s += 10
                yield SequencedEvent(1, "t_1", event)
            await asyncio.Event().wait()

        first = asyncio.create_task(adapter.deliver(ME, "t_1", cut()))
        await _until(lambda: len(api.sent) == 2 and state.get("turn:t_1", {}).get("message"))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        for _ in range(2):  # once more, where the process died before the gateway had noted the delivery
            await adapter.deliver(ME, "t_1", _played([TurnFinished("completed", "The answer is 42.")]))
        assert state["turn:t_1"].keys() == {"done_at"}
        assert [sent.text for sent in api.sent] == ["Let me look.", "The answer is 42."]

    clock = SkippingClock()
    _live(story, state=state, clock=clock)


def test_a_long_answer_is_continued_after_the_piece_that_was_sent_last() -> None:
    answer = " ".join(f"word{n}" for n in range(1_500))

    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        blocked = Refused(403, "Forbidden: bot was blocked by the user")
        api.refuse = lambda method, given: blocked if api.sent and method == "sendMessage" else None
        await adapter.deliver(ME, "t_1", _played([TurnFinished("completed", answer)]))
        assert len(api.sent) == 1
        api.refuse = lambda method, given: None
        await adapter.deliver(ME, "t_1", _played([TurnFinished("completed", answer)]))
        assert " ".join(sent.text for sent in api.sent) == answer

    _live(story)


def test_a_photo_that_cannot_be_fetched_is_reported_to_its_sender() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        gone = Refused(400, "Bad Request: invalid file_id")
        api.refuse = lambda method, given: gone if method == "getFile" else None
        api.send_photo(b"\xff\xd8picture")
        api.say("hello")
        await _until(lambda: hub.submitted and api.sent)

        assert "could not be fetched" in api.sent[0].text
        assert [incoming.content for incoming, _ in hub.submitted] == ["hello"]

    _live(story)


@pytest.mark.parametrize(
    ("error", "notice"),
    [(InboxFull("20 messages are already pending here"), "queue is full"), (StoreError("odd"), "not be processed")],
)
def test_a_message_that_cannot_be_queued_is_reported_and_acknowledged(error: StoreError, notice: str) -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        hub.errors.append(error)
        api.say("one too many")
        api.say("hello")
        await _until(lambda: hub.submitted and api.sent)

        assert notice in api.sent[0].text
        assert [incoming.content for incoming, _ in hub.submitted] == ["hello"]

    _live(story)


def test_a_message_stays_with_telegram_while_nothing_can_be_stored() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        hub.errors.extend(StoreUnavailable("the disk is full") for _ in range(3))
        api.say("keep this")
        await _until(lambda: hub.submitted)

        assert [incoming.content for incoming, _ in hub.submitted] == ["keep this"]

    _live(story, clock=SkippingClock())


def test_rejected_commands_for_the_menu_do_not_hold_up_messages() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        invalid = Refused(400, "Bad Request: BOT_COMMAND_INVALID")
        api.refuse = lambda method, given: invalid if method == "setMyCommands" else None
        api.say("hello")
        await _until(lambda: hub.submitted)

    _live(story)


# -- an answer is delivered ------------------------------------------------------------------------------------------


def test_an_answer_is_delivered_although_typing_is_refused() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        refused = Refused(400, "Bad Request: not enough rights")
        api.refuse = lambda method, given: refused if method == "sendChatAction" else None
        ran = ToolStarted(ToolCall("a", "web", "{}"))
        await adapter.deliver(ME, "t_1", _played([ran, TurnFinished("completed", "Done.")]))

        assert [s.text for s in api.sent] == ["Done."]

    _live(story)


@pytest.mark.parametrize(
    "failure",
    [Refused(429, "Too Many Requests: retry after 20", retry_after=20), Refused(502, "Bad Gateway")],
    ids=["rate limit", "outage"],
)
def test_an_answer_survives_minutes_of_failures(failure: Refused) -> None:
    clock = SkippingClock()

    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        api.refuse = lambda method, given: failure if method == "sendMessage" and clock.time_s < 240 else None
        await adapter.deliver(ME, "t_1", _played([TurnFinished("completed", "At last.")]))

        assert [s.text for s in api.sent] == ["At last."]

    _live(story, clock=clock)


def test_an_endless_outage_ends_the_delivery() -> None:
    clock = SkippingClock()

    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        down = Refused(502, "Bad Gateway")
        api.refuse = lambda method, given: down if method == "sendMessage" else None
        await adapter.deliver(ME, "t_1", _played([TurnFinished("completed", "Never.")]))

        assert 600 <= clock.time_s <= 1_800

    _live(story, clock=clock)


@pytest.mark.parametrize("reason", ["message to edit not found", "message can't be edited", "MESSAGE_TOO_LONG"])
def test_an_answer_that_cannot_be_edited_is_sent_anew(reason: str) -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        refused = Refused(400, f"Bad Request: {reason}")
        api.refuse = lambda method, given: refused if method == "editMessageText" else None
        await adapter.deliver(ME, "t_1", _played([TextDelta("All"), TurnFinished("completed", "All of it.")]))

        assert [s.text for s in api.sent] == ["All", "All of it."]

    _live(story)


def test_a_refused_warning_does_not_end_the_delivery() -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        refused = Refused(400, "Bad Request: odd")
        api.refuse = lambda method, given: refused if given.get("text") == "careful" else None
        await adapter.deliver(ME, "t_1", _played([Notice("careful", "warning"), TurnFinished("completed", "Done.")]))

        assert [s.text for s in api.sent] == ["Done."]

    _live(story)


@pytest.mark.parametrize(
    ("choices", "labels"), [((), ["Once", "This session", "Always", "No"]), (("once", "no"), ["Once", "No"])]
)
def test_an_approval_has_the_buttons_of_its_choices(choices: tuple[str, ...], labels: list[str]) -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        events: asyncio.Queue[GatewayEvent] = asyncio.Queue()
        delivering = asyncio.create_task(adapter.deliver(ME, "t_1", _from(events)))
        events.put_nowait(QuestionAsked("q_1", "approval", "cat ~/.ssh/id_rsa", choices))
        await _until(lambda: api.sent and api.sent[-1].keyboard)
        buttons = [button for row in api.sent[-1].keyboard for button in row]
        assert [button["text"] for button in buttons] == labels
        answers = [parse_button(button["callback_data"], str)[1] for button in buttons]
        assert answers == list(choices or get_args(ApprovalAnswer))
        events.put_nowait(TurnFinished("completed", "Done."))
        await delivering

    _live(story)


@pytest.mark.parametrize("length", [4_100, 9_000, 60_000])
def test_a_long_approval_has_buttons_once_and_can_be_closed(length: int) -> None:
    async def story(api: BotApi, hub: ScriptedHub, adapter: Any) -> None:
        command = "".join(f"echo {n}\n" for n in range(length // 8))[: length - 20]
        asked = QuestionAsked("q_1", "approval", command)
        events: asyncio.Queue[GatewayEvent] = asyncio.Queue()
        delivering = asyncio.create_task(adapter.deliver(ME, "t_1", _from(events)))
        events.put_nowait(asked)
        await _until(lambda: api.sent and api.sent[-1].keyboard)
        assert [bool(s.keyboard) for s in api.sent] == [False] * (len(api.sent) - 1) + [True]
        question = len(api.sent)
        events.put_nowait(QuestionClosed("q_1", "once"))
        events.put_nowait(TurnFinished("completed", "Done."))
        await delivering

        assert api.sent[question - 1].text.endswith("\n→ once")
        assert [s.text for s in api.sent[question:]] == ["Done."]
        complete = "".join(s.document[1].decode() if s.document else s.texts[0] for s in api.sent)
        assert command.split() == [word for word in command.split() if word in complete]

    _live(story)


# -- telling ---------------------------------------------------------------------------------------------------------

Story = Callable[[BotApi, ScriptedHub, Any], Awaitable[None]]


class SkippingClock:
    """Time that passes only by waiting, at once."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    async def sleep(self, delay_s: float) -> None:
        self.time_s += delay_s
        await asyncio.sleep(0)


def _live(
    story: Story,
    allowed: tuple[str, ...] = ("7",),
    clock: SkippingClock | None = None,
    state: MemoryState | None = None,
) -> None:
    """A bot that runs, from its start to its stop, with a story in between."""

    async def told() -> None:
        with bot_api() as (api, url):
            timing = {} if clock is None else {"now": clock.now, "sleep": clock.sleep}
            settings = TelegramSettings(allowed_users=allowed, base_url=url)
            adapter = telegram.TelegramAdapter(TOKEN, settings, MemoryState() if state is None else state, **timing)
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
