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
from perdure.gateway.events.serialize import is_last
from perdure.gateway.events.types import ChatKey, GatewayEvent, SequencedEvent

Watch = Callable[[ChatKey, str, GatewayEvent], None]
# Takes a piece of text at once, if it can; whether it did. Must neither wait nor raise.
Sink = Callable[[SequencedEvent], bool]
# Events of a running turn that a late reader can still have, and of finished ones.
MOST_RUNNING = 5_000
MOST_FINISHED = 24
# A reader this far behind is let go: it comes back with the number it was at.
MOST_WAITING = 2_000


class Subscriber:
    """One follower's queue. Pieces of text that it has not come to yet are joined into one.

    With a sink, a piece of text that nothing waits before goes straight there: no task is woken for it, and so it does
    not wait for the pieces of every other stream.
    """

    def __init__(self, turn_id: str | None = None, *, sink: Sink | None = None) -> None:
        # Set where one turn alone is followed.
        self._turn_id = turn_id
        self._sink = sink
        self._waiting: collections.deque[SequencedEvent] = collections.deque()
        self._arrived = asyncio.Event()
        # Its reader has dealt with all there was, and waits for more.
        self._is_idle = False
        self._is_quiet = True
        self.is_closed = False

    def put(self, numbered: SequencedEvent) -> None:
        if self.is_closed or (self._turn_id is not None and numbered.turn_id != self._turn_id):
            return
        waiting = self._waiting
        if not waiting:
            if self._is_idle and self._sink is not None and type(numbered.event) is TextDelta and self._sink(numbered):
                self._is_quiet = False
                return
            waiting.append(numbered)
        elif (joined := _joined(waiting[-1], numbered)) is not None:
            waiting[-1] = joined
        elif len(waiting) >= MOST_WAITING:
            self.close()
        else:
            waiting.append(numbered)
        self._wake()

    def close(self) -> None:
        """No more comes; what waits is still read."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._is_idle = False
        self._arrived.set()

    async def batches(self, idle_s: float | None = None) -> AsyncIterator[list[SequencedEvent]]:
        """What has come since the last look; an empty one where nothing has for so long."""
        # One timer for all the time, not one for each piece of text.
        ticking = asyncio.create_task(self._tick(idle_s)) if idle_s is not None else None
        try:
            while True:
                if self._waiting:
                    batch, self._waiting = list(self._waiting), collections.deque()
                    self._is_quiet = False
                    yield batch
                    continue
                if self.is_closed:
                    return
                self._arrived.clear()
                self._is_idle = True
                await self._arrived.wait()
                if not self._waiting and not self.is_closed:
                    yield []
        finally:
            self._is_idle = False
            if ticking is not None:
                ticking.cancel()

    async def _tick(self, idle_s: float) -> None:
        while True:
            self._is_quiet = True
            await asyncio.sleep(idle_s)
            if self._is_quiet:
                self._wake()


class EventChannel:
    """One chat's events of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: collections.deque[SequencedEvent] = collections.deque(maxlen=MOST_RUNNING)
        self._readers: set[Subscriber] = set()
        self._last = 0
        self.used_at_s = clock.monotonic_s()

    @property
    def is_followed(self) -> bool:
        return bool(self._readers)

    @property
    def last_number(self) -> int:
        """The newest event's; 0 before the first."""
        return self._last

    def publish(self, turn_id: str, event: GatewayEvent) -> None:
        """Never waits. Only in the loop's own thread."""
        self._last = max(self._last + 1, self._clock.now_ms() * 1_000)
        numbered = SequencedEvent(self._last, turn_id, event)
        self._kept.append(numbered)
        for reader in self._readers:
            reader.put(numbered)
        if type(event) is not TextDelta and is_last(event):
            self._tidy(turn_id)
            self.used_at_s = self._clock.monotonic_s()

    def follow(self, *, after: int | None = None, turn_id: str | None = None, sink: Sink | None = None) -> Subscriber:
        """Everything from now on, or from after a number; or one turn alone, as far as it is kept or after a number."""
        reader = Subscriber(turn_id, sink=sink)
        if after is None:
            after = self._last if turn_id is None else 0
        for numbered in self._kept:
            if numbered.number > after:
                reader.put(numbered)
        self._readers.add(reader)
        return reader

    def leave(self, reader: Subscriber) -> None:
        reader.close()
        self._readers.discard(reader)
        self.used_at_s = self._clock.monotonic_s()

    def close(self) -> None:
        for reader in tuple(self._readers):
            self.leave(reader)

    def _tidy(self, turn_id: str) -> None:
        """A turn is over: its last event says the whole text, so that its pieces need not be kept."""
        kept = [n for n in self._kept if n.turn_id != turn_id or not isinstance(n.event, TextDelta | ReasoningDelta)]
        running = {n.turn_id for n in kept} - {n.turn_id for n in kept if is_last(n.event)}
        finished = [n for n in kept if n.turn_id not in running][-MOST_FINISHED:]
        lasting = {id(n) for n in finished}
        kept = [n for n in kept if n.turn_id in running or id(n) in lasting]
        self._kept = collections.deque(kept, maxlen=MOST_RUNNING)


class Streams:
    """The streams of this process, by chat; made when something happens in one, dropped when nobody cares."""

    def __init__(self, clock: Clock, *, watch: Watch | None = None) -> None:
        self._clock = clock
        # Hears every event of this process; must neither wait nor raise.
        self._watch = watch
        self._streams: dict[ChatKey, EventChannel] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def of(self, chat: ChatKey) -> EventChannel:
        if chat not in self._streams:
            self._streams[chat] = EventChannel(self._clock)
        return self._streams[chat]

    def publish(self, chat: ChatKey, turn_id: str, event: GatewayEvent) -> None:
        """From any thread; events of one thread keep their order."""
        self.teller(chat, turn_id)(event)

    def teller(self, chat: ChatKey, turn_id: str) -> Callable[[GatewayEvent], None]:
        """The same for one turn, which may have thousands of events to tell."""
        watch, home, loop = self._watch, self._thread, self._loop

        def tell(event: GatewayEvent) -> None:
            if get_ident() != home:
                loop.call_soon_threadsafe(tell, event)
                return
            self.of(chat).publish(turn_id, event)
            if watch is not None:
                watch(chat, turn_id, event)

        return tell

    def followed(self) -> list[ChatKey]:
        return [chat for chat, stream in self._streams.items() if stream.is_followed]

    def drop_idle(self, *, idle_s: float, busy: Iterable[ChatKey]) -> None:
        before, kept = self._clock.monotonic_s() - idle_s, set(busy)
        for chat, stream in list(self._streams.items()):
            if stream.used_at_s < before and not stream.is_followed and chat not in kept:
                del self._streams[chat]

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[ChatKey]:
        return iter(self._streams)


def _joined(last: SequencedEvent, new: SequencedEvent) -> SequencedEvent | None:
    """Two pieces of one text as one; None where they are not. It bears the newer number."""
    if last.turn_id != new.turn_id:
        return None
    match last.event, new.event:
        case TextDelta(before), TextDelta(after):
            return SequencedEvent(new.number, new.turn_id, TextDelta(before + after))
        case ReasoningDelta(before), ReasoningDelta(after):
            return SequencedEvent(new.number, new.turn_id, ReasoningDelta(before + after))
    return None
