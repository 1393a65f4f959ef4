"""The protocol of a chat platform's adapter, the part of the hub it uses, and the delivery of turns to it.

An adapter maps an inbound message to a principal and a chat, and submits it. The process that runs the turn passes the
events to its own adapter for that platform. Receiving and delivering are separate, so that an answer is delivered even
if the process that received the message has died.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol

from perdure.core.errors import NotFound, StoreError
from perdure.core.ports import Clock
from perdure.core.visibility import EVERYONE
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.broker import EventBroker, Subscriber
from perdure.gateway.events.serialize import finished_event, is_final
from perdure.gateway.events.types import ChatKey, ChatMessage, SequencedEvent, Ticket
from perdure.gateway.executor import run_blocking
from perdure.store.inbox import QueuedMessage
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)
_SCOPE = "deliveries"
# An adapter tries for up to 15 minutes; a delivery this old has no process any more, on whichever machine it was.
_ORPHAN_MS = 1_800_000


class GatewayPort(Protocol):
    """The methods of the hub that an adapter may call."""

    async def submit(self, incoming: ChatMessage, principal: Principal) -> Ticket:
        """Store and queue a message; the same idempotency key again is the same message."""
        ...

    async def answer(self, question_id: str, text: str, principal: Principal) -> None:
        """Answer an approval request or a question. Raises NotFound if it is closed or belongs to another user."""
        ...

    async def stop(self, chat: ChatKey, principal: Principal) -> bool:
        """Interrupt the chat's turn; return whether there was one."""
        ...


class Adapter(Protocol):
    """A chat platform. It holds no persistent state: all of it is in the store."""

    platform: str

    async def start(self, hub: GatewayPort) -> None:
        """Start receiving messages. Raises ConfigError for an invalid configuration."""
        ...

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        """Deliver the events of one turn to its chat; called for every turn, including those taken over."""
        ...

    async def stop(self) -> None:
        """Stop receiving messages; running deliveries continue."""
        ...

    async def close(self) -> None:
        """Release all resources; no deliveries follow."""
        ...


class PendingDeliveries:
    """Records in the store which process delivers which turn's answer, so that another takes over if it dies.

    Methods block: for worker threads.
    """

    def __init__(self, store: SessionStore, clock: Clock, *, owner: str, is_dead: Callable[[str], bool]) -> None:
        self._inbox = store.inbox
        self._state = store.state(_SCOPE)
        self._clock = clock
        self._owner = owner
        self._is_dead = is_dead

    def begin(self, turn_id: str) -> None:
        """Record that this process delivers a turn."""
        self._state.set(turn_id, self._record())

    def finish(self, turn_id: str) -> None:
        """Record that the turn was delivered to its last event."""
        self._state.set(turn_id, None)

    def claim_orphans(self, platforms: Collection[str]) -> list[QueuedMessage]:
        """Claim finished turns of these platforms whose process died before it had delivered the answer."""
        claimed = []
        for turn_id, record in self._state.items().items():
            if not self._is_orphan(record):
                continue
            try:
                queued = self._inbox.get(turn_id)
            except NotFound:  # deleted after its time
                self._state.set(turn_id, None)
                continue
            # An unfinished one is delivered by the process that takes its turn over.
            is_ours = queued.state == "done" and queued.inbound.platform in platforms
            if is_ours and self._state.swap(turn_id, record, self._record()):
                claimed.append(queued)
        return claimed

    def _record(self) -> dict[str, Any]:
        return {"owner": self._owner, "at": self._clock.now_ms()}

    def _is_orphan(self, record: Any) -> bool:
        match record:
            case {"owner": str(owner), "at": int(at_ms)}:
                is_old = self._clock.now_ms() - at_ms > _ORPHAN_MS
                return owner != self._owner and (self._is_dead(owner) or is_old)
            case _:
                return True


class PlatformDelivery:
    """Runs the deliveries of turns to platform adapters."""

    def __init__(self, adapters: Mapping[str, Adapter], broker: EventBroker, pending: PendingDeliveries) -> None:
        self._adapters = adapters
        self._broker = broker
        self._pending = pending
        self._is_open = False
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Recover deliveries from now on; called once the adapters have started."""
        self._is_open = True

    def start(self, chat: ChatKey, turn_id: str) -> None:
        """Deliver a turn, from its first event to its last, if its chat belongs to one of the adapters."""
        adapter = self._adapters.get(chat.platform)
        if adapter is None:
            return
        # Subscribe before the turn starts, so that no event is missed. What the sender may see was decided with the
        # turn, and its answer goes to the chat the message came from.
        subscriber = self._broker.channel(chat).subscribe(visibility=EVERYONE, turn_id=turn_id)
        self._run(self._deliver_live(adapter, chat, turn_id, subscriber), f"deliver {turn_id}")

    async def recover(self) -> None:
        """Deliver the answers that processes stored but did not deliver before they died."""
        if not self._adapters or not self._is_open:
            return
        for queued in await run_blocking(self._pending.claim_orphans, tuple(self._adapters)):
            inbound = queued.inbound
            chat = ChatKey(inbound.platform, inbound.user, inbound.chat)
            events = _only(SequencedEvent(1, queued.id, finished_event(queued.result, queued.conversation_id)))
            self._run(self._deliver(self._adapters[chat.platform], chat, queued.id, events), f"deliver {queued.id}")

    async def wait(self, timeout_s: float) -> None:
        """Wait for running deliveries."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver_live(self, adapter: Adapter, chat: ChatKey, turn_id: str, subscriber: Subscriber) -> None:
        try:
            await self._record(self._pending.begin, turn_id)
            await self._deliver(adapter, chat, turn_id, _events(subscriber))
        finally:
            self._broker.channel(chat).unsubscribe(subscriber)

    async def _deliver(
        self, adapter: Adapter, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]
    ) -> None:
        has_ended = False

        async def watch() -> AsyncIterator[SequencedEvent]:
            nonlocal has_ended
            async for sequenced in events:
                has_ended = is_final(sequenced.event)
                yield sequenced

        try:
            await adapter.deliver(chat, turn_id, watch())
        except Exception:  # a platform failure must not affect the conversation, which has the answer
            _log.exception("an answer could not be delivered on %s", chat.platform)
        # A turn that is released to another process has no last event here, and stays recorded.
        if has_ended:
            await self._record(self._pending.finish, turn_id)

    async def _record(self, write: Callable[[str], None], turn_id: str) -> None:
        try:
            await run_blocking(write, turn_id)
        except StoreError as error:  # the answer matters more than what a restart would make of it
            _log.warning("the delivery of %s could not be recorded: %s", turn_id, type(error).__name__)


async def _only(sequenced: SequencedEvent) -> AsyncIterator[SequencedEvent]:
    yield sequenced


async def _events(subscriber: Subscriber) -> AsyncIterator[SequencedEvent]:
    async for batch in subscriber.batches():
        for sequenced in batch:
            yield sequenced
            if is_final(sequenced.event):
                return
