"""The queues of one process: no message is left behind between the end of one and the start of the next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from perdure.agent.runner import RunningLoop
from perdure.app.runtime import Shared
from perdure.config.load import validate_settings
from perdure.core.events import TextDelta, TurnFinished
from perdure.core.messages import user
from perdure.core.visibility import User
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey, ChatMessage, CommandAnswered, QuestionClosed, Ticket
from perdure.gateway.executor import run_store_write
from perdure.gateway.workers.agent_pool import WiredAgentFactory
from perdure.gateway.workers.hub import Hub
from perdure.store.inbox import InboundMessage, InboxFull, conversation_queue_key
from perdure.store.records import Span
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import Say, Simulator
from perdure.testing.simulator.script import ScriptRequest

ANN = Principal(User("ann"), frozenset(("chat", "read")))


@asynccontextmanager
async def hub_without_sweep(folder: Path, sim: Simulator, store: SessionStore, **gateway: object) -> AsyncIterator[Hub]:
    """A hub whose periodic tasks do not run: a message its queues forget is never found again."""
    model = {"name": "m-1", "provider": "custom", "base_url": sim.base_url, "context_length": 32_000}
    settings = validate_settings({"model": model, "gateway": gateway})
    shared = Shared(settings, home=folder, store=store, loop_thread=RunningLoop(), run_blocking=run_store_write)
    hub = Hub(WiredAgentFactory(shared), store, settings=settings.gateway, clock=shared.clock, ids=shared.ids)
    try:
        yield hub
    finally:
        await hub.drain(2)
        await shared.transport.aclose()


async def _say(hub: Hub, chat: ChatKey, text: str) -> TurnFinished:
    return await _end_of(hub, await hub.submit(ChatMessage(chat, text), ANN))


async def _end_of(hub: Hub, ticket: Ticket) -> TurnFinished:
    async for sequenced in hub.turn_events(ticket):
        if isinstance(sequenced.event, TurnFinished):
            return sequenced.event
    raise AssertionError("the stream ended without a final event")


async def _conversation_of(hub: Hub, ticket: Ticket) -> str:
    """Return the conversation of a message once its answer streams."""
    async for sequenced in hub.turn_events(ticket):
        if isinstance(sequenced.event, TextDelta):
            conversation_id = hub.store.inbox.get(ticket.turn_id).conversation_id
            assert conversation_id is not None
            return conversation_id
    raise AssertionError("the stream ended without text")


def _typed(store: SessionStore, conversation_id: str) -> list[str]:
    entries = store.log.read(conversation_id, Span(1, 100))
    return [e.message.text for e in entries if e.message.is_real_user]


def _slow_first(asked: ScriptRequest) -> Say:
    """An answer that only a stop ends, for a message that asks for it."""
    if str(asked.body["messages"][-1]["content"]).startswith("slowly"):
        return Say("word " * 20_000, chunk_chars=5, chunk_delay_s=0.02)
    return Say("Noted.")


async def _wait_until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        await asyncio.sleep(0.01)


@pytest.mark.spec("I8")
def test_messages_sent_the_moment_the_one_before_ends_are_all_answered(tmp_path: Path) -> None:
    async def talk(sim: Simulator, store: SessionStore) -> None:
        async with hub_without_sweep(tmp_path, sim, store) as hub:

            async def chat(number: int) -> None:
                for i in range(5):
                    end = await _say(hub, ChatKey("http", ANN.user, f"chat-{number}"), f"{number}/{i}")
                    assert end.outcome == "completed"

            await asyncio.wait_for(asyncio.gather(*(chat(n) for n in range(4))), 40)

    with Simulator(script=lambda asked: "Noted.") as sim, open_store(tmp_path / "perdure.db") as store:
        asyncio.run(talk(sim, store))
        assert store.inbox.count_pending() == 0
        lengths = [c.last_seq for c in store.conversations.list(limit=10).conversations]
        assert lengths == [10] * 4


@pytest.mark.spec("J4", "P6")
def test_a_stop_ends_a_turn_once_and_the_next_message_is_answered(tmp_path: Path) -> None:
    slow = Say("word " * 400, chunk_chars=5, chunk_delay_s=0.02)

    async def talk(sim: Simulator, store: SessionStore) -> tuple[str, str]:
        async with hub_without_sweep(tmp_path, sim, store) as hub:
            chat = ChatKey("http", ANN.user)
            ticket = await hub.submit(ChatMessage(chat, "first"), ANN)
            ends = []
            async for sequenced in hub.turn_events(ticket):
                if isinstance(sequenced.event, TextDelta):
                    await hub.stop(chat, ANN)
                    await hub.stop(chat, ANN)
                elif isinstance(sequenced.event, TurnFinished):
                    ends.append(sequenced.event.outcome)
            (first,) = ends
            return first, (await _say(hub, chat, "second")).final_response

    with (
        Simulator(script=lambda asked: "Second." if "second" in str(asked.body["messages"][-1]) else slow) as sim,
        open_store(tmp_path / "perdure.db") as store,
    ):
        assert asyncio.run(asyncio.wait_for(talk(sim, store), 40)) == ("interrupted", "Second.")


@pytest.mark.spec("I8", "P6")
def test_a_message_stopped_while_it_waits_for_its_conversation_is_stored(tmp_path: Path) -> None:
    async def talk(sim: Simulator, store: SessionStore) -> tuple[str, list[str]]:
        async with hub_without_sweep(tmp_path, sim, store) as hub:
            chat = ChatKey("http", ANN.user)
            await _say(hub, chat, "first")
            await _wait_until(lambda: hub.running == 0)  # its lease is released
            (conversation,) = store.conversations.list(limit=2).conversations
            lease = store.leases.acquire(conversation.id, "another process")
            ticket = await hub.submit(ChatMessage(chat, "second"), ANN)
            await _wait_until(lambda: hub.running == 1)
            assert await hub.stop(chat, ANN)
            store.leases.release(lease)
            ends = [s.event async for s in hub.turn_events(ticket) if isinstance(s.event, TurnFinished)]
            return ends[-1].outcome, _typed(store, conversation.id)

    with Simulator(script=lambda asked: "Noted.") as sim, open_store(tmp_path / "perdure.db") as store:
        assert asyncio.run(asyncio.wait_for(talk(sim, store), 40)) == ("interrupted", ["first", "second"])


@pytest.mark.spec("P6")
def test_a_stop_leaves_a_message_that_waits_for_the_turn_of_another_queue(tmp_path: Path) -> None:
    slow = Say("word " * 2_000, chunk_chars=5, chunk_delay_s=0.02)

    def answer(asked: ScriptRequest) -> Say:
        last = str(asked.body["messages"][-1])
        return slow if "slowly" in last and "second" not in last else Say("Noted.")

    async def talk(sim: Simulator, store: SessionStore) -> tuple[str, str]:
        async with hub_without_sweep(tmp_path, sim, store) as hub:
            chat = ChatKey("http", ANN.user)
            await _say(hub, chat, "hello")
            await _wait_until(lambda: hub.running == 0)
            (conversation,) = store.conversations.list(limit=2).conversations
            first = await hub.submit(ChatMessage(chat, "slowly", conversation_id=conversation.id), ANN)
            ends: list[TurnFinished] = []
            second: Ticket | None = None
            async for sequenced in hub.turn_events(first):
                if isinstance(sequenced.event, TextDelta) and second is None:
                    second = await hub.submit(ChatMessage(chat, "second"), ANN)  # the chat's current conversation
                    await _wait_until(lambda: hub.running == 2)
                    await hub.stop(chat, ANN)
                elif isinstance(sequenced.event, TurnFinished):
                    ends.append(sequenced.event)
            assert second is not None
            async for sequenced in hub.turn_events(second):
                if isinstance(sequenced.event, TurnFinished):
                    ends.append(sequenced.event)
            return ends[0].outcome, ends[1].final_response

    with (
        Simulator(script=answer) as sim,
        open_store(tmp_path / "perdure.db") as store,
    ):
        assert asyncio.run(asyncio.wait_for(talk(sim, store), 40)) == ("interrupted", "Noted.")


@pytest.mark.spec("J4", "P6")
def test_a_stop_gets_through_a_full_queue(tmp_path: Path) -> None:
    async def talk(sim: Simulator, store: SessionStore) -> tuple[str, str, list[str]]:
        async with hub_without_sweep(tmp_path, sim, store, max_queued=1) as hub:
            chat = ChatKey("http", ANN.user)
            first = await hub.submit(ChatMessage(chat, "slowly"), ANN)
            await _wait_until(lambda: bool(sim.requests))
            second = await hub.submit(ChatMessage(chat, "second"), ANN)
            with pytest.raises(InboxFull):
                await hub.submit(ChatMessage(chat, "third"), ANN)
            stop = await hub.submit(ChatMessage(chat, "/stop", key="k"), ANN)
            again = await hub.submit(ChatMessage(chat, "/stop", key="k"), ANN)
            assert (stop.state, again.turn_id) == ("done", stop.turn_id)
            answer = [s.event async for s in hub.turn_events(stop) if isinstance(s.event, CommandAnswered)]
            ends = [await _end_of(hub, ticket) for ticket in (first, second)]
            return answer[0].text, ends[0].outcome, [ends[1].outcome, ends[1].final_response]

    with Simulator(script=_slow_first) as sim, open_store(tmp_path / "perdure.db") as store:
        outcome = asyncio.run(asyncio.wait_for(talk(sim, store), 40))
        assert outcome == ("Stopped.", "interrupted", ["completed", "Noted."])


@pytest.mark.spec("A4", "P6")
@pytest.mark.parametrize("is_admin", [False, True])
def test_the_answer_to_a_stop_is_in_the_stream_of_its_chat(is_admin: bool, tmp_path: Path) -> None:
    async def talk(sim: Simulator, store: SessionStore) -> tuple[list[str], bool]:
        async with hub_without_sweep(tmp_path, sim, store) as hub:
            sender = Principal(ANN.user, ANN.scopes | {"admin"}) if is_admin else ANN
            chat = ChatKey("http", ANN.user)
            streams = [hub.feeds.chat(chat, visibility=v) for v in (sender.visibility, ANN.visibility)]
            reading = [asyncio.create_task(anext(stream)) for stream in streams]
            await asyncio.sleep(0)  # both have subscribed
            await hub.submit(ChatMessage(chat, "/stop"), sender)
            events = [s.event for s in await reading[0]]
            # Both subscribers are woken by the same call.
            is_seen_by_plain_token = (await asyncio.wait(reading[1:], timeout=0.1))[0] != set()
            for task in reading:
                task.cancel()
            return [e.text for e in events if isinstance(e, CommandAnswered)], is_seen_by_plain_token

    with Simulator() as sim, open_store(tmp_path / "perdure.db") as store:
        texts, is_seen_by_plain_token = asyncio.run(asyncio.wait_for(talk(sim, store), 40))
        assert texts == ["Nothing was running."]
        # Commands of administrators may answer with data of any user.
        assert is_seen_by_plain_token is not is_admin


@pytest.mark.spec("I8")
@pytest.mark.parametrize("is_woken_late", [False, True])
def test_a_message_stored_behind_a_turn_runs_whenever_its_queue_is_woken(is_woken_late: bool, tmp_path: Path) -> None:
    """The turn of the chat may end between the write of the next message and the call that wakes its queue."""

    async def talk(sim: Simulator, store: SessionStore) -> None:
        async with hub_without_sweep(tmp_path, sim, store) as hub:
            chat = ChatKey("http", ANN.user)
            first = await hub.submit(ChatMessage(chat, "slowly"), ANN)
            await _wait_until(lambda: bool(sim.requests))
            here = store.inbox.get(first.turn_id).conversation_id
            assert here is not None
            key = conversation_queue_key(here)
            named = InboundMessage("t_second", key, "http", ANN.user, "main", "second", ("chat",), conversation_id=here)
            stored = store.inbox.enqueue(named, owner=hub.owner, ttl_ms=60_000)
            if not is_woken_late:
                hub.queues.wake(stored.queued, is_first=stored.is_first)
            await hub.stop(chat, ANN)
            await _end_of(hub, first)
            if is_woken_late:
                await _wait_until(lambda: not hub.queues.is_busy)
                hub.queues.wake(stored.queued, is_first=stored.is_first)
            await _wait_until(lambda: store.inbox.get("t_second").state == "done")
            assert (store.inbox.get("t_second").result or {})["outcome"] == "completed"
            assert _typed(store, here) == ["slowly", "second"]

    with Simulator(script=_slow_first) as sim, open_store(tmp_path / "perdure.db") as store:
        asyncio.run(asyncio.wait_for(talk(sim, store), 40))


@pytest.mark.spec("I8", "P6")
def test_no_message_is_lost_or_left_waiting_in_two_hundred_new_chats_with_stops(tmp_path: Path) -> None:
    chosen = random.Random(7)

    async def new_chat(hub: Hub, store: SessionStore, name: str) -> None:
        chat = ChatKey("http", ANN.user, name)
        first = await hub.submit(ChatMessage(chat, f"slowly {name}"), ANN)
        here = await _conversation_of(hub, first)
        order = chosen.choice(["stop last", "stop between", "at once"])
        second = partial(hub.submit, ChatMessage(chat, f"second {name}", conversation_id=here), ANN)
        third = partial(hub.submit, ChatMessage(chat, f"third {name}"), ANN)
        if order == "at once":
            *tickets, _ = await asyncio.gather(second(), third(), hub.stop(chat, ANN))
        else:
            tickets = [await second()]
            if order == "stop between":
                await hub.stop(chat, ANN)
            tickets.append(await third())
            if order == "stop last":
                await hub.stop(chat, ANN)
        ends = [await _end_of(hub, ticket) for ticket in (first, *tickets)]
        assert ends[0].outcome == "interrupted", (name, order)
        assert [end.outcome for end in ends[1:]] == ["completed", "completed"], (name, order)
        assert sorted(_typed(store, here)) == sorted(f"{word} {name}" for word in ("slowly", "second", "third"))

    async def talk(sim: Simulator, store: SessionStore) -> None:
        async with hub_without_sweep(tmp_path, sim, store) as hub:
            for batch in range(20):
                await asyncio.gather(*(new_chat(hub, store, f"chat-{batch}-{n}") for n in range(10)))

    with Simulator(script=_slow_first) as sim, open_store(tmp_path / "perdure.db") as store:
        asyncio.run(asyncio.wait_for(talk(sim, store), 120))
        assert store.inbox.count_pending() == 0


def test_a_question_of_a_turn_that_another_process_began_is_withdrawn(tmp_path: Path) -> None:
    async def talk(sim: Simulator, store: SessionStore) -> list[object]:
        async with hub_without_sweep(tmp_path, sim, store) as hub:
            session = store.create(user_key="ann")
            here, key = session.conversation_id, conversation_queue_key(session.conversation_id)
            named = InboundMessage("t_1", key, "http", ANN.user, "main", "go", ("chat",), conversation_id=here)
            queued = store.inbox.enqueue(named, owner=hub.owner, ttl_ms=60_000).queued
            assert store.inbox.begin(queued, conversation_id=here, seq=0)
            store.append(session.id, [user("go")])
            question = {
                "kind": "approval", "text": "make deploy", "choices": [], "reason": "", "scopes": [], "turn_id": "t_1",
                "chat": ["http", "ann", "main"], "expires_at": 10**15, "answer": None, "conversation_of": "ann",
            }  # fmt: skip
            store.state("questions").set("q_1", question)
            assert await hub.open_questions(ANN)
            hub.queues.wake(store.inbox.get("t_1"))
            events = [s.event async for s in hub.turn_events(Ticket("t_1", here, "running", ChatKey("http", ANN.user)))]
            assert await hub.open_questions(ANN) == []
            return list(events)

    with Simulator(script=lambda asked: "Noted.") as sim, open_store(tmp_path / "perdure.db") as store:
        events = asyncio.run(asyncio.wait_for(talk(sim, store), 40))
    assert QuestionClosed("q_1", "") in events
    assert isinstance(events[-1], TurnFinished)
