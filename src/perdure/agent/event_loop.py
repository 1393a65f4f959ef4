"""The one way from ordinary code into the event loop: a loop thread per process, started on first use.

Works in notebooks and beside other loops, because nothing of ours ever runs in the caller's own. Work in the background
outlives the call that started it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from perdure.core.foreign_code import DaemonThreads, run_loop

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
    def is_here(self) -> bool:
        """Whether the caller runs in this very loop: then nothing needs to be handed over."""
        return self._loop is not None and asyncio.get_running_loop() is self._loop

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the loop's own thread, which must not wait for anything that runs there."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts work on the loop; the future may be waited for from any other thread, or cancelled."""
        if self.is_own_thread:
            work.close()
            raise RuntimeError("the loop's own thread cannot wait for itself; use the async form (achat, …) here")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work to its end. Ctrl-C in the waiting thread cancels the work before it propagates."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def join(self, work: Coroutine[Any, Any, T]) -> T:
        """The same from within any other loop; cancelling the waiter cancels the work."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(self.submit(work))


class RunningLoop(LoopThread):
    """The loop it is made in, for a process whose every part lives in one loop: nothing is handed between threads."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()
