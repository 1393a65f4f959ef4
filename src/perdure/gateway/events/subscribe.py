"""Answers on their way to the platforms: each turn of a chat is shown by the adapter of its platform, to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from perdure.core.errors import NotFound, StoreError
from perdure.gateway.adapters.base import Adapter
from perdure.gateway.events.broker import Sink, Streams, Subscriber
from perdure.gateway.events.serialize import is_last
from perdure.gateway.events.types import ChatKey, SequencedEvent, Ticket
from perdure.gateway.executor import in_thread
from perdure.gateway.workers.worker import finished_event
from perdure.store.inbox import QueuedMessage
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)


class Deliveries:
    """What is being shown right now."""

    def __init__(self, adapters: Mapping[str, Adapter], streams: Streams) -> None:
        self._adapters = adapters
        self._streams = streams
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, chat: ChatKey, turn_id: str) -> None:
        """Has the chat's platform, if it is one of ours, show a turn from its first event to its last."""
        adapter = self._adapters.get(chat.platform)
        if adapter is None:
            return
        # Followed from this very moment: the turn has not begun yet.
        reader = self._streams.of(chat).follow(turn_id=turn_id)
        task = asyncio.create_task(self._deliver(adapter, chat, turn_id, reader), name=f"deliver {turn_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, timeout_s: float) -> None:
        """Waits for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _deliver(self, adapter: Adapter, chat: ChatKey, turn_id: str, reader: Subscriber) -> None:
        try:
            await adapter.deliver(chat, turn_id, _events(reader))
        except Exception:  # a platform's trouble is not the conversation's: the answer is in the log
            _log.exception("an answer could not be delivered on %s", chat.platform)
        finally:
            self._streams.of(chat).leave(reader)


async def _events(reader: Subscriber) -> AsyncIterator[SequencedEvent]:
    async for batch in reader.batches():
        for numbered in batch:
            yield numbered
            if is_last(numbered.event):
                return


# How often the end of a message is looked up: of one that another process works on, and of one of ours.
_LOOK_S, _LOOK_AT_OURS_S = 0.3, 5.0

Batches = AsyncGenerator[list[SequencedEvent], None]


class Following:
    """Events in batches: all that came since the last look; an empty one after `idle_s` without any.

    Pieces of text that a `sink` takes the moment they come are in none of them.
    """

    def __init__(self, streams: Streams, store: SessionStore, *, owner: str) -> None:
        self._streams = streams
        self._store = store
        self._owner = owner

    def chat(
        self, chat: ChatKey, *, after: int | None = None, idle_s: float | None = None, sink: Sink | None = None
    ) -> Batches:
        """What happens in a chat from the moment of this call; with `after`, first what is still known since then."""
        start = self._streams.of(chat).last_number if after is None else after

        async def batches() -> Batches:
            # Only now: whoever never reads leaves nothing behind, and what happened since the call is still known.
            stream = self._streams.of(chat)
            reader = stream.follow(after=start, sink=sink)
            try:
                async for batch in reader.batches(idle_s):
                    yield batch
            finally:
                stream.leave(reader)

        return batches()

    async def turn(
        self, ticket: Ticket, *, after: int | None = None, idle_s: float | None = None, sink: Sink | None = None
    ) -> Batches:
        """The events of one message, up to its last; of one that ran elsewhere, its end. With `after`, those since."""
        turn_id, chat, taken = ticket.turn_id, ticket.chat, None
        if chat is None:
            taken = await in_thread(self._store.inbox.get, turn_id)
            chat = ChatKey(taken.inbound.platform, taken.inbound.user_key, taken.inbound.chat)
        stream = self._streams.of(chat)
        reader = stream.follow(after=after, turn_id=turn_id, sink=sink)
        looking = asyncio.create_task(self._look_elsewhere(turn_id, taken, reader))
        try:
            async for batch in reader.batches(idle_s):
                yield batch
                if batch and is_last(batch[-1].event):
                    return
        finally:
            looking.cancel()
            stream.leave(reader)

    async def _look_elsewhere(self, turn_id: str, taken: QueuedMessage | None, reader: Subscriber) -> None:
        """Tells a reader of an end that another process wrote; of what is ours (None) the stream itself tells."""
        while True:
            if taken is not None and taken.state == "done":
                event = finished_event(taken.result, taken.conversation_id)
                reader.put(SequencedEvent((taken.done_at_ms or 0) * 1_000, taken.id, event))
                return
            is_ours = taken is None or taken.owner == self._owner
            await asyncio.sleep(_LOOK_AT_OURS_S if is_ours else _LOOK_S)
            try:
                taken = await in_thread(self._store.inbox.get, turn_id)
            except NotFound:
                reader.close()
                return
            except StoreError as error:
                _log.warning("the end of a turn could not be looked up: %s", type(error).__name__)
