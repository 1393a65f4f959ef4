"""Answers on their way to the platforms: each turn of a chat is shown by the adapter of its platform, to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from perdure.core.errors import NotFound, StoreError
from perdure.gateway.adapters.base import Adapter
from perdure.gateway.events.broker import EventBroker, Sink, Subscriber
from perdure.gateway.events.serialize import is_final
from perdure.gateway.events.types import ChatKey, SequencedEvent, Ticket
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.worker import finished_event
from perdure.store.inbox import QueuedMessage
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)


class PlatformDelivery:
    """What is being shown right now."""

    def __init__(self, adapters: Mapping[str, Adapter], broker: EventBroker) -> None:
        self._adapters = adapters
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, chat: ChatKey, turn_id: str) -> None:
        """Has the chat's platform, if it is one of ours, show a turn from its first event to its last."""
        adapter = self._adapters.get(chat.platform)
        if adapter is None:
            return
        # Followed from this very moment: the turn has not begun yet.
        subscriber = self._broker.channel(chat).subscribe(turn_id=turn_id)
        task = asyncio.create_task(self._deliver(adapter, chat, turn_id, subscriber), name=f"deliver {turn_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, timeout_s: float) -> None:
        """Waits for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _deliver(self, adapter: Adapter, chat: ChatKey, turn_id: str, subscriber: Subscriber) -> None:
        try:
            await adapter.deliver(chat, turn_id, _events(subscriber))
        except Exception:  # a platform's trouble is not the conversation's: the answer is in the log
            _log.exception("an answer could not be delivered on %s", chat.platform)
        finally:
            self._broker.channel(chat).unsubscribe(subscriber)


async def _events(subscriber: Subscriber) -> AsyncIterator[SequencedEvent]:
    async for batch in subscriber.batches():
        for sequenced in batch:
            yield sequenced
            if is_final(sequenced.event):
                return


# How often the end of a message is looked up: of one that another process works on, and of one of ours.
_POLL_S, _OWN_POLL_S = 0.3, 5.0

Batches = AsyncGenerator[list[SequencedEvent], None]


class EventFeeds:
    """Events in batches: all that came since the last look; an empty one after `idle_s` without any.

    Pieces of text that a `sink` takes the moment they come are in none of them.
    """

    def __init__(self, broker: EventBroker, store: SessionStore, *, owner: str) -> None:
        self._broker = broker
        self._store = store
        self._owner = owner

    def chat(
        self, chat: ChatKey, *, after: int | None = None, idle_s: float | None = None, sink: Sink | None = None
    ) -> Batches:
        """What happens in a chat from the moment of this call; with `after`, first what is still known since then."""
        start = self._broker.channel(chat).last_number if after is None else after

        async def batches() -> Batches:
            # Only now: whoever never reads leaves nothing behind, and what happened since the call is still known.
            channel = self._broker.channel(chat)
            subscriber = channel.subscribe(after=start, sink=sink)
            try:
                async for batch in subscriber.batches(idle_s):
                    yield batch
            finally:
                channel.unsubscribe(subscriber)

        return batches()

    async def turn(
        self, ticket: Ticket, *, after: int | None = None, idle_s: float | None = None, sink: Sink | None = None
    ) -> Batches:
        """The events of one message, up to its last; of one that ran elsewhere, its end. With `after`, those since."""
        turn_id, chat, queued = ticket.turn_id, ticket.chat, None
        if chat is None:
            queued = await run_blocking(self._store.inbox.get, turn_id)
            chat = ChatKey(queued.inbound.platform, queued.inbound.user_key, queued.inbound.chat)
        channel = self._broker.channel(chat)
        subscriber = channel.subscribe(after=after, turn_id=turn_id, sink=sink)
        watcher = asyncio.create_task(self._watch_other_process(turn_id, queued, subscriber))
        try:
            async for batch in subscriber.batches(idle_s):
                yield batch
                if batch and is_final(batch[-1].event):
                    return
        finally:
            watcher.cancel()
            channel.unsubscribe(subscriber)

    async def _watch_other_process(self, turn_id: str, queued: QueuedMessage | None, subscriber: Subscriber) -> None:
        """Tells a reader of an end that another process wrote; of what is ours (None) the stream itself tells."""
        while True:
            if queued is not None and queued.state == "done":
                event = finished_event(queued.result, queued.conversation_id)
                subscriber.push(SequencedEvent((queued.done_at_ms or 0) * 1_000, queued.id, event))
                return
            is_own = queued is None or queued.owner == self._owner
            await asyncio.sleep(_OWN_POLL_S if is_own else _POLL_S)
            try:
                queued = await run_blocking(self._store.inbox.get, turn_id)
            except NotFound:
                subscriber.close()
                return
            except StoreError as error:
                _log.warning("the end of a turn could not be looked up: %s", type(error).__name__)
