"""Sequence the events of each chat and push them to subscribers.

Sequence numbers are based on the clock, so a subscriber can resume in another process with the number of its last
event. The events of a running turn are buffered in full; of a finished turn, text deltas are dropped, since the final
event contains the whole text.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from threading import get_ident

from perdure.core.event_queue import EventQueue, delta_kind, join_deltas
from perdure.core.events import ReasoningDelta, TextDelta, ToolOutput
from perdure.core.ports import Clock
from perdure.core.visibility import Visibility
from perdure.gateway.events.serialize import is_final
from perdure.gateway.events.types import ChatKey, GatewayEvent, SequencedEvent

OnEvent = Callable[[ChatKey, str, GatewayEvent], None]
# Write a text delta immediately and return True, or return False if it has to be queued. Must not block or raise.
Sink = Callable[[SequencedEvent], bool]
# Buffered events per channel: of running turns, and of finished ones.
MAX_RUNNING_EVENTS = 5_000
MAX_FINISHED_EVENTS = 24
# Disconnect a subscriber whose queue is this long; it can reconnect with its last event number.
MAX_BUFFERED_EVENTS = 2_000
# Superseded by later events of the same turn.
_PASSING = (TextDelta, ReasoningDelta, ToolOutput)


class Subscriber:
    """The event queue of one subscriber; consecutive text deltas in the queue are merged.

    With a sink, a text delta bypasses the empty queue: no task has to be scheduled for it, so it does not wait behind
    the deltas of every other stream.
    """

    def __init__(self, turn_id: str | None = None, *, visibility: Visibility, sink: Sink | None = None) -> None:
        # Events that may contain content of another user's conversation are not for this reader.
        self._visibility = visibility
        # The requirement that was checked last; all events of a turn share one, so that it is checked once.
        self._covered: Visibility | None = None
        # Set when subscribed to a single turn.
        self._turn_id = turn_id
        self._sink = sink
        self._queue = EventQueue[SequencedEvent](max_items=MAX_BUFFERED_EVENTS, merge_key=_merge_key, join=_join)
        self._wakeup = asyncio.Event()
        # The consumer has processed the queue and waits for more.
        self._is_idle = False
        self._is_silent = True

    @property
    def is_closed(self) -> bool:
        return self._queue.is_closed

    def push(self, sequenced: SequencedEvent) -> None:
        queue, sink = self._queue, self._sink
        if queue.is_closed or (self._turn_id is not None and sequenced.turn_id != self._turn_id):
            return
        if sequenced.required_visibility is not self._covered:
            if not self._visibility.covers(sequenced.required_visibility):
                return
            self._covered = sequenced.required_visibility
        # An idle consumer has an empty queue.
        if self._is_idle and sink is not None and type(sequenced.event) is TextDelta and sink(sequenced):
            self._is_silent = False
        elif queue.put(sequenced):
            self._wake()
        else:
            self.close()

    def close(self) -> None:
        """Accept no more events; those in the queue are still delivered."""
        self._queue.close()
        self._wake()

    def _wake(self) -> None:
        self._is_idle = False
        self._wakeup.set()

    async def batches(self, idle_s: float | None = None) -> AsyncIterator[list[SequencedEvent]]:
        """Yield the events since the last batch; an empty batch after `idle_s` without any."""
        # One timer for the whole subscription, not one per delta.
        idle_timer = asyncio.create_task(self._wake_when_idle(idle_s)) if idle_s is not None else None
        try:
            while True:
                if batch := self._queue.take():
                    self._is_silent = False
                    yield batch
                    continue
                if self.is_closed:
                    return
                self._wakeup.clear()
                self._is_idle = True
                await self._wakeup.wait()
                if not len(self._queue) and not self.is_closed:
                    yield []
        finally:
            self._is_idle = False
            if idle_timer is not None:
                idle_timer.cancel()

    async def _wake_when_idle(self, idle_s: float) -> None:
        while True:
            self._is_silent = True
            await asyncio.sleep(idle_s)
            if self._is_silent:
                self._wake()


class EventChannel:
    """The events of one chat in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buffer: collections.deque[SequencedEvent] = collections.deque(maxlen=MAX_RUNNING_EVENTS)
        self._subscribers: set[Subscriber] = set()
        self._last_number = 0
        # Dropped when idle: a new channel takes its place.
        self.is_dropped = False
        self.last_used_s = clock.monotonic_s()

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    @property
    def last_number(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last_number

    def publish(self, turn_id: str, event: GatewayEvent, *, required_visibility: Visibility) -> None:
        """Number an event and push it to the subscribers that may see it, without blocking; for the loop's thread."""
        self._last_number = max(self._last_number + 1, self._clock.now_ms() * 1_000)
        sequenced = SequencedEvent(self._last_number, turn_id, event, required_visibility)
        self._buffer.append(sequenced)
        for subscriber in self._subscribers:
            subscriber.push(sequenced)
        if type(event) is not TextDelta and is_final(event):
            self._compact_buffer(turn_id)
            self.last_used_s = self._clock.monotonic_s()

    def subscribe(
        self,
        *,
        visibility: Visibility,
        after: int | None = None,
        turn_id: str | None = None,
        sink: Sink | None = None,
    ) -> Subscriber:
        """Subscribe to new events, those after a number, or a single turn with its buffered events."""
        subscriber = Subscriber(turn_id, sink=sink, visibility=visibility)
        if after is None:
            after = self._last_number if turn_id is None else 0
        for sequenced in self._buffer:
            if sequenced.number > after:
                subscriber.push(sequenced)
        self._subscribers.add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        subscriber.close()
        self._subscribers.discard(subscriber)
        self.last_used_s = self._clock.monotonic_s()

    def close(self) -> None:
        for subscriber in tuple(self._subscribers):
            self.unsubscribe(subscriber)

    def _compact_buffer(self, turn_id: str) -> None:
        """Drop the deltas and previews of a finished turn, which later events replace, and old finished turns."""
        events = [n for n in self._buffer if n.turn_id != turn_id or not isinstance(n.event, _PASSING)]
        running = {n.turn_id for n in events} - {n.turn_id for n in events if is_final(n.event)}
        finished = [n for n in events if n.turn_id not in running][-MAX_FINISHED_EVENTS:]
        retained_ids = {id(n) for n in finished}
        events = [n for n in events if n.turn_id in running or id(n) in retained_ids]
        self._buffer = collections.deque(events, maxlen=MAX_RUNNING_EVENTS)


class EventBroker:
    """The event channels of this process by chat; created on demand and dropped when idle."""

    def __init__(self, clock: Clock, *, on_event: OnEvent | None = None) -> None:
        self._clock = clock
        # Called with every event of this process; must not block or raise.
        self._on_event = on_event
        self._channels: dict[ChatKey, EventChannel] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def channel(self, chat: ChatKey) -> EventChannel:
        if chat not in self._channels:
            self._channels[chat] = EventChannel(self._clock)
        return self._channels[chat]

    def publish(self, chat: ChatKey, turn_id: str, event: GatewayEvent, *, required_visibility: Visibility) -> None:
        """Publish an event from any thread; events of one thread keep their order."""
        self.publisher(chat, turn_id, required_visibility=required_visibility)(event)

    def publisher(
        self, chat: ChatKey, turn_id: str, *, required_visibility: Visibility
    ) -> Callable[[GatewayEvent], None]:
        """Return a publish function for one turn, which may have thousands of events."""
        on_event, loop_thread, loop = self._on_event, self._thread, self._loop
        # Not looked up for each event: hashing the key of a chat takes longer than all the rest.
        channel: EventChannel | None = None

        def publish_event(event: GatewayEvent) -> None:
            nonlocal channel
            if get_ident() != loop_thread:
                loop.call_soon_threadsafe(publish_event, event)
                return
            if channel is None or channel.is_dropped:
                channel = self.channel(chat)
            channel.publish(turn_id, event, required_visibility=required_visibility)
            if on_event is not None:
                on_event(chat, turn_id, event)

        return publish_event

    def subscribed_chats(self) -> list[ChatKey]:
        return [chat for chat, channel in self._channels.items() if channel.has_subscribers]

    def drop_idle(self, *, idle_s: float, busy: Iterable[ChatKey]) -> None:
        before, busy_chats = self._clock.monotonic_s() - idle_s, set(busy)
        for chat, channel in list(self._channels.items()):
            if channel.last_used_s < before and not channel.has_subscribers and chat not in busy_chats:
                channel.is_dropped = True
                del self._channels[chat]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def __len__(self) -> int:
        return len(self._channels)

    def __iter__(self) -> Iterator[ChatKey]:
        return iter(self._channels)


def _merge_key(sequenced: SequencedEvent) -> tuple[object, ...] | None:
    """Deltas are merged within a turn, and only for the same readers."""
    kind = delta_kind(sequenced.event)
    return None if kind is None else (kind, sequenced.turn_id, sequenced.required_visibility)


def _join(deltas: list[SequencedEvent]) -> SequencedEvent:
    """Merge deltas under the newest number, from which a client resumes."""
    return replace(deltas[-1], event=join_deltas([sequenced.event for sequenced in deltas]))
