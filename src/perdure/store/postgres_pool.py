"""A few connections, handed out one at a time, made when they are needed and thrown away when they fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg import Connection
from psycopg.pq import TransactionStatus

from perdure.core.errors import StoreUnavailable
from perdure.store.database import Row

AnyConnection = Connection[Row]


class ConnectionPool:
    """At most `most` at once: a server has few to give, and other processes want some too."""

    def __init__(self, connect: Callable[[], AnyConnection], *, most: int, patience_s: float) -> None:
        self._connect = connect
        self._slots = threading.BoundedSemaphore(most)
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._idle: list[AnyConnection] = []
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[AnyConnection]:
        """One that nobody else uses until the block ends. Waits while all are taken."""
        if not self._slots.acquire(timeout=self._patience_s):
            raise StoreUnavailable("every connection stayed busy for too long; nothing was changed. Retry")
        try:
            connection = self._pop() or self._connect()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._slots.release()

    def drop_idle(self) -> None:
        """Forgets connections made before the server went away: they are as dead as the one that failed."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Idle ones now, the others as they come back."""
        self._is_closed = True
        self.drop_idle()

    def _pop(self) -> AnyConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: AnyConnection) -> None:
        # One that was interrupted in mid-query is not asked to explain itself.
        is_sound = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            is_kept = is_sound and not self._is_closed
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
