"""What SQLite's errors mean to a person, as a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.core.errors import CorruptStore, StoreError, StoreUnavailable

# The start of SQLite's error name → (what to raise, what to say). The first that fits wins.
_MEANINGS: tuple[tuple[str, type[StoreError], str], ...] = (
    (
        "SQLITE_FULL",
        StoreUnavailable,
        "{path}: the disk is full; nothing stored was changed. Free some space and retry",
    ),
    ("SQLITE_READONLY", StoreUnavailable, "{path} cannot be written: the file or its disk is read-only"),
    ("SQLITE_PERM", StoreUnavailable, "{path}: no permission to open it"),
    ("SQLITE_AUTH", StoreUnavailable, "{path}: no permission to open it"),
    ("SQLITE_CANTOPEN", StoreUnavailable, "{path} cannot be opened: check that its folder exists and may be written"),
    ("SQLITE_BUSY", StoreUnavailable, "{path}: another process kept it busy for too long; nothing was changed. Retry"),
    (
        "SQLITE_LOCKED",
        StoreUnavailable,
        "{path}: another process kept it busy for too long; nothing was changed. Retry",
    ),
    ("SQLITE_NOTADB", CorruptStore, "{path} is not a session database; it was left untouched. Restore a backup"),
    ("SQLITE_CORRUPT", CorruptStore, "{path} is damaged; it was left untouched. Restore a backup ({detail})"),
    ("SQLITE_IOERR", StoreUnavailable, "{path}: the disk failed ({detail}); nothing stored was changed"),
    ("SQLITE_TOOBIG", StoreError, "{path}: a message is too large to store ({detail})"),
)


def is_busy(error: sqlite3.Error) -> bool:
    """Another process writes just now: wait and try again."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors become ours on their way out."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        for start, kind, text in _MEANINGS:
            if name.startswith(start):
                raise kind(text.format(path=path, detail=error)) from error
        raise StoreError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        # What SQLite quotes of a damaged file need not be text.
        detail = "it holds bytes that are no text"
        raise CorruptStore(f"{path} is damaged; it was left untouched. Restore a backup ({detail})") from error
