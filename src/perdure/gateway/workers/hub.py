"""The hub: where endpoints and adapters submit messages and subscribe to events.

submit → inbox in the store → queue of the conversation, or of the chat if the message names none → `workers.worker` →
events to the chat's subscribers and to the adapter of its platform. Accepted messages and their results are in the
store, so that another process can take over; streamed events are buffered in this process alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping

from perdure.commands.command import Commands, is_command
from perdure.commands.registry import all_commands
from perdure.config.settings import GatewaySettings, WhileBusy
from perdure.core.errors import InvalidMessage, NotFound
from perdure.core.messages import parse_user_message
from perdure.core.ports import Clock
from perdure.core.visibility import EVERYONE
from perdure.gateway.adapters.base import Adapter, PendingDeliveries, PlatformDelivery
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import GatewayStopping, IdempotencyKeyReused
from perdure.gateway.events.access import is_visible_to
from perdure.gateway.events.broker import EventBroker, OnEvent
from perdure.gateway.events.serialize import is_same_message, to_result
from perdure.gateway.events.subscribe import EventFeeds
from perdure.gateway.events.types import (
    ChatKey,
    ChatMessage,
    CommandAnswered,
    SequencedEvent,
    Ticket,
)
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.agent_pool import AgentFactory, AgentPool, LeaseRenewer
from perdure.gateway.workers.maintenance import PeriodicTasks
from perdure.gateway.workers.precompaction import WorkerStats
from perdure.gateway.workers.questions import OpenQuestion, QuestionRegistry
from perdure.gateway.workers.queue import OWNERSHIP_TTL_MS, ConversationQueues, is_owner_dead
from perdure.gateway.workers.routing import ChatRouting, queue_key, stop_queue_key
from perdure.gateway.workers.scheduler import Scheduler
from perdure.gateway.workers.worker import WorkerContext
from perdure.store.encoding import IdSource
from perdure.store.inbox import EnqueueResult, InboundMessage, QueuedMessage
from perdure.store.leases import holder_id
from perdure.store.store import SessionStore

MAX_NAME_CHARS = 200
# Limit the parts of one message: each is parsed and validated several times before a model call.
MAX_PARTS = 1_000
# Timeout for turns that were interrupted at shutdown.
_ABANDON_S = 10.0


class Hub:
    """The core of a gateway process: accepts messages, runs their queues and publishes events.

    Create it inside the running loop; call `start` first and `drain` last.
    """

    def __init__(
        self,
        factory: AgentFactory,
        store: SessionStore,
        *,
        settings: GatewaySettings,
        clock: Clock,
        ids: IdSource,
        while_busy: WhileBusy = "queue",
        adapters: Mapping[str, Adapter] | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.store = store
        self.owner = f"{holder_id()}#{secrets.token_hex(4)}"
        self.commands: Commands = all_commands()
        self.broker = EventBroker(clock, on_event=on_event)
        self.stats = WorkerStats()
        self._settings = settings
        self._while_busy = while_busy
        self.clock = clock
        self._ids = ids
        self._adapters = dict(adapters or {})
        pending = PendingDeliveries(store, clock, owner=self.owner, is_dead=is_owner_dead)
        self._delivery = PlatformDelivery(self._adapters, self.broker, pending)
        self.feeds = EventFeeds(self.broker, store, owner=self.owner)
        self.questions = QuestionRegistry(store, self.broker, clock=clock, timeout_s=settings.question_timeout_s)
        self.leases = LeaseRenewer(store)
        self.pool = AgentPool(
            factory,
            store,
            questions=self.questions,
            leases=self.leases,
            clock=clock,
            max_agents=settings.max_live_agents,
            idle_s=settings.idle_close_s,
        )
        context = WorkerContext(
            store,
            self.pool,
            ChatRouting(store),
            self.broker,
            self.commands,
            self.stats,
            clock,
            self._delivery,
            self.questions,
        )
        self.queues = ConversationQueues(context, owner=self.owner)
        self.scheduler = Scheduler(store, self.queues, owner=self.owner, clock=clock, ids=ids)
        self._periodic_tasks = PeriodicTasks(
            context,
            self.queues,
            leases=self.leases,
            questions=self.questions,
            scheduler=self.scheduler if settings.run_schedules else None,
            owner=self.owner,
            idle_s=settings.idle_close_s,
        )

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the periodic tasks, then the adapters."""
        self._periodic_tasks.start()
        for adapter in self._adapters.values():
            await adapter.start(self)
        self._delivery.open()

    def start_alone(self) -> None:
        """Start to process the messages of this process only: no adapters, no schedules, no takeovers."""
        self._periodic_tasks.start_own()

    @property
    def is_draining(self) -> bool:
        return self.queues.is_stopping

    @property
    def running(self) -> int:
        """The number of messages being processed."""
        return len(self.queues.jobs)

    async def drain(
        self,
        timeout_s: float,
        *,
        hurried: asyncio.Event | None = None,
        on_wait: Callable[[int, float], None] = lambda running, timeout_s: None,
    ) -> None:
        """Stop accepting messages, let turns finish within the timeout, and release the rest to other processes.

        Turns that wait for a person's answer are released at once, and all of them when `hurried` is set. `on_wait` is
        called if any other is running.
        """
        self.queues.stop()
        for adapter in self._adapters.values():
            await adapter.stop()
        if working := sum(not self.questions.is_asking(job.queued.id) for job in self.queues.jobs):
            on_wait(working, timeout_s)
        await self.queues.finish(timeout_s, is_stuck=self.questions.is_asking, hurried=hurried or asyncio.Event())
        self.queues.abandon()
        await self.queues.wait(_ABANDON_S)
        await self._periodic_tasks.stop()
        await run_blocking(self.store.inbox.release_all, self.owner)
        self.broker.close()
        await self._delivery.wait(_ABANDON_S)
        for adapter in self._adapters.values():
            await adapter.close()
        await self.pool.close()

    # -- messages ------------------------------------------------------------------------------------------------------

    async def submit(self, incoming: ChatMessage, principal: Principal) -> Ticket:
        """Store and queue a message.

        Raises InvalidMessage, NotFound, InboxFull, ConversationBusy, IdempotencyKeyReused, GatewayStopping.
        """
        if self.is_draining:
            raise GatewayStopping("the gateway is shutting down; try again in a moment")
        result = await run_blocking(self._enqueue, incoming, principal)
        queued, key = result.queued, result.queued.inbound.queue_key
        if not result.is_new:
            return _ticket(queued)
        if _is_stop(queued.inbound.content):
            return await self._answer_stop(queued, incoming.chat, principal)
        if not result.is_first and self._while_busy == "interrupt" and not _is_slash_command(queued.inbound.content):
            await self._interrupt(key)
        self.queues.wake(queued, is_first=result.is_first)
        return Ticket(queued.id, None, "running" if result.is_first else "queued", incoming.chat)

    def _enqueue(self, incoming: ChatMessage, principal: Principal) -> EnqueueResult:
        """Validate and store; runs in a worker thread."""
        inbound, max_waiting = self._validate(incoming, principal), self._settings.max_queued
        result = self.store.inbox.enqueue(
            inbound,
            owner=self.owner,
            ttl_ms=OWNERSHIP_TTL_MS,
            max_pending=max_waiting,
            only_at=incoming.only_at,
        )
        if not result.is_new and not is_same_message(result.queued, inbound):
            raise IdempotencyKeyReused("this idempotency key was used for another message; use a new key")
        return result

    async def stop(self, chat: ChatKey, principal: Principal) -> bool:
        """Interrupt the chat's turn in whichever process runs it; return whether there was one.

        Messages queued after that turn run next. If none has started yet, the oldest one is kept from starting, and
        the log has its text.
        """
        if chat.user != principal.user:
            raise NotFound(f"no chat {chat.chat!r}")
        matching = [job for job in self.queues.jobs if job.chat == chat and not job.is_finished]
        started = [job for job in matching if job.has_started]
        for job in started:
            job.stop()
        if started:
            return True
        if await run_blocking(self.store.inbox.stop_chat, chat.platform, chat.user, chat.chat):
            return True
        waiting = [job for job in matching if not job.is_finished]
        if waiting:
            min(waiting, key=lambda job: job.queued.number).stop()
        return bool(waiting)

    async def stop_message(self, turn_id: str, principal: Principal) -> bool:
        """Interrupt one of the principal's own messages, in whichever process runs it. Raises NotFound."""
        queued = await self.get_message(turn_id, principal)
        if queued.inbound.user != principal.user:
            raise NotFound(f"no message {turn_id!r}")
        matching = [job for job in self.queues.jobs if job.queued.id == turn_id and not job.is_finished]
        for job in matching:
            job.stop()
        return bool(matching) or await run_blocking(self.store.inbox.stop_message, turn_id)

    async def list_unanswered(self, conversation_id: str, principal: Principal) -> list[QueuedMessage]:
        """Return the principal's running and queued messages of a conversation, oldest first. Raises NotFound."""

        def read_unanswered() -> list[QueuedMessage]:
            conversation = self.store.conversations.get(conversation_id, visibility=principal.visibility)
            return [t for t in self.store.inbox.pending(conversation.id) if t.inbound.user == principal.user]

        return await run_blocking(read_unanswered)

    async def answer(self, question_id: str, text: str, principal: Principal) -> None:
        """Answer an approval request or a question. Raises NotFound if it is closed or belongs to another user."""
        await self.questions.answer(question_id, text, principal)

    async def open_questions(self, principal: Principal) -> list[OpenQuestion]:
        return await self.questions.open_for(principal)

    async def get_message(self, turn_id: str, principal: Principal) -> QueuedMessage:
        """Return a message by its id. Raises NotFound, also for a message that is not visible to the principal."""

        def read() -> QueuedMessage:
            queued = self.store.inbox.get(turn_id)
            if not is_visible_to(principal.visibility, queued, self.store):
                raise NotFound(f"no message {turn_id!r}")
            return queued

        return await run_blocking(read)

    # -- events --------------------------------------------------------------------------------------------------------

    async def events(self, chat: ChatKey, *, after: int | None = None) -> AsyncIterator[SequencedEvent]:
        """Stream the events of a chat; with `after`, first replay the buffered ones since that number."""
        async for batch in self.feeds.chat(chat, visibility=EVERYONE, after=after):
            for sequenced in batch:
                yield sequenced

    async def turn_events(self, ticket: Ticket) -> AsyncIterator[SequencedEvent]:
        """Stream the events of one message up to its final one; of a message run by another process, only that one."""
        async for batch in self.feeds.turn(ticket, visibility=EVERYONE):
            for sequenced in batch:
                yield sequenced

    # -- stop ----------------------------------------------------------------------------------------------------------

    def stop_turns(self, turn_ids: Collection[str]) -> None:
        """Interrupt messages that this process is running."""
        self.queues.stop_turns(turn_ids)

    async def _interrupt(self, key: str) -> None:
        job = self.queues.job_of(key)
        if job is not None:
            job.stop()
        else:
            await run_blocking(self.store.inbox.stop_queue, key)

    async def _answer_stop(self, queued: QueuedMessage, chat: ChatKey, principal: Principal) -> Ticket:
        """Answer `/stop` at once, without queueing it after the turn it stops."""
        self._delivery.start(chat, queued.id)
        was_running = await self.stop(chat, principal)
        event = CommandAnswered("Stopped." if was_running else "Nothing was running.")
        await run_blocking(self.store.inbox.finish, queued, to_result(event), conversation_id=None)
        self.broker.publish(chat, queued.id, event, required_visibility=principal.visibility)
        return Ticket(queued.id, None, "done")

    # -- internals -----------------------------------------------------------------------------------------------------

    def _validate(self, incoming: ChatMessage, principal: Principal) -> InboundMessage:
        """Validate a message for the inbox; runs in a worker thread, since it reads the store."""
        chat = incoming.chat
        if chat.user != principal.user:
            raise NotFound(f"no chat {chat.chat!r}")
        for name in (chat.chat, incoming.key):
            if len(name) > MAX_NAME_CHARS:
                raise InvalidMessage(f"chat names and keys have at most {MAX_NAME_CHARS} characters")
        parts = incoming.content.get("content") if isinstance(incoming.content, Mapping) else None
        if isinstance(parts, list) and len(parts) > MAX_PARTS:
            raise InvalidMessage(f"a message has at most {MAX_PARTS:,} parts, and this one has {len(parts):,}")
        content = incoming.content
        if isinstance(content, Mapping):
            content = parse_user_message(content).to_dict()
        elif content is not None:
            parse_user_message(content)
        elif not incoming.options.results:
            raise InvalidMessage("the message is empty")
        conversation_id = None
        if incoming.conversation_id is not None:
            conversation_id = self.store.conversations.get(incoming.conversation_id, visibility=principal.visibility).id
        return InboundMessage(
            self._ids.new("t_"),
            stop_queue_key(chat) if _is_stop(content) else queue_key(chat, conversation_id),
            chat.platform,
            chat.user,
            chat.chat,
            content,
            tuple(sorted(principal.scopes)),
            incoming.key or None,
            incoming.options.to_dict(),
            conversation_id,
        )


def _ticket(queued: QueuedMessage) -> Ticket:
    """Return the ticket for a message that an earlier request with the same idempotency key has stored."""
    return Ticket(queued.id, queued.conversation_id, "queued" if queued.state == "waiting" else queued.state)


def _is_slash_command(content: object) -> bool:
    return isinstance(content, str) and is_command(content)


def _is_stop(content: object) -> bool:
    return isinstance(content, str) and content.strip().lower() == "/stop"
