"""SQLite backend: one writer thread with group commit, pooled readers, errors translated."""

from __future__ import annotations

import errno
import os
import queue
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from perdure.core.errors import CorruptStore, StoreError, StoreUnavailable
from perdure.core.ports import Clock
from perdure.store import schema
from perdure.store.backup import remove_database
from perdure.store.db.database import Dialect, Row, Step, Transaction, Value
from perdure.store.schema import Migration

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
def translate_errors(path: Path) -> Iterator[None]:
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


T = TypeVar("T")

DIALECT = Dialect(
    name="sqlite",
    types={"int": "INTEGER", "real": "REAL", "text": "TEXT", "bytes": "BLOB", "serial": "INTEGER PRIMARY KEY"},
    # There is one writer at a time, so that nobody else takes it meanwhile.
    number="(SELECT COALESCE(MAX(id), 0) FROM {}) + n",
    counting="(WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < ?) SELECT n FROM up)",
)
# How long a write waits for writers of other processes before a person is told.
TIMEOUT_S = 60.0
_RETRY_PAUSE_S = 0.005
_IDLE_READERS = 8
# The file, its WAL, and one to spare.
_DESCRIPTORS = 3
# Writes that wait at the same time are committed together, up to so many.
_MOST_TOGETHER = 16


class _WriteJob(Generic[T]):
    """Work for the writer, and its outcome. A bare lock wakes the caller: a future takes several, and its time."""

    __slots__ = ("_done", "_error", "_result", "erases", "work")

    def __init__(self, work: Callable[[Transaction], T], *, erases: bool = False) -> None:
        self.work = work
        self.erases = erases
        self._result: T
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self, transact: Callable[[Callable[[Transaction], T]], T]) -> None:
        try:
            result = transact(self.work)
        except BaseException as error:  # the writer's edge: whatever a job raised belongs to who asked for it
            self._error = error
            self._done.release()
        else:
            self.settle(result)

    def settle(self, result: T) -> None:
        self._result = result
        self._done.release()

    def outcome(self) -> T:
        """Waits for it."""
        self._done.acquire()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # An error that refers to its own frame would keep everything in it alive.
                del self
        return self._result


class SqliteTransaction:
    """The Transaction port over one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        found: Row | None = self._connection.execute(sql, values).fetchone()
        return found

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        return self._connection.execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        self._connection.executemany(sql, rows)

    def run_all(self, steps: Sequence[Step]) -> None:
        for sql, rows in steps:
            self._connection.executemany(sql, rows)


class SqliteDatabase:
    """One file. Thread-safe; several processes may share it.

    Closed by `close()`, else when nobody refers to it any more, at the latest when the interpreter exits: whichever
    comes first moves what is in the WAL into the file.
    """

    dialect = DIALECT

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self.path = path
        self._pid = os.getpid()
        self._timeout_s = timeout_s
        self._writer = _Writer(path, timeout_s=timeout_s)
        self._finalizer = weakref.finalize(self, _close_in_process, self._writer, self._pid)

    @property
    def is_usable(self) -> bool:
        """Whether it is open and its path still leads to the file it has open."""
        return not self._writer.is_closed and os.getpid() == self._pid and self._writer.file.is_in_place

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._refuse_if_unusable()
        with self._writer.reader() as connection, translate_errors(self.path):
            connection.execute("BEGIN")
            try:
                return work(SqliteTransaction(connection))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        self._refuse_if_unusable()
        with self._writer.reader() as connection, translate_errors(self.path):
            return SqliteTransaction(connection).row(sql, values)

    def write(self, work: Callable[[Transaction], T]) -> T:
        return self._queued(_WriteJob(work))

    def erase(self, work: Callable[[Transaction], T]) -> T:
        return self._queued(_WriteJob(work, erases=True))

    def _queued(self, job: _WriteJob[T]) -> T:
        """What a job returns, run by the one thread that writes."""
        self._refuse_if_unusable()
        if not self._writer.submit(job):
            self._refuse_if_unusable()
        return job.outcome()

    def use_wal(self) -> None:
        """Readers and a writer side by side, from now on and for every process."""
        deadline = time.monotonic() + self._timeout_s
        with translate_errors(self.path):
            # Changing the mode does not wait by itself when several processes open a new file at once.
            while True:
                try:
                    self._writer.connection.execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError as error:
                    if not is_busy(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(_RETRY_PAUSE_S)

    def backup(self, path: Path) -> None:
        with self._writer.reader() as source, translate_errors(path):
            target = sqlite3.connect(path)
            try:
                path.chmod(0o600)
                source.backup(target)
            finally:
                target.close()

    def close(self) -> None:
        """Waits for what is being written; safe to call twice."""
        self._writer.close()
        self._finalizer.detach()

    def _refuse_if_unusable(self) -> None:
        if self._writer.is_closed:
            raise StoreError(f"{self.path} has been closed")
        if os.getpid() != self._pid:
            raise StoreError(f"{self.path} was opened before this process forked; open it again here")


class _Writer:
    """The thread that writes, and every connection to the file.

    It never refers to its database: one that nobody uses any more can then be collected, and is closed by that.
    """

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._jobs: queue.SimpleQueue[_WriteJob[Any] | None] = queue.SimpleQueue()
        self._readers: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self.is_closed = False
        self._closing = threading.Lock()
        self.connection = self._connect()
        self.file = OpenFile(path)
        self._thread = threading.Thread(target=self._work, name=f"store-writer {path.name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.connection.close()
            raise StoreUnavailable(f"{path} cannot be opened: no thread can be started for it ({error})") from error

    def submit(self, job: _WriteJob[Any]) -> bool:
        """Queues a job; False once the file is being closed."""
        with self._closing:
            if not self.is_closed:
                self._jobs.put(job)
            return not self.is_closed

    def close(self) -> None:
        with self._closing:
            if self.is_closed:
                return
            self.is_closed = True
            self._jobs.put(None)
        # The last reference may be dropped by a job, and so in the writer's own thread, which ends by itself then.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that cannot write, for one use."""
        try:
            connection = self._readers.get_nowait()
        except queue.Empty:
            self.file.refuse_if_moved()
            require_descriptors(self._path, _DESCRIPTORS)
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
        try:
            yield connection
        finally:
            if self.is_closed or self._readers.qsize() >= _IDLE_READERS:
                connection.close()
            else:
                self._readers.put(connection)

    def _work(self) -> None:
        while jobs := self._next_jobs():
            if len(jobs) == 1 or not self._transact_together(jobs):
                for job in jobs:
                    job.run(self._transact_erasing if job.erases else self._transact)
                    # Neither the job nor its result may live on while the thread waits for the next one.
                    del job
            del jobs
        with suppress(queue.Empty):
            while True:
                self._readers.get_nowait().close()
        # Last, because the last connection to be closed moves the WAL into the file.
        self.connection.close()

    def _next_jobs(self) -> list[_WriteJob[Any]]:
        """The next job, with those that wait behind it already; none once the store is closed."""
        job = self._jobs.get()
        jobs: list[_WriteJob[Any]] = []
        with suppress(queue.Empty):
            while job is not None:
                jobs.append(job)
                if job.erases or len(jobs) >= _MOST_TOGETHER:
                    return jobs
                job = self._jobs.get_nowait()
            if jobs:  # the end is for the next look: what came before it is still written
                self._jobs.put(None)
        return jobs

    def _transact_together(self, jobs: Sequence[_WriteJob[Any]]) -> bool:
        """Several writes, one commit, and so one sync of the disk for all; False where one fails, and none is done."""
        if any(job.erases for job in jobs):
            return False
        try:
            results = self._transact(lambda tx: [job.work(tx) for job in jobs])
        except Exception:  # each is then run alone, and meets its own trouble there
            return False
        for job, result in zip(jobs, results, strict=True):
            job.settle(result)
        return True

    def _transact(self, work: Callable[[Transaction], T]) -> T:
        deadline = time.monotonic() + self._timeout_s
        connection = self.connection
        with translate_errors(self._path):
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    result = work(SqliteTransaction(connection))
                    # A commit to a file that was deleted or moved would be acknowledged and never be seen again.
                    self.file.refuse_if_moved()
                    connection.execute("COMMIT")
                    return result
                except sqlite3.OperationalError as error:
                    if not is_busy(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(_RETRY_PAUSE_S)
                finally:
                    if connection.in_transaction:
                        with suppress(sqlite3.Error):
                            connection.execute("ROLLBACK")

    def _transact_erasing(self, work: Callable[[Transaction], T]) -> T:
        """Freed pages are overwritten, and the WAL, where older ones may stand, is emptied."""
        connection = self.connection
        connection.execute("PRAGMA secure_delete = ON")
        try:
            result = self._transact(work)
        finally:
            connection.execute("PRAGMA secure_delete = OFF")
        with translate_errors(self._path):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return result

    def _connect(self) -> sqlite3.Connection:
        with translate_errors(self._path):
            # The file was made before: one that has gone since must not be replaced by an empty one.
            connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=self._timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                # FULL: a commit is on the disk when it returns, so that a power cut takes nothing acknowledged.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA cache_size = -16000")
                # Copying the WAL back costs several disk syncs: every 16 MB instead of every 4.
                connection.execute("PRAGMA wal_autocheckpoint = 4000")
                connection.execute("PRAGMA journal_size_limit = 67108864")
            except sqlite3.Error:
                connection.close()
                raise
            return connection


def _close_in_process(writer: _Writer, pid: int) -> None:
    """Closes what was not closed. In a forked child the connections are its parent's, and stay alone."""
    if os.getpid() == pid:
        writer.close()


# A connection that writes and one that reads: the file and its WAL for each, what they share, and one to spare.
_sqlite_open_DESCRIPTORS = 6


def open_sqlite(
    path: Path, *, clock: Clock, migrations: Sequence[Migration] | None = None, timeout_s: float = TIMEOUT_S
) -> SqliteDatabase:
    """The database at `path`. A copy is kept beside it before an old schema is changed."""
    require_descriptors(path, _sqlite_open_DESCRIPTORS)
    steps = schema.load_migrations(DIALECT) if migrations is None else tuple(migrations)
    _make_private(path)
    database = SqliteDatabase(path, timeout_s=timeout_s)
    try:
        version = database.read(lambda tx: _version(tx, path))
        schema.check_version(version, steps, where=str(path))
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
    return schema.applied_version(tx, has_record=bool(tables))


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
