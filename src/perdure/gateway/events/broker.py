"""What happens in a chat, numbered, to whoever follows it; a reader who lost the connection goes on where it was.

Numbers grow with time in every process, so that one a reader got from another process still says where it was. The
events of a running turn are kept whole; of a finished one only what its last event does not say again.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from threading import get_ident

from perdure.core.events import ReasoningDelta, TextDelta
from perdure.core.ports import Clock
from perdure.gateway.events.serialize import is_final
from perdure.gateway.events.types import ChatKey, GatewayEvent, SequencedEvent

OnEvent = Callable[[ChatKey, str, GatewayEvent], None]
# Takes a piece of text at once, if it can; whether it did. Must neither wait nor raise.
Sink = Callable[[SequencedEvent], bool]
# Events of a running turn that a late reader can still have, and of finished ones.
MAX_RUNNING_EVENTS = 5_000
MAX_FINISHED_EVENTS = 24
# A reader this far behind is let go: it comes back with the number it was at.
MAX_BUFFERED_EVENTS = 2_000


class Subscriber:
    """One follower's queue. Pieces of text that it has not come to yet are joined into one.

    With a sink, a piece of text that nothing waits before goes straight there: no task is woken for it, and so it does
    not wait for the pieces of every other stream.
    """

    def __init__(self, turn_id: str | None = None, *, sink: Sink | None = None) -> None:
        # Set where one turn alone is followed.
        self._turn_id = turn_id
        self._sink = sink
        self._pending: collections.deque[SequencedEvent] = collections.deque()
        self._wakeup = asyncio.Event()
        # Its reader has dealt with all there was, and waits for more.
        self._is_idle = False
        self._is_silent = True
        self.is_closed = False

    def push(self, sequenced: SequencedEvent) -> None:
        if self.is_closed or (self._turn_id is not None and sequenced.turn_id != self._turn_id):
            return
        pending = self._pending
        if not pending:
            if (
                self._is_idle
                and self._sink is not None
                and type(sequenced.event) is TextDelta
                and self._sink(sequenced)
            ):
                self._is_silent = False
                return
            pending.append(sequenced)
        elif (merged := _merge_deltas(pending[-1], sequenced)) is not None:
            pending[-1] = merged
        elif len(pending) >= MAX_BUFFERED_EVENTS:
            self.close()
        else:
            pending.append(sequenced)
        self._wake()

    def close(self) -> None:
        """No more comes; what waits is still read."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._is_idle = False
        self._wakeup.set()

    async def batches(self, idle_s: float | None = None) -> AsyncIterator[list[SequencedEvent]]:
        """What has come since the last look; an empty one where nothing has for so long."""
        # One timer for all the time, not one for each piece of text.
        idle_timer = asyncio.create_task(self._wake_when_idle(idle_s)) if idle_s is not None else None
        try:
            while True:
                if self._pending:
                    batch, self._pending = list(self._pending), collections.deque()
                    self._is_silent = False
                    yield batch
                    continue
                if self.is_closed:
                    return
                self._wakeup.clear()
                self._is_idle = True
                await self._wakeup.wait()
                if not self._pending and not self.is_closed:
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
    """One chat's events of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buffer: collections.deque[SequencedEvent] = collections.deque(maxlen=MAX_RUNNING_EVENTS)
        self._subscribers: set[Subscriber] = set()
        self._last_number = 0
        self.last_used_s = clock.monotonic_s()

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    @property
    def last_number(self) -> int:
        """The newest event's; 0 before the first."""
        return self._last_number

    def publish(self, turn_id: str, event: GatewayEvent) -> None:
        """Never waits. Only in the loop's own thread."""
        self._last_number = max(self._last_number + 1, self._clock.now_ms() * 1_000)
        sequenced = SequencedEvent(self._last_number, turn_id, event)
        self._buffer.append(sequenced)
        for subscriber in self._subscribers:
            subscriber.push(sequenced)
        if type(event) is not TextDelta and is_final(event):
            self._compact_buffer(turn_id)
            self.last_used_s = self._clock.monotonic_s()

    def subscribe(
        self, *, after: int | None = None, turn_id: str | None = None, sink: Sink | None = None
    ) -> Subscriber:
        """Everything from now on, or from after a number; or one turn alone, as far as it is kept or after a number."""
        subscriber = Subscriber(turn_id, sink=sink)
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
        """A turn is over: its last event says the whole text, so that its pieces need not be kept."""
        events = [
            n for n in self._buffer if n.turn_id != turn_id or not isinstance(n.event, TextDelta | ReasoningDelta)
        ]
        running = {n.turn_id for n in events} - {n.turn_id for n in events if is_final(n.event)}
        finished = [n for n in events if n.turn_id not in running][-MAX_FINISHED_EVENTS:]
        retained_ids = {id(n) for n in finished}
        events = [n for n in events if n.turn_id in running or id(n) in retained_ids]
        self._buffer = collections.deque(events, maxlen=MAX_RUNNING_EVENTS)


class EventBroker:
    """The streams of this process, by chat; made when something happens in one, dropped when nobody cares."""

    def __init__(self, clock: Clock, *, on_event: OnEvent | None = None) -> None:
        self._clock = clock
        # Hears every event of this process; must neither wait nor raise.
        self._on_event = on_event
        self._channels: dict[ChatKey, EventChannel] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def channel(self, chat: ChatKey) -> EventChannel:
        if chat not in self._channels:
            self._channels[chat] = EventChannel(self._clock)
        return self._channels[chat]

    def publish(self, chat: ChatKey, turn_id: str, event: GatewayEvent) -> None:
        """From any thread; events of one thread keep their order."""
        self.publisher(chat, turn_id)(event)

    def publisher(self, chat: ChatKey, turn_id: str) -> Callable[[GatewayEvent], None]:
        """The same for one turn, which may have thousands of events to tell."""
        on_event, loop_thread, loop = self._on_event, self._thread, self._loop

        def publish_event(event: GatewayEvent) -> None:
            if get_ident() != loop_thread:
                loop.call_soon_threadsafe(publish_event, event)
                return
            self.channel(chat).publish(turn_id, event)
            if on_event is not None:
                on_event(chat, turn_id, event)

        return publish_event

    def subscribed_chats(self) -> list[ChatKey]:
        return [chat for chat, channel in self._channels.items() if channel.has_subscribers]

    def drop_idle(self, *, idle_s: float, busy: Iterable[ChatKey]) -> None:
        before, events = self._clock.monotonic_s() - idle_s, set(busy)
        for chat, channel in list(self._channels.items()):
            if channel.last_used_s < before and not channel.has_subscribers and chat not in events:
                del self._channels[chat]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def __len__(self) -> int:
        return len(self._channels)

    def __iter__(self) -> Iterator[ChatKey]:
        return iter(self._channels)


def _merge_deltas(last: SequencedEvent, new: SequencedEvent) -> SequencedEvent | None:
    """Two pieces of one text as one; None where they are not. It bears the newer number."""
    if last.turn_id != new.turn_id:
        return None
    match last.event, new.event:
        case TextDelta(before), TextDelta(after):
            return SequencedEvent(new.number, new.turn_id, TextDelta(before + after))
        case ReasoningDelta(before), ReasoningDelta(after):
            return SequencedEvent(new.number, new.turn_id, ReasoningDelta(before + after))
    return None
