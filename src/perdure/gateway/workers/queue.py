"""The queues of a process: each runs the messages of one chat or conversation, one at a time, oldest first.

The order holds across processes: a message owned by another process is waited for; one whose owner died is claimed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

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


class ConversationQueues:
    """All queues of this process, by key. A queue exists while this process owns messages of it."""

    def __init__(self, context: WorkerContext, *, owner: str) -> None:
        self._context = context
        self._owner = owner
        self._stopping = asyncio.Event()
        self._queues: dict[str, _ConversationQueue] = {}

    def wake(self, queued: QueuedMessage, *, is_first: bool = False) -> None:
        """Pass a message that this process owns to its queue; `is_first` if the queue was empty when it was stored."""
        queue = self._queues.get(queued.inbound.queue_key)
        if queue is None or queue.is_over:
            queue = self._start(queued.inbound.queue_key, first=queued if is_first else None)
        queue.pending.add(queued.id)

    def _start(self, key: str, *, first: QueuedMessage | None) -> _ConversationQueue:
        queue = _ConversationQueue(key, self._context, owner=self._owner, stopping=self._stopping, first=first)
        self._queues[key] = queue

        def drop(_: asyncio.Task[None]) -> None:
            if self._queues.get(key) is queue:
                del self._queues[key]

        queue.task.add_done_callback(drop)
        return queue

    @property
    def is_busy(self) -> bool:
        """Whether this process has messages that are not answered yet."""
        return bool(self._queues)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def jobs(self) -> list[MessageJob]:
        """The messages being processed."""
        return [queue.running for queue in self._queues.values() if queue.running is not None]

    def job_of(self, key: str) -> MessageJob | None:
        """Return the message that a queue is processing."""
        queue = self._queues.get(key)
        return queue.running if queue is not None else None

    def stop_turns(self, turn_ids: Collection[str]) -> None:
        """Interrupt running turns, for stop requests that reached another process."""
        for job in self.jobs:
            if job.queued.id in turn_ids:
                job.stop()

    def stop(self) -> None:
        """Start no more messages; those being processed go on."""
        self._stopping.set()

    def abandon(self) -> None:
        """Interrupt the messages being processed and leave them to another process."""
        for job in self.jobs:
            job.abandon()

    async def finish(self, timeout_s: float, *, is_stuck: Callable[[str], bool], hurried: asyncio.Event) -> None:
        """Wait for the messages being processed until `hurried` is set; those that are stuck are abandoned."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while self._queues and not hurried.is_set() and (left_s := deadline_s - loop.time()) > 0:
            for job in self.jobs:
                if is_stuck(job.queued.id):
                    job.abandon()
            await self.wait(min(_MIN_POLL_S, left_s))

    async def wait(self, timeout_s: float) -> None:
        """Wait for the messages being processed."""
        tasks = [queue.task for queue in self._queues.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)


class _ConversationQueue:
    """Runs the messages of one queue for as long as this process owns any of them."""

    def __init__(
        self, key: str, context: WorkerContext, *, owner: str, stopping: asyncio.Event, first: QueuedMessage | None
    ) -> None:
        self.key = key
        self._context = context
        self._owner = owner
        self._stopping = stopping
        # Ids of messages to run here, and the one known to be the oldest.
        self.pending: set[str] = set()
        self._first = first
        self.running: MessageJob | None = None
        # Runs from the next iteration of the loop on, when `pending` has its first message.
        self.task = asyncio.create_task(self._drain(), name=f"queue {key}")

    @property
    def is_over(self) -> bool:
        """Whether the queue has ended, all messages answered, so that it would not see new ones."""
        return self.task.done()

    async def _drain(self) -> None:
        while self.pending and not self._stopping.is_set():
            try:
                await self._run_next()
            except StoreError as error:
                # The message stays pending: it is in the store, and is retried once that is reachable.
                _log.warning("queue %s: store error (%s)", self.key, type(error).__name__)
                await asyncio.sleep(_STORE_PAUSE_S)

    async def _run_next(self) -> None:
        pending = set(self.pending)
        queued, self._first = self._first or await self._claim_next(), None
        if queued is None:  # everything added before the read was answered by another process
            self.pending -= pending
            return
        self.running = MessageJob(queued, self._context)
        try:
            await run_job(self.running)
            self.pending.discard(queued.id)
        finally:
            self.running = None

    async def _claim_next(self) -> QueuedMessage | None:
        """Return the oldest message once this process owns it; None if the queue is empty."""
        inbox, poll_s = self._context.store.inbox, _MIN_POLL_S
        while not self._stopping.is_set():
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
