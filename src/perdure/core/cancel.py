"""Cancellation that any thread may request and any code may check or be called for."""

from __future__ import annotations

import threading
from collections.abc import Callable


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
