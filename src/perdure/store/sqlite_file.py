"""Which file a database has open, and whether its path still leads there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from perdure.core.errors import StoreUnavailable

_Identity = tuple[int, int]


class OpenFile:
    """The file behind an open database and its WAL, by device and inode.

    SQLite goes on writing to a file that was deleted or moved away, without an error. A look at the path before each
    commit costs microseconds and opens nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal_path = path.with_name(f"{path.name}-wal")
        self._database = _identity(path)
        # Known from the first commit on: from then on it exists for as long as the database is open.
        self._wal: _Identity | None = None

    @property
    def is_in_place(self) -> bool:
        if _identity(self._path) != self._database:
            return False
        wal = _identity(self._wal_path)
        if self._wal is None:
            self._wal = wal
        return wal == self._wal

    def refuse_if_moved(self) -> None:
        """Raises StoreUnavailable, saying what to do."""
        if self.is_in_place:
            return
        raise StoreUnavailable(
            f"{self._path} was deleted, moved or replaced while it was in use: nothing more can be stored in it, and"
            " what was said last was not stored. Put the file back, with its -wal, or start again to begin a new one."
            " Until this process ends, store.backup(PATH) still copies what was stored before"
        )


def require_descriptors(path: Path, count: int) -> None:
    """Raises StoreUnavailable where fewer than `count` files can be opened.

    A connection that can open the file but not its WAL would read an older state without an error.
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
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
