"""Deliver the events of turns to the adapters of their platforms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

from perdure.gateway.adapters.base import Adapter
from perdure.gateway.events.broker import EventBroker, Subscriber
from perdure.gateway.events.serialize import is_final
from perdure.gateway.events.types import ChatKey, SequencedEvent

_log = logging.getLogger(__name__)


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
