"""Stores that agents open by path or URL: one for each place and process, closed when its last user lets go."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perdure.store.store import SessionStore, open_store, place_of


@dataclass(slots=True, eq=False)
class _SharedStore:
    key: str
    store: SessionStore
    users: int = 0


class StoreHandle:
    """One user's hold on a store. `release` may be called twice, from any thread, and by the garbage collector."""

    def __init__(self, store: SessionStore, release: Callable[[], None] | None = None) -> None:
        self.store = store
        # A queue with one item: whoever takes it out is the one who releases.
        self._pending: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        if release is not None:
            self._pending.put(release)

    def release(self) -> None:
        try:
            release = self._pending.get_nowait()
        except queue.Empty:
            return
        release()


class SharedStores:
    """Counts the users of each open store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[str, _SharedStore] = {}
        # The collector may run a release at any point, also while its own thread holds the lock: it never waits for
        # it, and whoever holds the lock does the work instead.
        self._released: queue.SimpleQueue[_SharedStore] = queue.SimpleQueue()

    def acquire(self, path_or_url: str | Path) -> StoreHandle:
        """A hold on the store at that place, opened if need be."""
        key = place_of(path_or_url)
        with self._lock:
            shared = self._stores.get(key)
            if shared is None or not shared.store.is_usable:
                # One that was closed, or whose file is gone, stays with those who have it.
                shared = self._stores[key] = _SharedStore(key, open_store(path_or_url))
            shared.users += 1
        self._close_unused()
        return StoreHandle(shared.store, lambda: self._release(shared))

    def _release(self, shared: _SharedStore) -> None:
        self._released.put(shared)
        self._close_unused()

    def _close_unused(self) -> None:
        while not self._released.empty() and self._lock.acquire(blocking=False):
            unused: list[SessionStore] = []
            try:
                while not self._released.empty():
                    shared = self._released.get_nowait()
                    shared.users -= 1
                    if shared.users == 0:
                        unused.append(shared.store)
                        if self._stores.get(shared.key) is shared:
                            del self._stores[shared.key]
            finally:
                self._lock.release()
            for store in unused:
                store.close()


def process_stores() -> SharedStores:
    """Those of this process; a forked child opens its own."""
    return _stores_of(os.getpid())


@cache
def _stores_of(pid: int) -> SharedStores:
    return SharedStores()
