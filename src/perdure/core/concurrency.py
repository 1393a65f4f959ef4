"""Threads, event loops, cancellation and the clock: helpers for when and where code runs.

`SystemClock` and `CancelToken` are handed to code that needs the time or may be stopped. `call_foreign`,
`await_foreign`, `run_foreign` and `call_with_timeout` call code that is not ours (tools, hooks, callbacks, plug-ins),
`run_shielded` and `DaemonThreads` run blocking work, and `run_loop` keeps an event loop running whatever escapes from a
task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
import queue
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar


class SystemClock:
    """Wall time and a stopwatch, from the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class CancelToken:
    """A one-way cancellation flag, safe to set from any thread; each callback runs exactly once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def is_cancelled(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Block until cancelled or the timeout expires; return whether it was cancelled."""
        return self._event.wait(timeout_s)

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Register a callback, run at once if already cancelled; return a function that unregisters it."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return lambda: self._unregister(callback)
        callback()
        return lambda: None

    def cancel(self) -> None:
        with self._lock:
            if self._event.is_set():
                return
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _unregister(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


P = ParamSpec("P")
T = TypeVar("T")


class ForeignError(Exception):
    """Raised when foreign code raised a BaseException that is not an `Exception`; the message describes it."""


def describe_error(error: BaseException) -> str:
    """Return the type and text of an exception, whatever its `__str__` does."""
    try:
        text = str(error)
    except BaseException:  # the exception's own code
        text = "(its text cannot be read)"
    if isinstance(error, ForeignError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_object(value: object) -> str:
    """Return the `repr` of an object that is not ours, whatever its code does."""
    try:
        return call_foreign(repr, value)
    except Exception:  # the object's own code
        return f"<{type(value).__name__}>"


def call_foreign(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call code that is not ours; a SystemExit or another BaseException it raises becomes a ForeignError."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:  # neither a future nor a coroutine can pass it on
        raise _foreign_error(error) from error
    except Exception:
        raise
    except BaseException as error:
        raise _foreign_error(error) from error


def _foreign_error(error: BaseException) -> ForeignError:
    """Return an error that futures, coroutines and event loops pass on, for one that they do not."""
    foreign = ForeignError(describe_error(error))
    foreign.__cause__ = error
    return foreign


async def await_foreign(work: Awaitable[T]) -> T:
    """Await code that is not ours; a BaseException it raises becomes a ForeignError.

    CancelledError passes only when this task itself was cancelled.
    """
    task = asyncio.current_task()
    try:
        return await work
    except Exception:
        raise
    except asyncio.CancelledError as error:
        if task is None or task.cancelling():
            raise
        raise ForeignError(describe_error(error)) from error
    except GeneratorExit as error:
        # Closing the coroutine from outside throws this one in as well; then there is nothing left to continue.
        if task is None or _running_task() is not task:
            raise
        raise ForeignError(describe_error(error)) from error
    except BaseException as error:
        raise ForeignError(describe_error(error)) from error


def _running_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class DaemonThreads(concurrent.futures.ThreadPoolExecutor):
    """An executor of daemon threads, started as needed and reused when idle.

    Abandoned work (a summary after its timeout) must not keep the process alive, as the threads of an ordinary pool do:
    those are joined at exit, however long they take.
    """

    # An idle thread ends after this time.
    _IDLE_S = 10.0

    def __init__(self) -> None:
        super().__init__()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except StopIteration as error:  # an asyncio future refuses it, and its awaiter would wait forever
                future.set_exception(_foreign_error(error))
            except BaseException as error:  # a thread's edge: every error goes to the waiting caller
                future.set_exception(error)

        if self._idle.acquire(blocking=False):
            self._jobs.put(work)
        else:
            threading.Thread(target=self._run, args=(work,), name="perdure-job", daemon=True).start()
        return future

    def _run(self, work: Callable[[], None] | None) -> None:
        while work is not None:
            work()
            work = None  # its result may be large
            self._idle.release()
            try:
                work = self._jobs.get(timeout=self._IDLE_S)
            except queue.Empty:
                # Withdraw this thread; where a submitter has just reserved it, wait for that job.
                work = None if self._idle.acquire(blocking=False) else self._jobs.get()


async def run_foreign(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking code that is not ours in a worker thread, in the caller's context. Raises `Exception` only.

    It works on any event loop, also one that is not ours: what a future cannot carry becomes a ForeignError.
    """
    return await await_foreign(asyncio.to_thread(partial(call_foreign, function, *args, **kwargs)))


async def run_shielded(work: Callable[[], T], executor: concurrent.futures.Executor | None = None) -> T:
    """Run blocking work in a worker thread; it is awaited to its end, even when the calling task is cancelled.

    It sees the caller's context variables, and what it raises that a future cannot carry becomes a ForeignError.
    """
    context = contextvars.copy_context()
    future = asyncio.get_running_loop().run_in_executor(executor, context.run, partial(call_foreign, work))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        # Keep waiting through repeated cancellation: the next step may depend on this work.
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise


async def run_abandonable(work: Callable[[], T], *, name: str) -> T:
    """Run code that is not ours in a daemon thread of its own, in the caller's context.

    If the caller is cancelled, the thread is abandoned.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(call_foreign(work))
        except Exception as error:  # a thread's edge: it belongs to who waits
            future.set_exception(error)

    future.set_running_or_notify_cancel()
    threading.Thread(target=contextvars.copy_context().run, args=(run,), name=name, daemon=True).start()
    return await asyncio.wrap_future(future)


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code; in another thread if this one already runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_in_new_loop(work)
    return DaemonThreads().submit(_run_in_new_loop, work).result()


def _run_in_new_loop(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(DaemonThreads())
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def call_with_timeout(function: Callable[[], object], timeout_s: float, *, setting: str = "") -> object:
    """Call a function or coroutine function that is not ours in a daemon thread. Raises `Exception` only.

    After `timeout_s` the call is abandoned and TimeoutError raised; its message names `setting`, which sets the limit.
    """

    async def result_of(answer: Awaitable[object]) -> object:
        return await await_foreign(answer)

    def call() -> object:
        answer = call_foreign(function)
        return run_coroutine(result_of(answer)) if inspect.isawaitable(answer) else answer

    future = DaemonThreads().submit(contextvars.copy_context().run, call)
    try:
        return future.result(timeout_s)
    except TimeoutError:
        if future.done():  # the function's own
            raise
        limit = f" ({setting})" if setting else ""
        raise TimeoutError(f"it took longer than {timeout_s:g} s{limit}") from None


_log = logging.getLogger(__name__)


def run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run the event loop until `loop.stop()`; a SystemExit that escapes from a task is logged and does not end it."""
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            if _is_ctrl_c(error):
                raise
            _log_escape(error)
        else:
            return


def run_main(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on the loop to its end; return its result or raise its exception."""
    task = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as error:
            if task.done() or _is_ctrl_c(error):
                raise
            _log_escape(error)


def _is_ctrl_c(error: BaseException) -> bool:
    """Whether this is a Ctrl-C: only the main thread receives it, and only with Python's default handler."""
    is_heard = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and is_heard and _is_default(signal.getsignal(signal.SIGINT))


def _is_default(handler: object) -> bool:
    return handler is signal.default_int_handler


def _log_escape(error: BaseException) -> None:
    _log.error("%s escaped from a task; the event loop goes on", type(error).__name__, exc_info=error)
