"""The queues of one process: no message is left behind between the end of one and the start of the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.agent.runner import RunningLoop
from perdure.app.runtime import Shared
from perdure.config.load import validate_settings
from perdure.core.events import TextDelta, TurnFinished
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey, ChatMessage
from perdure.gateway.executor import run_shielded
from perdure.gateway.workers.agent_pool import WiredAgentFactory
from perdure.gateway.workers.hub import Hub
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import Say, Simulator

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
