"""The queues of one process: no message is left behind between the end of one and the start of the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.agent.runner import RunningLoop
from perdure.app.runtime import Shared
from perdure.config.load import validate_settings
from perdure.core.events import TextDelta, TurnFinished
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey, ChatMessage, Ticket
from perdure.gateway.executor import run_shielded
from perdure.gateway.workers.agent_pool import WiredAgentFactory
from perdure.gateway.workers.hub import Hub
from perdure.store.records import Span
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import Say, Simulator
from perdure.testing.simulator.script import ScriptRequest

ANN = Principal("ann", frozenset(("chat", "read")))


@asynccontextmanager
async def hub_without_sweep(folder: Path, sim: Simulator, store: SessionStore) -> AsyncIterator[Hub]:
    """A hub whose periodic tasks do not run: a message its queues forget is never found again."""
    model = {"name": "m-1", "provider": "custom", "base_url": sim.base_url, "context_length": 32_000}
    settings = validate_settings({"model": model})
    shared = Shared(settings, home=folder, store=store, bridge=RunningLoop(), keep=run_shielded)
    hub = Hub(WiredAgentFactory(shared), store, settings=settings.gateway, clock=shared.clock, ids=shared.ids)
    try:
        yield hub
    finally:
        await hub.drain(2)
        await shared.transport.aclose()


async def _say(hub: Hub, chat: ChatKey, text: str) -> TurnFinished:
    ticket = await hub.submit(ChatMessage(chat, text), ANN)
    async for sequenced in hub.turn_events(ticket):
        if isinstance(sequenced.event, TurnFinished):
            return sequenced.event
    raise AssertionError("the stream ended without a final event")


async def _wait_until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        await asyncio.sleep(0.01)


@pytest.mark.spec("I8")
def test_messages_sent_the_moment_the_one_before_ends_are_all_answered(tmp_path: Path) -> None:
    async def talk(sim: Simulator, store: SessionStore) -> None:
        async with hub_without_sweep(tmp_path, sim, store) as hub:

            async def chat(number: int) -> None:
                for i in range(5):
                    end = await _say(hub, ChatKey("http", "ann", f"chat-{number}"), f"{number}/{i}")
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
            chat = ChatKey("http", "ann")
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
            chat = ChatKey("http", "ann")
            await _say(hub, chat, "first")
            await _wait_until(lambda: hub.running == 0)  # its lease is released
            (conversation,) = store.conversations.list(limit=2).conversations
            lease = store.leases.acquire(conversation.id, "another process")
            ticket = await hub.submit(ChatMessage(chat, "second"), ANN)
            await _wait_until(lambda: hub.running == 1)
            assert await hub.stop(chat, ANN)
            store.leases.release(lease)
            ends = [s.event async for s in hub.turn_events(ticket) if isinstance(s.event, TurnFinished)]
            entries = store.log.read(conversation.id, Span(1, 100))
            return ends[-1].outcome, [e.message.text for e in entries if e.message.is_real_user]

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
            chat = ChatKey("http", "ann")
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
