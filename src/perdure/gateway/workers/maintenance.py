"""Periodic tasks of a gateway process: heartbeat, orphan recovery, lease renewal, schedules and cleanup."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from perdure.core.errors import StoreError
from perdure.core.ports import Clock
from perdure.gateway.events.access import required_visibility
from perdure.gateway.events.serialize import finished_event
from perdure.gateway.events.types import ChatKey
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.agent_pool import RENEW_INTERVAL_S as LEASE_RENEW_INTERVAL_S
from perdure.gateway.workers.agent_pool import LeaseRenewer
from perdure.gateway.workers.questions import QuestionRegistry
from perdure.gateway.workers.queue import OWNERSHIP_TTL_MS, ConversationQueues, is_owner_dead
from perdure.gateway.workers.scheduler import Scheduler
from perdure.gateway.workers.worker import WorkerContext
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)

HEARTBEAT_S, ORPHANS_S, CLEANUP_S, PURGE_S = 1.0, 2.0, 30.0, 600.0
# How long the result of a message is stored, for clients that retry with its idempotency key.
RESULT_TTL_MS = 7 * 86_400_000
# How long the histories of OpenAI clients without a conversation name are stored; later they start a new one.
HISTORY_TTL_MS, MAX_HISTORIES = 90 * 86_400_000, 200_000
# Tolerance for clock skew between machines.
_OVERLAP_MS = 3_000


class PeriodicTasks:
    """The background tasks of a process; after a store error a task is retried at its next interval."""

    def __init__(
        self,
        context: WorkerContext,
        queues: ConversationQueues,
        *,
        leases: LeaseRenewer,
        questions: QuestionRegistry,
        scheduler: Scheduler | None,
        owner: str,
        idle_s: float,
    ) -> None:
        self._context = context
        self._queues = queues
        self._leases = leases
        self._questions = questions
        self._scheduler = scheduler
        self._owner = owner
        self._idle_s = idle_s
        self._tasks: list[asyncio.Task[None]] = []
        self._last_check_ms = 0
        self._published: dict[str, int] = {}

    def start(self) -> None:
        """Start all periodic tasks of a gateway process."""
        self.start_own()
        self._run(HEARTBEAT_S, self._publish_remote_answers)
        self._run(ORPHANS_S, self._take_over_orphans)
        self._run(CLEANUP_S, self._clean_up)
        self._run(PURGE_S, self._purge)
        if self._scheduler is not None:
            self._run(HEARTBEAT_S, self._scheduler.run_due)

    def start_own(self) -> None:
        """Start only the tasks that the messages of this process need: no takeovers, no schedules."""
        self._run(HEARTBEAT_S, self._heartbeat)
        self._run(LEASE_RENEW_INTERVAL_S, self._leases.renew_all)

    def _run(self, interval_s: float, task: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(_run_every(interval_s, task)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _heartbeat(self) -> None:
        if self._queues.is_busy:
            stops = await run_blocking(self._context.store.inbox.renew, self._owner, ttl_ms=OWNERSHIP_TTL_MS)
            self._queues.stop_turns(stops)

    async def _take_over_orphans(self) -> None:
        """Claim messages of dead processes, requeue own ones whose lease expired, and resume deliveries."""
        if self._queues.is_stopping:
            return
        inbox = self._context.store.inbox
        for queued in await run_blocking(inbox.orphans, is_dead=is_owner_dead):
            if queued.owner == self._owner:
                self._queues.wake(queued)  # owned by this process, but its queue was lost
                continue
            if await run_blocking(inbox.claim, queued, owner=self._owner, ttl_ms=OWNERSHIP_TTL_MS) is not None:
                _log.info("took over %s from %s", queued.id, queued.owner)
                self._context.stats.takeovers += 1
                self._queues.wake(queued)
        await self._context.delivery.recover()

    async def _publish_remote_answers(self) -> None:
        """Publish answers written by other processes to the local subscribers of their chats."""
        now_ms = self._context.clock.now_ms()
        since_ms, self._last_check_ms = (self._last_check_ms or now_ms) - _OVERLAP_MS, now_ms
        subscribed = set(self._context.broker.subscribed_chats())
        if not subscribed:
            return
        for queued in await run_blocking(self._context.store.inbox.completed_elsewhere, self._owner, since_ms=since_ms):
            inbound = queued.inbound
            chat = ChatKey(inbound.platform, inbound.user, inbound.chat)
            if chat in subscribed and queued.id not in self._published:
                required = await run_blocking(required_visibility, queued, self._context.store)
                event = finished_event(queued.result, queued.conversation_id)
                self._context.broker.publish(chat, queued.id, event, required_visibility=required)
            self._published[queued.id] = now_ms
        self._published = {k: ms for k, ms in self._published.items() if ms > now_ms - 10 * _OVERLAP_MS}

    async def _clean_up(self) -> None:
        await self._context.pool.close_idle()
        self._context.broker.drop_idle(idle_s=self._idle_s, busy=[job.chat for job in self._queues.jobs])
        await self._questions.forget_expired()

    async def _purge(self) -> None:
        await run_blocking(purge_expired, self._context.store, self._context.clock)


def purge_expired(store: SessionStore, clock: Clock) -> None:
    """Delete expired results and client histories."""
    now_ms = clock.now_ms()
    store.inbox.purge(before_ms=now_ms - RESULT_TTL_MS)
    store.client_histories.purge(before_ms=now_ms - HISTORY_TTL_MS, limit=MAX_HISTORIES)


async def _run_every(interval_s: float, task: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            await task()
        except StoreError as error:
            _log.warning("the store is unavailable: %s", type(error).__name__)
        except Exception:  # a missing heartbeat would look like a dead process
            _log.exception("a periodic task failed")
