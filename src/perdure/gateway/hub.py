"""The hub: every door hands messages in here, and every answer goes out from here.

submit → the inbox, on disk → the chat's or the conversation's lane → `running` → events into the chat's stream, and to
the adapter of its platform. Nothing here is needed to find a message again: that is all in the store.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Mapping

from perdure.commands.command import Commands
from perdure.commands.registry import all_commands
from perdure.config.settings import GatewaySettings
from perdure.core.errors import InvalidMessage, NotFound
from perdure.core.messages import parse_user_message
from perdure.core.ports import Clock
from perdure.gateway.adapters.base import Adapter
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.broker import EventBroker, OnEvent
from perdure.gateway.events.subscribe import EventFeeds, PlatformDelivery
from perdure.gateway.events.types import (
    ChatKey,
    ChatMessage,
    CommandAnswered,
    Draining,
    KeyReused,
    SequencedEvent,
    Ticket,
)
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.agent_pool import AgentFactory, AgentPool, LeaseRenewer
from perdure.gateway.workers.maintenance import PeriodicTasks
from perdure.gateway.workers.precompaction import WorkerStats
from perdure.gateway.workers.questions import OpenQuestion, QuestionRegistry
from perdure.gateway.workers.queue import OWNERSHIP_TTL_MS, ConversationQueue
from perdure.gateway.workers.routing import ChatRouting, queue_key
from perdure.gateway.workers.worker import WorkerContext, is_same_message, to_result
from perdure.store.ids import IdSource
from perdure.store.inbox import EnqueueResult, InboundMessage, QueuedMessage
from perdure.store.leases import holder_id
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)
MAX_NAME_CHARS = 200
# Parts of one message: each is looked at several times before a model sees it.
MAX_PARTS = 1_000
# How long a turn that was told to end may take to do so.
_ABANDON_S = 10.0


class Hub:
    """All conversations of one process. Made within its running loop; `start` before use, `drain` at the end."""

    def __init__(
        self,
        factory: AgentFactory,
        store: SessionStore,
        *,
        settings: GatewaySettings,
        clock: Clock,
        ids: IdSource,
        adapters: Mapping[str, Adapter] | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.store = store
        self.owner = f"{holder_id()}#{secrets.token_hex(4)}"
        self.commands: Commands = all_commands()
        self.broker = EventBroker(clock, on_event=on_event)
        self.stats = WorkerStats()
        self._settings = settings
        self.clock = clock
        self._ids = ids
        self._adapters = dict(adapters or {})
        self._queues: dict[str, ConversationQueue] = {}
        self._delivery = PlatformDelivery(self._adapters, self.broker)
        self.feeds = EventFeeds(self.broker, store, owner=self.owner)
        self._is_draining = self._is_abandoning = False
        self.questions = QuestionRegistry(
            store,
            self.broker,
            clock=clock,
            timeout_s=settings.question_timeout_s,
            is_attended=self._is_attended,
        )
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
        self._context = WorkerContext(
            store,
            self.pool,
            ChatRouting(store),
            self.broker,
            self.commands,
            self.stats,
            clock,
            factory.route_to,
            self._delivery.start,
        )
        self._periodic_tasks = PeriodicTasks(self, idle_s=settings.idle_close_s)

    # -- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begins to look after what it owns and what nobody owns; adapters begin to take messages."""
        self._periodic_tasks.start()
        for adapter in self._adapters.values():
            await adapter.start(self)

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def is_busy(self) -> bool:
        """Whether anything was taken here that is not answered yet."""
        return bool(self._queues)

    @property
    def running(self) -> int:
        """Messages being worked on right now."""
        return sum(queue.running is not None for queue in self._queues.values())

    async def drain(self, timeout_s: float) -> None:
        """Takes nothing more, lets turns finish for a while, and leaves the rest to another process."""
        self._is_draining = True
        for adapter in self._adapters.values():
            await adapter.stop()
        await self._settle(timeout_s)
        self._is_abandoning = True
        for queue in list(self._queues.values()):
            if queue.running is not None:
                queue.running.abandon()
        await self._settle(_ABANDON_S)
        await self._periodic_tasks.stop()
        await run_blocking(self.store.inbox.release_all, self.owner)
        self.broker.close()
        await self._delivery.wait(_ABANDON_S)
        for adapter in self._adapters.values():
            await adapter.close()
        await self.pool.close()

    # -- messages ----------------------------------------------------------------------------------------------------

    async def submit(self, incoming: ChatMessage, principal: Principal) -> Ticket:
        """Takes a message, durably. Raises InvalidMessage, NotFound, InboxFull, KeyReused, Draining."""
        if self._is_draining:
            raise Draining("this gateway is stopping; send it again in a moment")
        result = await run_blocking(self._enqueue, incoming, principal)
        queued, key = result.queued, result.queued.inbound.queue_key
        if not result.is_new:
            return _ticket(queued)
        if _is_stop(queued.inbound.content):
            return await self._answer_stop(queued, incoming.chat, principal)
        if not result.is_first and self._settings.while_busy == "interrupt":
            await self._interrupt(key)
        self.wake(queued, is_first=result.is_first)
        return Ticket(queued.id, None, "running" if result.is_first else "queued", incoming.chat)

    def _enqueue(self, incoming: ChatMessage, principal: Principal) -> EnqueueResult:
        """In a thread."""
        inbound, max_waiting = self._validate(incoming, principal), self._settings.max_queued
        result = self.store.inbox.enqueue(inbound, owner=self.owner, ttl_ms=OWNERSHIP_TTL_MS, max_pending=max_waiting)
        if not result.is_new and not is_same_message(result.queued, inbound.content):
            raise KeyReused("this idempotency key was used for another message; take a new key for a new message")
        return result

    async def stop(self, chat: ChatKey, principal: Principal) -> bool:
        """Interrupts the chat's turn, wherever it runs; whether there was one."""
        if chat.user_key != principal.user_key:
            raise NotFound(f"no chat {chat.chat!r}")
        jobs = [queue.running for queue in self._queues.values() if queue.running is not None]
        matching = [job for job in jobs if job.chat == chat and not job.is_finished]
        for job in matching:
            job.stop()
        return bool(matching) or await run_blocking(self.store.inbox.stop_chat, chat.platform, chat.user_key, chat.chat)

    async def stop_message(self, turn_id: str, principal: Principal) -> bool:
        """Interrupts one message of a person's own, wherever it is worked on. Raises NotFound."""
        queued = await self.get_message(turn_id, principal)
        if queued.inbound.user_key != principal.user_key:
            raise NotFound(f"no message {turn_id!r} was taken")
        jobs = [queue.running for queue in self._queues.values() if queue.running is not None]
        matching = [job for job in jobs if job.queued.id == turn_id and not job.is_finished]
        for job in matching:
            job.stop()
        return bool(matching) or await run_blocking(self.store.inbox.stop_message, turn_id)

    async def unanswered(self, conversation_id: str, principal: Principal) -> list[QueuedMessage]:
        """What a person said in a conversation that is worked on or waits, oldest first. Raises NotFound."""

        def read_unanswered() -> list[QueuedMessage]:
            conversation = self.store.conversations.get(conversation_id, visibility=principal.visibility)
            return [t for t in self.store.inbox.pending(conversation.id) if t.inbound.user_key == principal.user_key]

        return await run_blocking(read_unanswered)

    async def answer(self, question_id: str, text: str, principal: Principal) -> None:
        """Answers an approval or a question. Raises NotFound once it is closed, or was never this person's."""
        await self.questions.answer(question_id, text, principal)

    async def open_questions(self, principal: Principal) -> list[OpenQuestion]:
        return await self.questions.open_for(principal)

    async def get_message(self, turn_id: str, principal: Principal) -> QueuedMessage:
        """A message by its id. Raises NotFound, also for somebody else's."""
        queued = await run_blocking(self.store.inbox.get, turn_id)
        if not principal.visibility.includes(queued.inbound.user_key):
            raise NotFound(f"no message {turn_id!r} was taken")
        return queued

    # -- events ------------------------------------------------------------------------------------------------------

    async def events(self, chat: ChatKey, *, after: int | None = None) -> AsyncIterator[SequencedEvent]:
        """What happens in a chat, live; with `after`, first what is still known since then."""
        async for batch in self.feeds.chat(chat, after=after):
            for sequenced in batch:
                yield sequenced

    async def turn_events(self, ticket: Ticket) -> AsyncIterator[SequencedEvent]:
        """The events of one message, up to its last; of one that ran elsewhere, its end."""
        async for batch in self.feeds.turn(ticket):
            for sequenced in batch:
                yield sequenced

    # -- lanes -------------------------------------------------------------------------------------------------------

    def wake(self, queued: QueuedMessage, *, is_first: bool = False) -> None:
        """A message of ours waits in its lane."""
        self._queue_for(queued.inbound.queue_key).add(queued.id, self._drop_if_idle, first=queued if is_first else None)

    def stop_turns(self, turn_ids: Collection[str]) -> None:
        """Interrupts turns of ours that were asked to stop through another process."""
        for queue in self._queues.values():
            if queue.running is not None and queue.running.queued.id in turn_ids:
                queue.running.stop()

    @property
    def busy_chats(self) -> list[ChatKey]:
        return [queue.running.chat for queue in self._queues.values() if queue.running is not None]

    def _queue_for(self, key: str) -> ConversationQueue:
        if key not in self._queues:
            self._queues[key] = ConversationQueue(
                key, self._context, owner=self.owner, is_stopping=lambda: self._is_draining or self._is_abandoning
            )
        return self._queues[key]

    def _drop_if_idle(self, queue: ConversationQueue) -> None:
        if queue.is_idle:
            self._queues.pop(queue.key, None)

    async def _interrupt(self, key: str) -> None:
        job = self._queue_for(key).running
        if job is not None:
            job.stop()
        else:
            await run_blocking(self.store.inbox.stop_queue, key)

    async def _answer_stop(self, queued: QueuedMessage, chat: ChatKey, principal: Principal) -> Ticket:
        """`/stop` waits for nothing: it is answered at once."""
        self._delivery.start(chat, queued.id)
        was_running = await self.stop(chat, principal)
        event = CommandAnswered("Stopped." if was_running else "Nothing was running.")
        await run_blocking(self.store.inbox.finish, queued, to_result(event), conversation_id=None)
        self.broker.publish(chat, queued.id, event)
        return Ticket(queued.id, None, "done")

    # -- within ------------------------------------------------------------------------------------------------------

    def _validate(self, incoming: ChatMessage, principal: Principal) -> InboundMessage:
        """The message as it is kept, checked. In a thread: whose the conversation is, the store knows."""
        chat = incoming.chat
        if chat.user_key != principal.user_key:
            raise NotFound(f"no chat {chat.chat!r}")
        for name in (chat.chat, incoming.key):
            if len(name) > MAX_NAME_CHARS:
                raise InvalidMessage(f"the name of a chat or key has at most {MAX_NAME_CHARS} characters")
        parts = incoming.content.get("content") if isinstance(incoming.content, Mapping) else None
        if isinstance(parts, list) and len(parts) > MAX_PARTS:
            raise InvalidMessage(f"a message has at most {MAX_PARTS:,} parts, and this one has {len(parts):,}")
        message = parse_user_message(incoming.content)
        conversation_id = None
        if incoming.conversation_id is not None:
            conversation_id = self.store.conversations.get(incoming.conversation_id, visibility=principal.visibility).id
        return InboundMessage(
            self._ids.new("t_"),
            queue_key(chat, conversation_id),
            chat.platform,
            chat.user_key,
            chat.chat,
            incoming.content if isinstance(incoming.content, str) else message.to_dict(),
            tuple(sorted(principal.scopes)),
            incoming.key,
        )

    def _is_attended(self, chat: ChatKey) -> bool:
        return self.broker.channel(chat).has_subscribers

    async def _settle(self, timeout_s: float) -> None:
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None and not queue.is_idle]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)


def _ticket(queued: QueuedMessage) -> Ticket:
    """The ticket of a message that was known already."""
    return Ticket(queued.id, queued.conversation_id, "queued" if queued.state == "waiting" else queued.state)


def _is_stop(content: object) -> bool:
    return isinstance(content, str) and content.strip().lower() == "/stop"
