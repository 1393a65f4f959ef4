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
from perdure.core.messages import Message, TextPart
from perdure.core.ports import Clock
from perdure.gateway.adapters.base import Adapter
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.broker import Streams, Watch
from perdure.gateway.events.subscribe import Deliveries, Following
from perdure.gateway.events.types import (
    ChatKey,
    ChatMessage,
    CommandAnswered,
    Draining,
    KeyReused,
    SequencedEvent,
    Ticket,
)
from perdure.gateway.executor import in_thread
from perdure.gateway.workers.agent_pool import AgentMaker, AgentPool, LeaseRenewer
from perdure.gateway.workers.maintenance import PeriodicTasks
from perdure.gateway.workers.precompaction import HygieneCounts
from perdure.gateway.workers.questions import OpenQuestion, QuestionBoard
from perdure.gateway.workers.queue import OWNED_MS, ConversationQueue
from perdure.gateway.workers.routing import ChatRouting, lane_of
from perdure.gateway.workers.worker import WorkerContext, is_message_of, result_of
from perdure.store.ids import IdSource
from perdure.store.inbox import EnqueueResult, InboundMessage, QueuedMessage
from perdure.store.leases import holder_id
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)
MOST_NAME_CHARS = 200
# Parts of one message: each is looked at several times before a model sees it.
MOST_PARTS = 1_000
# How long a turn that was told to end may take to do so.
_ABANDON_S = 10.0


class Hub:
    """All conversations of one process. Made within its running loop; `start` before use, `drain` at the end."""

    def __init__(
        self,
        maker: AgentMaker,
        store: SessionStore,
        *,
        settings: GatewaySettings,
        clock: Clock,
        ids: IdSource,
        adapters: Mapping[str, Adapter] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.store = store
        self.owner = f"{holder_id()}#{secrets.token_hex(4)}"
        self.commands: Commands = all_commands()
        self.streams = Streams(clock, watch=watch)
        self.hygiene = HygieneCounts()
        self._settings = settings
        self.clock = clock
        self._ids = ids
        self._adapters = dict(adapters or {})
        self._lanes: dict[str, ConversationQueue] = {}
        self._deliveries = Deliveries(self._adapters, self.streams)
        self.following = Following(self.streams, store, owner=self.owner)
        self._is_draining = self._is_leaving = False
        self.questions = QuestionBoard(
            store,
            self.streams,
            clock=clock,
            timeout_s=settings.question_timeout_s,
            is_attended=self._is_attended,
        )
        self.leases = LeaseRenewer(store)
        self.pool = AgentPool(
            maker,
            store,
            questions=self.questions,
            leases=self.leases,
            clock=clock,
            most=settings.max_live_agents,
            idle_s=settings.idle_close_s,
        )
        self._desk = WorkerContext(
            store,
            self.pool,
            ChatRouting(store),
            self.streams,
            self.commands,
            self.hygiene,
            clock,
            maker.route_to,
            self._deliveries.begin,
        )
        self._beats = PeriodicTasks(self, idle_s=settings.idle_close_s)

    # -- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begins to look after what it owns and what nobody owns; adapters begin to take messages."""
        self._beats.start()
        for adapter in self._adapters.values():
            await adapter.start(self)

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def is_busy(self) -> bool:
        """Whether anything was taken here that is not answered yet."""
        return bool(self._lanes)

    @property
    def running(self) -> int:
        """Messages being worked on right now."""
        return sum(lane.running is not None for lane in self._lanes.values())

    async def drain(self, timeout_s: float) -> None:
        """Takes nothing more, lets turns finish for a while, and leaves the rest to another process."""
        self._is_draining = True
        for adapter in self._adapters.values():
            await adapter.stop()
        await self._settle(timeout_s)
        self._is_leaving = True
        for lane in list(self._lanes.values()):
            if lane.running is not None:
                lane.running.abandon()
        await self._settle(_ABANDON_S)
        await self._beats.stop()
        await in_thread(self.store.inbox.release_all, self.owner)
        self.streams.close()
        await self._deliveries.settle(_ABANDON_S)
        for adapter in self._adapters.values():
            await adapter.close()
        await self.pool.close()

    # -- messages ----------------------------------------------------------------------------------------------------

    async def submit(self, incoming: ChatMessage, person: Principal) -> Ticket:
        """Takes a message, durably. Raises InvalidMessage, NotFound, InboxFull, KeyReused, Draining."""
        if self._is_draining:
            raise Draining("this gateway is stopping; send it again in a moment")
        receipt = await in_thread(self._take, incoming, person)
        taken, lane = receipt.queued, receipt.queued.inbound.queue_key
        if not receipt.is_new:
            return _ticket(taken)
        if _is_stop(taken.inbound.content):
            return await self._stopped(taken, incoming.chat, person)
        if not receipt.is_first and self._settings.while_busy == "interrupt":
            await self._interrupt(lane)
        self.wake(taken, is_first=receipt.is_first)
        return Ticket(taken.id, None, "running" if receipt.is_first else "queued", incoming.chat)

    def _take(self, incoming: ChatMessage, person: Principal) -> EnqueueResult:
        """In a thread."""
        letter, most = self._letter(incoming, person), self._settings.max_queued
        receipt = self.store.inbox.enqueue(letter, owner=self.owner, ttl_ms=OWNED_MS, max_pending=most)
        if not receipt.is_new and not is_message_of(receipt.queued, letter.content):
            raise KeyReused("this idempotency key was used for another message; take a new key for a new message")
        return receipt

    async def stop(self, chat: ChatKey, person: Principal) -> bool:
        """Interrupts the chat's turn, wherever it runs; whether there was one."""
        if chat.user_key != person.user_key:
            raise NotFound(f"no chat {chat.chat!r}")
        runs = [lane.running for lane in self._lanes.values() if lane.running is not None]
        here = [run for run in runs if run.chat == chat and not run.is_over]
        for run in here:
            run.stop()
        return bool(here) or await in_thread(self.store.inbox.stop_chat, chat.platform, chat.user_key, chat.chat)

    async def stop_message(self, turn_id: str, person: Principal) -> bool:
        """Interrupts one message of a person's own, wherever it is worked on. Raises NotFound."""
        taken = await self.taken(turn_id, person)
        if taken.inbound.user_key != person.user_key:
            raise NotFound(f"no message {turn_id!r} was taken")
        runs = [lane.running for lane in self._lanes.values() if lane.running is not None]
        here = [run for run in runs if run.taken.id == turn_id and not run.is_over]
        for run in here:
            run.stop()
        return bool(here) or await in_thread(self.store.inbox.stop_message, turn_id)

    async def unanswered(self, conversation_id: str, person: Principal) -> list[QueuedMessage]:
        """What a person said in a conversation that is worked on or waits, oldest first. Raises NotFound."""

        def look() -> list[QueuedMessage]:
            found = self.store.conversations.get(conversation_id, visibility=person.visibility)
            return [t for t in self.store.inbox.pending(found.id) if t.inbound.user_key == person.user_key]

        return await in_thread(look)

    async def answer(self, question_id: str, text: str, person: Principal) -> None:
        """Answers an approval or a question. Raises NotFound once it is closed, or was never this person's."""
        await self.questions.answer(question_id, text, person)

    async def open_questions(self, person: Principal) -> list[OpenQuestion]:
        return await self.questions.open_for(person)

    async def taken(self, turn_id: str, person: Principal) -> QueuedMessage:
        """A message by its id. Raises NotFound, also for somebody else's."""
        taken = await in_thread(self.store.inbox.get, turn_id)
        if not person.visibility.includes(taken.inbound.user_key):
            raise NotFound(f"no message {turn_id!r} was taken")
        return taken

    # -- events ------------------------------------------------------------------------------------------------------

    async def events(self, chat: ChatKey, *, after: int | None = None) -> AsyncIterator[SequencedEvent]:
        """What happens in a chat, live; with `after`, first what is still known since then."""
        async for batch in self.following.chat(chat, after=after):
            for numbered in batch:
                yield numbered

    async def turn_events(self, ticket: Ticket) -> AsyncIterator[SequencedEvent]:
        """The events of one message, up to its last; of one that ran elsewhere, its end."""
        async for batch in self.following.turn(ticket):
            for numbered in batch:
                yield numbered

    # -- lanes -------------------------------------------------------------------------------------------------------

    def wake(self, taken: QueuedMessage, *, is_first: bool = False) -> None:
        """A message of ours waits in its lane."""
        self._lane(taken.inbound.queue_key).add(taken.id, self._drop_if_idle, first=taken if is_first else None)

    def stop_turns(self, turn_ids: Collection[str]) -> None:
        """Interrupts turns of ours that were asked to stop through another process."""
        for lane in self._lanes.values():
            if lane.running is not None and lane.running.taken.id in turn_ids:
                lane.running.stop()

    @property
    def busy_chats(self) -> list[ChatKey]:
        return [lane.running.chat for lane in self._lanes.values() if lane.running is not None]

    def _lane(self, key: str) -> ConversationQueue:
        if key not in self._lanes:
            self._lanes[key] = ConversationQueue(
                key, self._desk, owner=self.owner, is_leaving=lambda: self._is_draining or self._is_leaving
            )
        return self._lanes[key]

    def _drop_if_idle(self, lane: ConversationQueue) -> None:
        if lane.is_idle:
            self._lanes.pop(lane.key, None)

    async def _interrupt(self, key: str) -> None:
        run = self._lane(key).running
        if run is not None:
            run.stop()
        else:
            await in_thread(self.store.inbox.stop_queue, key)

    async def _stopped(self, taken: QueuedMessage, chat: ChatKey, person: Principal) -> Ticket:
        """`/stop` waits for nothing: it is answered at once."""
        self._deliveries.begin(chat, taken.id)
        was_running = await self.stop(chat, person)
        event = CommandAnswered("Stopped." if was_running else "Nothing was running.")
        await in_thread(self.store.inbox.finish, taken, result_of(event), conversation_id=None)
        self.streams.publish(chat, taken.id, event)
        return Ticket(taken.id, None, "done")

    # -- within ------------------------------------------------------------------------------------------------------

    def _letter(self, incoming: ChatMessage, person: Principal) -> InboundMessage:
        """The message as it is kept, checked. In a thread: whose the conversation is, the store knows."""
        chat = incoming.chat
        if chat.user_key != person.user_key:
            raise NotFound(f"no chat {chat.chat!r}")
        for name in (chat.chat, incoming.key):
            if len(name) > MOST_NAME_CHARS:
                raise InvalidMessage(f"the name of a chat or key has at most {MOST_NAME_CHARS} characters")
        given = incoming.content.get("content") if isinstance(incoming.content, Mapping) else None
        if isinstance(given, list) and len(given) > MOST_PARTS:
            raise InvalidMessage(f"a message has at most {MOST_PARTS:,} parts, and this one has {len(given):,}")
        message = Message.from_dict(incoming.content)
        if message.role != "user":
            raise InvalidMessage(f"a turn begins with a user message, not one of role {message.role!r}")
        if not message.text.strip() and all(isinstance(p, TextPart) for p in message.parts):
            raise InvalidMessage("the message is empty; say something")
        conversation_id = None
        if incoming.conversation_id is not None:
            conversation_id = self.store.conversations.get(incoming.conversation_id, visibility=person.visibility).id
        return InboundMessage(
            self._ids.new("t_"),
            lane_of(chat, conversation_id),
            chat.platform,
            chat.user_key,
            chat.chat,
            incoming.content if isinstance(incoming.content, str) else message.to_dict(),
            tuple(sorted(person.scopes)),
            incoming.key,
        )

    def _is_attended(self, chat: ChatKey) -> bool:
        return self.streams.of(chat).is_followed

    async def _settle(self, timeout_s: float) -> None:
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None and not lane.is_idle]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)


def _ticket(taken: QueuedMessage) -> Ticket:
    """The ticket of a message that was known already."""
    return Ticket(taken.id, taken.conversation_id, "queued" if taken.state == "waiting" else taken.state)


def _is_stop(content: object) -> bool:
    return isinstance(content, str) and content.strip().lower() == "/stop"
