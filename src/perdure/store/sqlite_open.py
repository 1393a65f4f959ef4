"""Opening a file: made if it is new, brought up to date if it is old, refused untouched if it is not ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perdure.core.errors import StoreUnavailable
from perdure.core.ports import Clock
from perdure.store import schema
from perdure.store.backup import remove_database
from perdure.store.database import Transaction
from perdure.store.schema import Migration
from perdure.store.sqlite import DIALECT, PATIENCE_S, SqliteDatabase
from perdure.store.sqlite_file import require_descriptors

# A connection that writes and one that reads: the file and its WAL for each, what they share, and one to spare.
_DESCRIPTORS = 6


def open_sqlite(
    path: Path, *, clock: Clock, migrations: Sequence[Migration] | None = None, patience_s: float = PATIENCE_S
) -> SqliteDatabase:
    """The database at `path`. A copy is kept beside it before an old schema is changed."""
    require_descriptors(path, _DESCRIPTORS)
    steps = schema.released(DIALECT) if migrations is None else tuple(migrations)
    _make_private(path)
    database = SqliteDatabase(path, patience_s=patience_s)
    try:
        version = database.read(lambda tx: _version(tx, path))
        schema.refuse_newer(version, steps, where=str(path))
        database.use_wal()
        if version < steps[-1].version:
            if version:
                keep_copy(database, version)
            database.write(lambda tx: schema.apply(tx, steps, DIALECT, now_ms=clock.now_ms()))
    except BaseException:
        database.close()
        raise
    return database


def keep_copy(database: SqliteDatabase, version: int) -> Path:
    """The file as the older Perdure left it, beside the one about to be changed."""
    copy = database.path.with_name(f"{database.path.name}.schema-{version}.bak")
    if not copy.exists():
        part = copy.with_name(f"{copy.name}.part")
        remove_database(part)
        database.backup(part)
        part.rename(copy)
    return copy


def _version(tx: Transaction, path: Path) -> int:
    tables = {name for (name,) in tx.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "migration" not in tables:
        raise StoreUnavailable(f"{path} is a database of another program; name a file of Perdure's own")
    return schema.version_of(tx, has_record=bool(tables))


def _make_private(path: Path) -> None:
    """A new file is the owner's alone: conversations hold what people would not print."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise StoreUnavailable(f"{path} is a folder; name a file in it") from None
        if not path.parent.is_dir():
            raise StoreUnavailable(f"{path.parent} is not a folder; nothing can be stored in it") from None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be made: {error.strerror}") from error
