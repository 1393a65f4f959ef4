"""Guard against what SQLite does not detect in its process: deleted files, exhausted descriptors, forks."""

from __future__ import annotations

import errno
import os
import threading
import time
from functools import cache
from pathlib import Path
from types import TracebackType

from perdure.core.errors import StoreUnavailable

_Identity = tuple[int, int]


class OpenFile:
    """The files of an open database and its WAL, identified by device and inode.

    SQLite keeps writing to a deleted or moved file without an error. A stat before each commit detects that and costs
    microseconds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal_path = path.with_name(f"{path.name}-wal")
        self._database = _identity(path)
        self._has_pages = False
        # Set at the first commit; from then on the WAL exists as long as the database is open.
        self._wal: _Identity | None = None

    @property
    def is_in_place(self) -> bool:
        database = _stat(self._path)
        if database is None or (database.st_dev, database.st_ino) != self._database:
            return False
        if database.st_size == 0 and self._has_pages:  # emptied by another program
            return False
        self._has_pages = database.st_size > 0
        wal = _identity(self._wal_path)
        if self._wal is None:
            self._wal = wal
        return wal == self._wal

    def check_in_place(self) -> None:
        """Raise StoreUnavailable when the file was deleted, moved or replaced."""
        if self.is_in_place:
            return
        raise StoreUnavailable(
            f"{self._path} was deleted, moved or replaced while in use: the last write was not stored, and nothing more"
            " can be. Put the file back, with its -wal, or restart to create a new one."
            " Until this process ends, store.backup(PATH) can still copy what was stored before"
        )


def require_descriptors(path: Path, count: int) -> None:
    """Raise StoreUnavailable when fewer than `count` files can be opened.

    A connection that can open the file but not its WAL would silently read an older state.
    """
    handles: list[int] = []
    try:
        for _ in range(count):
            handles.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise StoreUnavailable(
            f"{path} cannot be opened: this process has too many files open. Close some, or raise the limit"
            " (`ulimit -n`)"
        ) from error
    finally:
        for handle in handles:
            os.close(handle)


def _identity(path: Path) -> _Identity | None:
    stat = _stat(path)
    return (stat.st_dev, stat.st_ino) if stat is not None else None


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


# A thread may wait longer inside SQLite, for another process's lock; it holds no global mutex meanwhile.
_MAX_WAIT_S = 2.0


class ForkGate:
    """Context manager around SQLite calls; reentrant. A fork waits for the threads inside and keeps others out.

    SQLite's global mutexes are copied as they are: one that another thread held would stay locked in the child for
    ever, and opening any database there would hang.
    """

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
        """Start with no threads inside, in the child of a fork, where only the forking thread exists."""
        self._changed = threading.Condition()
        self._inside = int(getattr(self._local, "depth", 0) > 0)
        self._forks = 0


@cache
def fork_gate() -> ForkGate:
    """Return the gate of this process: the mutexes are the library's, not a database's."""
    return ForkGate()
