"""What a process does again and again: says it is alive, looks for work nobody does, and lets go of what is idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from perdure.core.errors import StoreError
from perdure.core.ports import Clock
from perdure.gateway.events.broker import Streams
from perdure.gateway.events.types import ChatKey
from perdure.gateway.executor import in_thread
from perdure.gateway.workers.agent_pool import BEAT_S as LEASE_BEAT_S
from perdure.gateway.workers.agent_pool import AgentPool, LeaseRenewer
from perdure.gateway.workers.precompaction import HygieneCounts
from perdure.gateway.workers.questions import QuestionBoard
from perdure.gateway.workers.queue import OWNED_MS, is_owner_gone
from perdure.gateway.workers.worker import finished_event
from perdure.store.inbox import QueuedMessage
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)

ALIVE_S, ORPHANS_S, TIDY_S, FORGET_S = 1.0, 2.0, 30.0, 600.0
# What came of a message is told again for a week to a sender who repeats its key.
KEPT_MS = 7 * 86_400_000
# Where clients of OpenAI's API are that name no conversation; one that comes back later still begins a new one.
PLACES_KEPT_MS, MOST_PLACES = 90 * 86_400_000, 200_000
# Clocks of several machines differ a little.
_OVERLAP_MS = 3_000


class Process(Protocol):
    """The hub, as its beats see it."""

    store: SessionStore
    owner: str
    clock: Clock
    streams: Streams
    hygiene: HygieneCounts
    leases: LeaseRenewer
    pool: AgentPool
    questions: QuestionBoard

    @property
    def is_busy(self) -> bool: ...

    @property
    def is_draining(self) -> bool: ...

    @property
    def busy_chats(self) -> list[ChatKey]: ...

    def stop_turns(self, turn_ids: Collection[str]) -> None: ...

    def wake(self, taken: QueuedMessage) -> None: ...


class PeriodicTasks:
    """The hub's own tasks. A store that fails now is asked again at the next beat."""

    def __init__(self, hub: Process, *, idle_s: float) -> None:
        self._hub = hub
        self._idle_s = idle_s
        self._tasks: list[asyncio.Task[None]] = []
        self._looked_ms = 0
        self._told: dict[str, int] = {}

    def start(self) -> None:
        rounds: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (ALIVE_S, self._alive),
            (ALIVE_S, self._answered_elsewhere),
            (ORPHANS_S, self._orphans),
            (LEASE_BEAT_S, self._hub.leases.beat),
            (TIDY_S, self._tidy),
            (FORGET_S, self.forget),
        )
        self._tasks = [asyncio.create_task(_every(every_s, work)) for every_s, work in rounds]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _alive(self) -> None:
        if self._hub.is_busy:
            stops = await in_thread(self._hub.store.inbox.renew, self._hub.owner, ttl_ms=OWNED_MS)
            self._hub.stop_turns(stops)

    async def _orphans(self) -> None:
        """Takes over what processes that died or fell silent had taken."""
        if self._hub.is_draining:
            return
        inbox = self._hub.store.inbox
        for taken in await in_thread(inbox.orphans, is_dead=is_owner_gone):
            if taken.owner == self._hub.owner:
                self._hub.wake(taken)  # ours, though no lane works on it: its lane was lost
                continue
            if await in_thread(inbox.claim, taken, owner=self._hub.owner, ttl_ms=OWNED_MS) is not None:
                _log.info("took over %s from %s", taken.id, taken.owner)
                self._hub.hygiene.taken_over += 1
                self._hub.wake(taken)

    async def _answered_elsewhere(self) -> None:
        """Tells those who follow a chat here what another process answered in it."""
        now_ms = self._hub.clock.now_ms()
        since_ms, self._looked_ms = (self._looked_ms or now_ms) - _OVERLAP_MS, now_ms
        followed = set(self._hub.streams.followed())
        if not followed:
            return
        for taken in await in_thread(self._hub.store.inbox.completed_elsewhere, self._hub.owner, since_ms=since_ms):
            letter = taken.inbound
            chat = ChatKey(letter.platform, letter.user_key, letter.chat)
            if chat in followed and taken.id not in self._told:
                self._hub.streams.publish(chat, taken.id, finished_event(taken.result, taken.conversation_id))
            self._told[taken.id] = now_ms
        self._told = {k: ms for k, ms in self._told.items() if ms > now_ms - 10 * _OVERLAP_MS}

    async def _tidy(self) -> None:
        await self._hub.pool.close_idle()
        self._hub.streams.drop_idle(idle_s=self._idle_s, busy=self._hub.busy_chats)
        await self._hub.questions.forget_expired()

    async def forget(self) -> None:
        """Drops what nobody will ask for again: answers, and places of clients."""
        store, now_ms = self._hub.store, self._hub.clock.now_ms()
        await in_thread(store.inbox.purge, before_ms=now_ms - KEPT_MS)
        await in_thread(store.client_histories.purge, before_ms=now_ms - PLACES_KEPT_MS, limit=MOST_PLACES)


async def _every(every_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except StoreError as error:
            _log.warning("the store could not be reached: %s", type(error).__name__)
        except Exception:  # a beat that stops would look like a process that died
            _log.exception("a beat failed")
