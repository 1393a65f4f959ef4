"""Event feeds of chats and turns, in batches, for HTTP and WebSocket clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from perdure.core.errors import NotFound, StoreError
from perdure.core.visibility import Visibility
from perdure.gateway.events.access import required_visibility
from perdure.gateway.events.broker import EventBroker, Sink, Subscriber
from perdure.gateway.events.serialize import finished_event, is_final
from perdure.gateway.events.types import ChatKey, SequencedEvent, Ticket
from perdure.gateway.executor import run_blocking
from perdure.store.inbox import QueuedMessage
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)
# Polling intervals for the end of a message: run by another process, and by this one.
_POLL_S, _OWN_POLL_S = 0.3, 5.0
Batches = AsyncGenerator[list[SequencedEvent], None]


class EventFeeds:
    """Event streams of chats and turns, in batches; an empty batch after `idle_s` without events.

    Text deltas that a `sink` accepts are not part of the batches.
    """

    def __init__(self, broker: EventBroker, store: SessionStore, *, owner: str) -> None:
        self._broker = broker
        self._store = store
        self._owner = owner

    def chat(
        self,
        chat: ChatKey,
        *,
        visibility: Visibility,
        after: int | None = None,
        idle_s: float | None = None,
        sink: Sink | None = None,
    ) -> Batches:
        """Stream a chat's events from the time of this call; with `after`, first replay the buffered ones since."""
        start = self._broker.channel(chat).last_number if after is None else after

        async def batches() -> Batches:
            # Subscribe on first iteration: an unused generator leaks no subscription, and the buffer covers the gap.
            channel = self._broker.channel(chat)
            subscriber = channel.subscribe(after=start, sink=sink, visibility=visibility)
            try:
                async for batch in subscriber.batches(idle_s):
                    yield batch
            finally:
                channel.unsubscribe(subscriber)

        return batches()

    async def turn(
        self,
        ticket: Ticket,
        *,
        visibility: Visibility,
        after: int | None = None,
        idle_s: float | None = None,
        sink: Sink | None = None,
    ) -> Batches:
        """Stream the events of one message to its final one; if another process ran it, only that one."""
        turn_id, chat, queued = ticket.turn_id, ticket.chat, None
        if chat is None:
            queued = await run_blocking(self._store.inbox.get, turn_id)
            chat = ChatKey(queued.inbound.platform, queued.inbound.user, queued.inbound.chat)
        channel = self._broker.channel(chat)
        subscriber = channel.subscribe(after=after, turn_id=turn_id, sink=sink, visibility=visibility)
        watcher = asyncio.create_task(self._watch_other_process(turn_id, queued, subscriber, visibility))
        try:
            async for batch in subscriber.batches(idle_s):
                yield batch
                if batch and is_final(batch[-1].event):
                    return
        finally:
            watcher.cancel()
            channel.unsubscribe(subscriber)

    async def _watch_other_process(
        self, turn_id: str, queued: QueuedMessage | None, subscriber: Subscriber, visibility: Visibility
    ) -> None:
        """Push the final event of a message that another process ran; `queued` is None while this process owns it."""
        while True:
            if queued is not None and queued.state == "done":
                event = finished_event(queued.result, queued.conversation_id)
                required = await run_blocking(required_visibility, queued, self._store)
                subscriber.push(SequencedEvent((queued.done_at_ms or 0) * 1_000, queued.id, event, required))
                if not visibility.covers(required):  # its end is not for this reader, who need not wait for it
                    subscriber.close()
                return
            is_own = queued is None or queued.owner == self._owner
            await asyncio.sleep(_OWN_POLL_S if is_own else _POLL_S)
            try:
                queued = await run_blocking(self._store.inbox.get, turn_id)
            except NotFound:
                subscriber.close()
                return
            except StoreError as error:
                _log.warning("the result of a turn could not be read: %s", type(error).__name__)
