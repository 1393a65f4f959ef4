"""Run one turn at a time on the agent's event loop, from any thread; cancel it from any thread; deliver its events.

There is one loop thread per process, started on first use. It works in notebooks and alongside other loops, because
nothing of ours ever runs in the caller's own, and background work outlives the call that started it.

Each subscriber of the `EventBus` has a queue of its own, so a slow or failing listener never affects the turn. A slow
one falls behind alone: it gets its text in longer deltas, and if even those are too many it loses deltas, which only
make text appear sooner, and nothing else.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from perdure.agent.callbacks import Callbacks
from perdure.agent.turn import ConversationResult
from perdure.core.concurrency import DaemonThreads, run_loop
from perdure.core.errors import ConfigError, PerdureError
from perdure.core.event_queue import EventQueue
from perdure.core.events import Event

_log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
# How long a turn that has ended waits for its callbacks.
_DELIVERY_TIMEOUT_S = 5.0
# Events that wait for a subscriber, and deltas that wait one by one before they are merged.
MAX_WAITING, MAX_SINGLE_DELTAS = 10_000, 1_000


class EventBus:
    """Publishes events to all subscribers, in order."""

    def __init__(self, rewrite: Callable[[Event], Event] | None = None) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[Subscription] = []
        self._tap: Listener | None = None
        self._rewrite = rewrite

    def emit(self, event: Event) -> None:
        """Publish an event; never raises or blocks."""
        if self._rewrite is not None:
            event = self._rewrite(event)
        for subscriber in tuple(self._subscribers):
            subscriber.put(event)
        if self._tap is not None:
            self._tap(event)

    def tap(self, listener: Listener | None) -> None:
        """Set the one listener that is called synchronously on the publishing thread; it must not block or raise."""
        self._tap = listener

    def subscribe(self) -> Subscription:
        subscription = Subscription(self._drop)
        with self._lock:
            self._subscribers.append(subscription)
        return subscription

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` from a dedicated thread; returns a function that drains the queue and stops it.

        Raises ConfigError for what cannot be called.
        """
        if not callable(listener):
            raise ConfigError(f"listen takes a function of an event, not {listener!r:.80}")
        return self.attach(listener).finish

    def attach(self, listener: Listener) -> Listening:
        """Call `listener` from a dedicated thread, until what is returned is closed."""
        subscription = self.subscribe()
        thread = threading.Thread(target=subscription.drain_to, args=(listener,), name="perdure-events", daemon=True)
        thread.start()
        return Listening(subscription, thread)

    def _drop(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._subscribers:
                self._subscribers.remove(subscription)


class Listening:
    """A listener with its thread."""

    def __init__(self, subscription: Subscription, thread: threading.Thread) -> None:
        self._subscription = subscription
        self._thread = thread

    def close(self) -> None:
        """Add no more events; those that wait are still delivered. Never blocks."""
        self._subscription.close()

    def finish(self) -> None:
        """Close, and wait until all events are delivered, unless called by the listener itself."""
        self.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=_DELIVERY_TIMEOUT_S)


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


T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread of its own."""

    def __init__(self, name: str = "perdure-loop") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, started if need be."""
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(DaemonThreads())
                self._thread = threading.Thread(target=run_loop, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    @property
    def is_running(self) -> bool:
        """Whether the loop's thread is alive; in a forked child it is not."""
        return (
            self._loop is not None and self._loop.is_running() and self._thread is not None and self._thread.is_alive()
        )

    @property
    def is_here(self) -> bool:
        """Whether the caller already runs on this loop, so that work can be awaited directly."""
        return self._loop is not None and asyncio.get_running_loop() is self._loop

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is in the loop's thread, which must not block on work of the loop."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop from another thread; return a future to wait for or cancel."""
        if self.is_own_thread:
            work.close()
            raise RuntimeError("the loop's own thread cannot wait for itself; use the async form (achat, …) here")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and block for its result. Ctrl-C in the waiting thread cancels it first."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def join(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine on this loop from any other loop; cancelling the waiter cancels it."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(self.submit(work))


class RunningLoop(LoopThread):
    """The event loop in which it is created, as a LoopThread: for processes whose every part runs in one loop."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()


# How long to wait for an interrupted turn to store what it has.
_STOP_TIMEOUT_S = 10.0


class TurnCancellation:
    """Cancels one turn: before its task has begun, while it runs, or, without effect, after its end.

    `interrupt` and `begin` run in different threads. Both hold the lock, so exactly one of them cancels the task for
    an interrupt; a second cancel would abort the final save.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._task: asyncio.Task[Any] | None = None
        self._is_requested = False
        self._over = threading.Event()

    def begin(self) -> None:
        """Bind the current task as the turn's. If it was interrupted already, it is cancelled at its first await."""
        task = asyncio.current_task()
        with self._lock:
            self._task = task
            is_requested = self._is_requested
        if is_requested and task is not None:
            task.cancel()

    def interrupt(self) -> bool:
        """Cancel the turn, from any thread; return False once it is over."""
        with self._lock:
            if self._over.is_set():
                return False
            self._is_requested = True
            if self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
        return True

    def finish(self) -> None:
        """Mark the turn as over; idempotent."""
        with self._lock:
            self._task = None
            self._over.set()

    @property
    def is_requested(self) -> bool:
        """Whether the turn was interrupted."""
        with self._lock:
            return self._is_requested

    def wait(self, timeout_s: float) -> bool:
        """Block until the turn is over or the timeout expires; return whether it is over."""
        return self._over.wait(timeout_s)


class TurnRunner:
    """Runs turns and compactions of one agent, one at a time; each has its own cancellation."""

    def __init__(self, loop_thread: LoopThread, events: EventBus, callbacks: Callbacks | None) -> None:
        self._loop_thread = loop_thread
        self._events = events
        self._callbacks = callbacks
        self._lock = threading.Lock()
        self._current: TurnCancellation | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Block until the work is done. Ctrl-C in the waiting thread interrupts it first."""
        future, cancellation, listening = self._start(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            cancellation.interrupt()
            concurrent.futures.wait([future], timeout=_STOP_TIMEOUT_S)
            raise
        finally:
            # Here rather than on the loop, where a callback that starts the next turn would wait for itself.
            if listening is not None:
                listening.finish()

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work from any event loop, including the agent's own."""
        try:
            await self.settle()
        except asyncio.CancelledError:
            work.close()
            raise
        if not self._loop_thread.is_here:
            future, cancellation, listening = self._start(work)
            try:
                return await _await_elsewhere(asyncio.wrap_future(future), cancellation)
            finally:
                if listening is not None:
                    await asyncio.to_thread(listening.finish)
        cancellation = self._claim(work)
        listening = self._start_callbacks()
        # A separate task: an interrupt ends the turn, not its caller.
        task = asyncio.ensure_future(self._run_tracked(work, cancellation))
        task.add_done_callback(lambda _: self._release(work, cancellation))
        try:
            return await task
        finally:
            if listening is not None:
                await asyncio.to_thread(listening.finish)

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start the work and return its future. Raises PerdureError while other work runs."""
        return self._start(work)[0]

    def _start(
        self, work: Coroutine[Any, Any, T]
    ) -> tuple[concurrent.futures.Future[T], TurnCancellation, Listening | None]:
        if not self._loop_thread.is_own_thread:
            self._wait_for_interrupted()
        cancellation = self._claim(work)
        try:
            listening = self._start_callbacks()
            future = self._loop_thread.submit(self._run_tracked(work, cancellation))
        except BaseException:
            self._release(work, cancellation)
            raise
        future.add_done_callback(lambda _: self._release(work, cancellation))
        if listening is not None:
            future.add_done_callback(lambda _: listening.close())
        return future, cancellation, listening

    async def settle(self) -> None:
        """Wait for interrupted work, which may still store its last messages; does not wait for work that runs on."""
        if self._current is not None:
            await asyncio.sleep(0)  # a stream that was abandoned is closed, and so interrupted, in the loop's next step
            await asyncio.to_thread(self._wait_for_interrupted)

    def _wait_for_interrupted(self) -> None:
        current = self._current
        if current is not None and current.is_requested:
            current.wait(_STOP_TIMEOUT_S)

    def interrupt(self) -> bool:
        """Cancel the running work, from any thread; return whether there was any."""
        current = self._current
        return current is not None and current.interrupt()

    def stop(self) -> None:
        """Interrupt the running work and wait for its end, unless called on its own event loop."""
        current = self._current
        if current is not None and current.interrupt() and not self._loop_thread.is_own_thread:
            current.wait(_STOP_TIMEOUT_S)

    def wait_for(self, task: asyncio.Task[Any]) -> None:
        """Wait for a task of the loop to end, with a timeout; returns at once if called on that loop."""
        if self._loop_thread.is_running and not self._loop_thread.is_own_thread:
            ended = asyncio.run_coroutine_threadsafe(asyncio.wait([task], timeout=_STOP_TIMEOUT_S), task.get_loop())
            with suppress(concurrent.futures.TimeoutError):
                ended.result(2 * _STOP_TIMEOUT_S)

    def _claim(self, work: Coroutine[Any, Any, Any]) -> TurnCancellation:
        with self._lock:
            if self._current is None:
                self._current = cancellation = TurnCancellation()
                return cancellation
        work.close()
        raise PerdureError("a turn is under way already; wait for it, or interrupt() it first")

    def _release(self, work: Coroutine[Any, Any, Any], cancellation: TurnCancellation) -> None:
        """Close the work and free the agent; a no-op for work that has run, which has done both itself."""
        work.close()
        self._free(cancellation)

    def _free(self, cancellation: TurnCancellation) -> None:
        with self._lock:
            if self._current is cancellation:
                self._current = None
        cancellation.finish()

    def _start_callbacks(self) -> Listening | None:
        return self._events.attach(self._callbacks.hear) if self._callbacks is not None else None

    async def _run_tracked(self, work: Coroutine[Any, Any, T], cancellation: TurnCancellation) -> T:
        try:
            cancellation.begin()
            result = await work
        finally:
            self._free(cancellation)
        if isinstance(result, ConversationResult):
            # Emitted last: a listener may start the next turn at once.
            self._events.emit(result.event)
        return result


async def _await_elsewhere(future: asyncio.Future[T], cancellation: TurnCancellation) -> T:
    """Await work of another event loop; cancelling the waiter interrupts the work and waits for its end."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancellation.interrupt()
        await asyncio.wait([future], timeout=_STOP_TIMEOUT_S)
        raise
