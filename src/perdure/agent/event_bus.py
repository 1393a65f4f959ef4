"""Deliver events to subscribers in order; a slow or failing listener never affects the turn.

Each subscriber has a queue of its own. A slow one falls behind alone: it gets its text in longer deltas, and if even
those are too many it loses deltas, which only make text appear sooner, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator

from perdure.core.event_queue import EventQueue
from perdure.core.events import Event

_log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
# Events that wait for a subscriber, and deltas that wait one by one before they are merged.
MAX_WAITING, MAX_SINGLE_DELTAS = 10_000, 1_000


class EventBus:
    """Publishes events to all subscribers, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[Subscription] = []
        self._tap: Listener | None = None

    def emit(self, event: Event) -> None:
        """Publish an event; never raises or blocks."""
        for subscriber in tuple(self._subscribers):
            subscriber.put(event)
        if self._tap is not None:
            self._tap(event)

    def tap(self, listener: Listener | None) -> None:
        """Call a listener synchronously on the publishing thread; it must not block or raise."""
        self._tap = listener

    def subscribe(self) -> Subscription:
        subscription = Subscription(self._drop)
        with self._lock:
            self._subscribers.append(subscription)
        return subscription

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` from a dedicated thread; returns a function that drains the queue and stops it."""
        subscription = self.subscribe()
        thread = threading.Thread(target=subscription.drain_to, args=(listener,), name="perdure-events", daemon=True)
        thread.start()

        def finish() -> None:
            subscription.close()
            thread.join(timeout=5.0)

        return finish

    def _drop(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._subscribers:
                self._subscribers.remove(subscription)


class Subscription:
    """A subscriber's bounded queue, read as an iterator, plain or async, or drained to a listener."""

    def __init__(self, on_close: Callable[[Subscription], None]) -> None:
        self._queue = EventQueue[Event](max_items=MAX_WAITING, merge_above=MAX_SINGLE_DELTAS)
        self._on_close = on_close

    def put(self, event: Event) -> None:
        if not self._queue.put(event):
            self._queue.drop_deltas()
            self._queue.put(event, force=True)

    def close(self) -> None:
        """Close the queue; buffered events can still be read."""
        self._queue.close()
        self._on_close(self)

    def drain_to(self, listener: Listener) -> None:
        """Call the listener with each event until the queue is closed; blocks."""
        for event in self:
            try:
                listener(event)
            except BaseException:  # third-party code: the turn and this thread must survive it
                _log.exception("an event listener failed on %s", type(event).__name__)

    def __iter__(self) -> Iterator[Event]:
        """Yield each event until the queue is closed; blocks between them."""
        arrived = threading.Event()
        self._queue.on_ready = arrived.set
        while True:
            arrived.clear()
            is_closed = self._queue.is_closed
            if not len(self._queue):
                if is_closed:
                    return
                arrived.wait()
                continue
            yield self._queue.pop()

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        self._queue.on_ready = wake
        while True:
            arrived.clear()
            is_closed = self._queue.is_closed
            batch = self._queue.take()
            for event in batch:
                yield event
            if is_closed and not batch:
                return
            if not batch:
                await arrived.wait()
