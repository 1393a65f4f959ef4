"""The queue of one conversation: process its messages one at a time, oldest first, across processes.

A message owned by another process is waited for; one whose owner died is claimed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure.core.errors import StoreError
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.worker import MessageJob, WorkerContext, run_job
from perdure.store.inbox import QueuedMessage
from perdure.store.leases import is_holder_dead

_log = logging.getLogger(__name__)
# Ownership of a message expires without a heartbeat for this long.
OWNERSHIP_TTL_MS = 15_000
# Polling interval for the end of another process's message.
_MIN_POLL_S, _MAX_POLL_S = 0.05, 0.5
_STORE_PAUSE_S = 1.0


def is_owner_dead(owner: str) -> bool:
    """Return whether the owner is a dead process of this machine, whose expiry need not be awaited."""
    return is_holder_dead(owner.partition("#")[0])


class ConversationQueue:
    """Runs the messages of one queue for as long as this process owns any of them."""

    def __init__(self, key: str, context: WorkerContext, *, owner: str, is_stopping: Callable[[], bool]) -> None:
        self.key = key
        self._context = context
        self._owner = owner
        self._is_stopping = is_stopping
        self._task: asyncio.Task[None] | None = None
        # Ids of messages to run here, and the one known to be the oldest.
        self._pending: set[str] = set()
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
        """Add a message; `first` if the queue was empty when it was stored."""
        self._pending.add(message_id)
        if self.is_idle:
            self._first = first
            self._task = asyncio.create_task(self._drain(), name=f"queue {self.key}")
            self._task.add_done_callback(lambda _: on_idle(self))

    async def _drain(self) -> None:
        while self._pending and not self._is_stopping():
            try:
                await self._run_next()
            except StoreError as error:
                # The message stays pending: it is in the store, and is retried once that is reachable.
                _log.warning("queue %s: store error (%s)", self.key, type(error).__name__)
                await asyncio.sleep(_STORE_PAUSE_S)

    async def _run_next(self) -> None:
        pending = set(self._pending)
        queued, self._first = self._first or await self._claim_next(), None
        if queued is None:  # everything added before the read was answered by another process
            self._pending -= pending
            return
        self.running = MessageJob(queued, self._context)
        try:
            await run_job(self.running)
            self._pending.discard(queued.id)
        finally:
            self.running = None

    async def _claim_next(self) -> QueuedMessage | None:
        """Return the oldest message once this process owns it; None if the queue is empty."""
        inbox, poll_s = self._context.store.inbox, _MIN_POLL_S
        while not self._is_stopping():
            first = await run_blocking(inbox.first, self.key)
            if first is None or first.owner == self._owner:
                return first
            now_ms = self._context.clock.now_ms()
            if first.expires_at_ms <= now_ms or await run_blocking(is_owner_dead, first.owner):
                claimed = await run_blocking(inbox.claim, first, owner=self._owner, ttl_ms=OWNERSHIP_TTL_MS)
                if claimed is not None:
                    self._context.stats.takeovers += 1
                    return claimed
                continue
            await asyncio.sleep(poll_s)
            poll_s = min(poll_s * 1.5, _MAX_POLL_S)
        return None
