"""Deliver events to subscribers in order; a slow or failing listener never affects the turn.

Each subscriber has a queue of its own. A slow one falls behind alone; one that falls too far behind loses the oldest
deltas, which only make text appear sooner, and nothing else.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import threading
from collections.abc import AsyncIterator, Callable

from perdure.core.events import Event, ReasoningDelta, TextDelta

_log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
MAX_WAITING = 10_000


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
    """A subscriber's bounded queue, read as an async iterator or drained to a listener."""

    def __init__(self, on_close: Callable[[Subscription], None]) -> None:
        self._waiting: collections.deque[Event] = collections.deque()
        self._ready = threading.Condition()
        self._is_closed = False
        self._on_close = on_close
        self._wake: Callable[[], None] = lambda: None

    def put(self, event: Event) -> None:
        with self._ready:
            if self._is_closed:
                return
            if len(self._waiting) >= MAX_WAITING:
                self._make_room()
            self._waiting.append(event)
            self._ready.notify()
        self._wake()

    def close(self) -> None:
        """Close the queue; buffered events can still be read."""
        with self._ready:
            self._is_closed = True
            self._ready.notify_all()
        self._wake()
        self._on_close(self)

    def drain_to(self, listener: Listener) -> None:
        while True:
            with self._ready:
                while not self._waiting and not self._is_closed:
                    self._ready.wait()
                if not self._waiting:
                    return
                event = self._waiting.popleft()
            try:
                listener(event)
            except BaseException:  # third-party code: the turn and this thread must survive it
                _log.exception("an event listener failed on %s", type(event).__name__)

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        self._wake = wake
        while True:
            arrived.clear()
            with self._ready:
                batch, is_closed = list(self._waiting), self._is_closed
                self._waiting.clear()
            for event in batch:
                yield event
            if is_closed and not batch:
                return
            if not batch:
                await arrived.wait()

    def _make_room(self) -> None:
        remaining = [e for e in self._waiting if not isinstance(e, TextDelta | ReasoningDelta)]
        self._waiting = collections.deque(remaining)
