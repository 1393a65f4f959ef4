"""Let a fork wait until no thread is inside SQLite.

SQLite's global mutexes are copied as they are: one that another thread held would stay locked in the child for ever,
and opening any database there would hang.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from types import TracebackType

# A thread may wait longer inside SQLite, for another process's lock; it holds no global mutex meanwhile.
_MAX_WAIT_S = 2.0


class ForkGate:
    """Context manager around SQLite calls; reentrant. A fork waits for the threads inside and keeps others out."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._reset)

    def __enter__(self) -> None:
        depth = getattr(self._local, "depth", 0)
        if not depth:
            with self._changed:
                while self._forks:
                    self._changed.wait(_MAX_WAIT_S)
                self._inside += 1
        self._local.depth = depth + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.depth -= 1
        if not self._local.depth:
            with self._changed:
                self._inside -= 1
                if self._forks:
                    self._changed.notify_all()

    def _close(self) -> None:
        own = int(getattr(self._local, "depth", 0) > 0)
        deadline = time.monotonic() + _MAX_WAIT_S
        with self._changed:
            self._forks += 1
            while self._inside > own and (rest := deadline - time.monotonic()) > 0:
                self._changed.wait(rest)

    def _open(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def _reset(self) -> None:
        """Start anew; in a child only the forking thread goes on."""
        self._changed = threading.Condition()
        self._inside = int(getattr(self._local, "depth", 0) > 0)
        self._forks = 0


@cache
def fork_gate() -> ForkGate:
    """Return the gate of this process: the mutexes are the library's, not a database's."""
    return ForkGate()
