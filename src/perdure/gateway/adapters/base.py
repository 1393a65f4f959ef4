"""The protocol of a chat platform's adapter, the part of the hub it uses, and the delivery of turns to it.

An adapter maps an inbound message to a principal and a chat, and submits it. The process that runs the turn passes the
events to its own adapter for that platform. Receiving and delivering are separate, so that an answer is delivered even
if the process that received the message has died.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.broker import EventBroker, Subscriber
from perdure.gateway.events.serialize import is_final
from perdure.gateway.events.types import ChatKey, ChatMessage, SequencedEvent, Ticket

_log = logging.getLogger(__name__)


class GatewayPort(Protocol):
    """The hub, as an adapter sees it."""

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
    """One chat platform. It holds no persistent state: everything is in the store."""

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


class PlatformDelivery:
    """The running deliveries of turns to platform adapters."""

    def __init__(self, adapters: Mapping[str, Adapter], broker: EventBroker) -> None:
        self._adapters = adapters
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, chat: ChatKey, turn_id: str) -> None:
        """Deliver a turn, from its first event to its last, if its chat belongs to one of the adapters."""
        adapter = self._adapters.get(chat.platform)
        if adapter is None:
            return
        # Subscribe before the turn starts, so that no event is missed.
        subscriber = self._broker.channel(chat).subscribe(turn_id=turn_id)
        task = asyncio.create_task(self._deliver(adapter, chat, turn_id, subscriber), name=f"deliver {turn_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, timeout_s: float) -> None:
        """Wait for running deliveries."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _deliver(self, adapter: Adapter, chat: ChatKey, turn_id: str, subscriber: Subscriber) -> None:
        try:
            await adapter.deliver(chat, turn_id, _events(subscriber))
        except Exception:  # a platform failure must not affect the conversation, which has the answer
            _log.exception("an answer could not be delivered on %s", chat.platform)
        finally:
            self._broker.channel(chat).unsubscribe(subscriber)


async def _events(subscriber: Subscriber) -> AsyncIterator[SequencedEvent]:
    async for batch in subscriber.batches():
        for sequenced in batch:
            yield sequenced
            if is_final(sequenced.event):
                return
