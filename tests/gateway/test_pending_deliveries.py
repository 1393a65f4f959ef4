"""Answers that a process stored but could not deliver are delivered by the next one, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.events import TextDelta, TurnFinished
from perdure.core.visibility import OWNER, User
from perdure.gateway.adapters.base import GatewayPort, PendingDeliveries, PlatformDelivery
from perdure.gateway.events.broker import EventBroker
from perdure.gateway.events.serialize import to_result
from perdure.gateway.events.types import ChatKey, SequencedEvent
from perdure.store.inbox import InboundMessage
from perdure.store.store import SessionStore, open_store

CHAT = ChatKey("room", User("ann"), "1")
ANSWER = TurnFinished("completed", "Here it is.")


class RoomAdapter:
    """Remembers what it delivers."""

    platform = "room"

    def __init__(self) -> None:
        self.delivered: list[tuple[str, str]] = []

    async def start(self, hub: GatewayPort) -> None:
        """Nothing to receive."""

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        async for sequenced in events:
            if isinstance(sequenced.event, TurnFinished):
                self.delivered.append((turn_id, sequenced.event.final_response))

    async def stop(self) -> None:
        """Nothing to stop."""

    async def close(self) -> None:
        """Nothing to close."""


def _store_answer(store: SessionStore, turn_id: str, *, is_done: bool = True) -> None:
    inbound = InboundMessage(turn_id, "q", CHAT.platform, CHAT.user, CHAT.chat, "hello")
    queued = store.inbox.enqueue(inbound, owner="p1", ttl_ms=60_000).queued
    if is_done:
        store.inbox.finish(queued, to_result(ANSWER), conversation_id=None)


def _pending(store: SessionStore, owner: str, *, dead: tuple[str, ...] = ()) -> PendingDeliveries:
    return PendingDeliveries(store, SystemClock(), owner=owner, is_dead=lambda holder: holder in dead)


async def _recover(store: SessionStore, owner: str, *, dead: tuple[str, ...]) -> list[tuple[str, str]]:
    adapter = RoomAdapter()
    delivery = PlatformDelivery({"room": adapter}, EventBroker(SystemClock()), _pending(store, owner, dead=dead))
    delivery.open()
    await delivery.recover()
    await delivery.wait(30)
    return adapter.delivered


@pytest.mark.spec("I1")
def test_the_answer_of_a_dead_process_is_delivered_once(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        _store_answer(store, "t_1")
        _pending(store, "p1").begin("t_1")

        assert asyncio.run(_recover(store, "p2", dead=("p1",))) == [("t_1", "Here it is.")]
        assert asyncio.run(_recover(store, "p3", dead=("p1", "p2"))) == []


def test_what_a_live_process_delivers_or_a_turn_still_runs_is_left_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        _store_answer(store, "t_1")
        _store_answer(store, "t_2", is_done=False)
        for turn_id, owner in (("t_1", "alive"), ("t_2", "p1")):
            _pending(store, owner).begin(turn_id)

        assert asyncio.run(_recover(store, "p2", dead=("p1",))) == []


def test_of_two_processes_one_takes_a_delivery_over(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        _store_answer(store, "t_1")
        _pending(store, "p1").begin("t_1")
        state = store.state("deliveries")
        record = state.get("t_1")

        assert state.swap("t_1", record, {"owner": "p2", "at": 1})
        assert not state.swap("t_1", record, {"owner": "p3", "at": 1})


def test_a_turn_that_ends_here_is_noted_and_one_that_is_released_stays(tmp_path: Path) -> None:
    async def deliver(store: SessionStore, turn_id: str, *, is_final: bool) -> None:
        broker = EventBroker(SystemClock())
        delivery = PlatformDelivery({"room": RoomAdapter()}, broker, _pending(store, "p1"))
        delivery.start(CHAT, turn_id)
        publish = partial(broker.publish, required_visibility=OWNER)
        publish(CHAT, turn_id, TextDelta("Here"))
        if is_final:
            publish(CHAT, turn_id, ANSWER)
        else:
            broker.close()
        await delivery.wait(30)

    with open_store(tmp_path / "p.db") as store:
        asyncio.run(deliver(store, "t_1", is_final=True))
        asyncio.run(deliver(store, "t_2", is_final=False))
        assert store.state("deliveries").list_keys() == ["t_2"]


def test_nothing_is_recovered_before_the_adapters_have_started(tmp_path: Path) -> None:
    async def recover_early(store: SessionStore) -> list[tuple[str, str]]:
        adapter = RoomAdapter()
        pending = _pending(store, "p2", dead=("p1",))
        await PlatformDelivery({"room": adapter}, EventBroker(SystemClock()), pending).recover()
        return adapter.delivered

    with open_store(tmp_path / "p.db") as store:
        _store_answer(store, "t_1")
        _pending(store, "p1").begin("t_1")
        assert asyncio.run(recover_early(store)) == []
        assert store.state("deliveries").list_keys() == ["t_1"]
