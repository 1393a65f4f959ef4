"""One lane: its messages one after the other, oldest first, whichever process took them.

What another process owns is waited for; what nobody owns any more is taken over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure.core.errors import StoreError
from perdure.gateway.executor import in_thread
from perdure.gateway.workers.worker import MessageJob, WorkerContext, work_through
from perdure.store.inbox import QueuedMessage
from perdure.store.leases import is_holder_dead

_log = logging.getLogger(__name__)
# A process says at every beat that it still works on what it owns; one silent for as long as this has lost it.
OWNED_MS = 15_000
# How soon the end of another process's message is noticed.
_FIRST_LOOK_S, _LAST_LOOK_S = 0.05, 0.5
_STORE_PAUSE_S = 1.0


def is_owner_gone(owner: str) -> bool:
    """Whether an owner on this machine has died, so that nobody need wait for it to fall silent."""
    return is_holder_dead(owner.partition("#")[0])


class ConversationQueue:
    """Runs what waits in one lane, as long as there is anything of ours in it."""

    def __init__(self, key: str, desk: WorkerContext, *, owner: str, is_leaving: Callable[[], bool]) -> None:
        self.key = key
        self._desk = desk
        self._owner = owner
        self._is_leaving = is_leaving
        self._task: asyncio.Task[None] | None = None
        # Messages of ours that are to be run here, and the one that is known to be next.
        self._due: set[str] = set()
        self._first: QueuedMessage | None = None
        self.running: MessageJob | None = None

    @property
    def is_idle(self) -> bool:
        return self._task is None or self._task.done()

    @property
    def task(self) -> asyncio.Task[None] | None:
        return self._task

    def add(
        self, message_id: str, on_idle: Callable[[ConversationQueue], None], *, first: QueuedMessage | None = None
    ) -> None:
        """A message of ours waits here; `first` where it is known that nothing waits before it."""
        self._due.add(message_id)
        if self.is_idle:
            self._first = first
            self._task = asyncio.create_task(self._go(), name=f"lane {self.key}")
            self._task.add_done_callback(lambda _: on_idle(self))

    async def _go(self) -> None:
        while self._due and not self._is_leaving():
            try:
                await self._step()
            except StoreError as error:
                # What is due stays due: it is in the store, and waits there until that can be reached again.
                _log.warning("lane %s: the store failed (%s)", self.key, type(error).__name__)
                await asyncio.sleep(_STORE_PAUSE_S)

    async def _step(self) -> None:
        known = set(self._due)
        taken, self._first = self._first or await self._next(), None
        if taken is None:  # whatever was added before the look has been answered elsewhere
            self._due -= known
            return
        self.running = MessageJob(taken, self._desk)
        try:
            await work_through(self.running)
            self._due.discard(taken.id)
        finally:
            self.running = None

    async def _next(self) -> QueuedMessage | None:
        """The oldest message once it is ours; None where nothing waits."""
        inbox, look_s = self._desk.store.inbox, _FIRST_LOOK_S
        while not self._is_leaving():
            first = await in_thread(inbox.first, self.key)
            if first is None or first.owner == self._owner:
                return first
            now_ms = self._desk.clock.now_ms()
            if first.expires_at_ms <= now_ms or await in_thread(is_owner_gone, first.owner):
                claimed = await in_thread(inbox.claim, first, owner=self._owner, ttl_ms=OWNED_MS)
                if claimed is not None:
                    self._desk.hygiene.taken_over += 1
                    return claimed
                continue
            await asyncio.sleep(look_s)
            look_s = min(look_s * 1.5, _LAST_LOOK_S)
        return None
