"""SQLite backend: one write at a time, group commit under load, pooled readers, errors translated."""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from perdure.core.errors import CorruptStore, StoreError, StoreUnavailable
from perdure.core.ports import Clock
from perdure.store import schema
from perdure.store.backup import remove_database
from perdure.store.db.database import DatabaseCheck, Dialect, Row, Step, Transaction, Value
from perdure.store.db.sqlite_check import check_database
from perdure.store.db.sqlite_process import OpenFile, fork_gate, require_descriptors
from perdure.store.schema import Migration

_CORRUPT = "{path} is damaged; it was left untouched. Restore a backup ({detail})"
# Prefix of SQLite's error name → exception and message. The first match wins.
_ERRORS: tuple[tuple[str, type[StoreError], str], ...] = (
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
    ("SQLITE_CORRUPT", CorruptStore, _CORRUPT),
    ("SQLITE_IOERR", StoreUnavailable, "{path}: the disk failed ({detail}); nothing stored was changed"),
    ("SQLITE_TOOBIG", StoreError, "{path}: a message is too large to store ({detail})"),
)


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process is writing, so that a retry may succeed."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into StoreError and its subclasses."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        for start, kind, text in _ERRORS:
            if name.startswith(start):
                raise kind(text.format(path=path, detail=error)) from error
        raise StoreError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        # SQLite's error message may quote invalid bytes of a damaged file.
        raise CorruptStore(_CORRUPT.format(path=path, detail="it contains invalid text")) from error
    except OverflowError as error:
        # A number computed from a damaged one exceeds 64 bits.
        raise CorruptStore(_CORRUPT.format(path=path, detail="it contains an impossible number")) from error


T = TypeVar("T")

DIALECT = Dialect(
    name="sqlite",
    types={"int": "INTEGER", "real": "REAL", "text": "TEXT", "bytes": "BLOB", "serial": "INTEGER PRIMARY KEY"},
    # Safe, because SQLite has a single writer.
    number="(SELECT COALESCE(MAX(id), 0) FROM {}) + n",
    counting="(WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < ?) SELECT n FROM up)",
)
# How long a write waits for writers of other processes.
TIMEOUT_S = 60.0
_RETRY_PAUSE_S = 0.005
_IDLE_READERS = 8
# The file, its WAL and one spare.
_DESCRIPTORS = 3
# A writer and a reader with the file and WAL each, the shared memory file, and one spare.
_DESCRIPTORS_TO_OPEN = 6
# Group commit: queued writes are committed together, up to this many.
_MAX_GROUP = 16


# FULL: a commit is on disk when it returns, so that a power cut loses nothing acknowledged. NORMAL: with the next one.
Synchronous = Literal["FULL", "NORMAL"]


class _WriteJob(Generic[T]):
    """A write waiting for the writer thread, and its outcome; a bare lock signals completion faster than a Future."""

    __slots__ = ("_done", "_error", "erases", "result", "synchronous", "work")

    def __init__(
        self, work: Callable[[Transaction], T], *, erases: bool = False, synchronous: Synchronous = "FULL"
    ) -> None:
        self.work = work
        self.erases = erases
        self.synchronous = synchronous
        self.result: T
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self, transact: Callable[[Callable[[Transaction], T], Synchronous], T]) -> None:
        try:
            self.result = transact(self.work, self.synchronous)
        except BaseException as error:  # thread boundary: every error is raised in the calling thread
            self._error = error

    def signal_done(self) -> None:
        """Let `outcome` return; its caller may write again at once, so the write connection must be free."""
        self._done.release()

    def outcome(self) -> T:
        """Wait for the job; return its result or raise its error."""
        self._done.acquire()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Break the reference cycle of error, traceback and frame.
                del self
        return self.result


class SqliteTransaction:
    """A transaction over one connection (the Transaction port); reading a damaged page raises CorruptStore."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._translate(error) from error

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        try:
            row: Row | None = self._connection.execute(sql, values).fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._translate(error) from error
        return row

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        return self._connection.execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        self._connection.executemany(sql, rows)

    def run_all(self, steps: Sequence[Step]) -> None:
        for sql, rows in steps:
            self._connection.executemany(sql, rows)

    def _translate(self, error: sqlite3.DatabaseError | UnicodeDecodeError) -> Exception:
        if isinstance(error, UnicodeDecodeError):  # SQLite's error message quotes invalid bytes of a damaged file
            return CorruptStore(_CORRUPT.format(path=self._path, detail="it contains invalid text"))
        is_corrupt = getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT")
        return CorruptStore(_CORRUPT.format(path=self._path, detail=error)) if is_corrupt else error


class SqliteDatabase:
    """A database file. Thread-safe, and several processes may share it.

    Closed by `close()`, by garbage collection or at interpreter exit; closing checkpoints the WAL into the file.
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
        """Whether the database is open and its path still leads to the open file."""
        return not self._writer.is_closed and os.getpid() == self._pid and self._writer.file.is_in_place

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._check_usable()
        with fork_gate(), self._writer.reader() as connection, translate_errors(self.path):
            connection.execute("BEGIN")
            try:
                return work(SqliteTransaction(connection, self.path))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        self._check_usable()
        with fork_gate(), self._writer.reader() as connection, translate_errors(self.path):
            return SqliteTransaction(connection, self.path).row(sql, values)

    def write(self, work: Callable[[Transaction], T]) -> T:
        return self._run_job(_WriteJob(work))

    def write_unsynced(self, work: Callable[[Transaction], T]) -> T:
        return self._run_job(_WriteJob(work, synchronous="NORMAL"))

    def erase(self, work: Callable[[Transaction], T]) -> T:
        return self._run_job(_WriteJob(work, erases=True))

    def _run_job(self, job: _WriteJob[T]) -> T:
        """Run a job in this thread if no other write is under way, else in the writer thread; return its result."""
        self._check_usable()
        if not self._writer.run_here(job) and not self._writer.submit(job):
            self._check_usable()
        return job.outcome()

    def use_wal(self) -> None:
        """Switch to WAL mode, so that reads and a write can run concurrently in all processes."""
        deadline = time.monotonic() + self._timeout_s
        with fork_gate(), translate_errors(self.path):
            # Changing the journal mode does not honour the busy timeout.
            while True:
                try:
                    self._writer.connection.execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError as error:
                    if not is_busy(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(_RETRY_PAUSE_S)

    def backup(self, path: Path) -> None:
        with fork_gate(), self._writer.reader() as source, translate_errors(path):
            target = sqlite3.connect(path)
            try:
                path.chmod(0o600)
                source.backup(target)
            finally:
                target.close()

    def check(self, *, timeout_s: float | None = None) -> DatabaseCheck:
        self._check_usable()
        with fork_gate(), self._writer.reader() as connection:
            return check_database(connection, timeout_s=timeout_s)

    def close(self) -> None:
        """Finish pending writes and close; idempotent. In a forked child there is nothing to close."""
        if os.getpid() == self._pid:
            self._writer.close()
        self._finalizer.detach()

    def _check_usable(self) -> None:
        if self._writer.is_closed:
            raise StoreError(f"{self.path} has been closed")
        if os.getpid() != self._pid:
            raise StoreError(f"{self.path} was opened before this process forked; open it again here")


class _Writer:
    """The writer thread and all connections to the file.

    A write runs in the calling thread while there is no other: a hand-over costs more than a small write. Writes that
    come meanwhile are queued for the writer thread, which commits them together.

    It holds no reference to its SqliteDatabase, so that an unused one can be garbage-collected and thereby closed.
    """

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._jobs: queue.SimpleQueue[_WriteJob[Any] | None] = queue.SimpleQueue()
        self._readers: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        # Held by the thread that uses the write connection.
        self._writing = threading.Lock()
        self.is_closed = False
        self._closing = threading.Lock()
        self.connection = self._connect()
        self._synchronous: Synchronous = "FULL"
        self.file = OpenFile(path)
        self._thread = threading.Thread(target=self._work, name=f"store-writer {path.name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.connection.close()
            raise StoreUnavailable(f"{path} cannot be opened: no thread can be started for it ({error})") from error

    def run_here(self, job: _WriteJob[Any]) -> bool:
        """Run a job in the calling thread; False where another write is running or queued.

        Not in the main thread, where Ctrl-C could interrupt it between any two instructions.
        """
        if job.erases or not self._jobs.empty() or threading.current_thread() is threading.main_thread():
            return False
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self.is_closed:
                return False
            job.run(self._transact)
        finally:
            self._writing.release()
        job.signal_done()
        return True

    def submit(self, job: _WriteJob[Any]) -> bool:
        """Queue a job; False once the file is being closed."""
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
        # A job may drop the last reference in the writer thread itself, which must not join itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Borrow a read-only connection from the pool."""
        try:
            connection = self._readers.get_nowait()
        except queue.Empty:
            self.file.check_in_place()
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
        while (job := self._jobs.get()) is not None:
            with self._writing:
                jobs = self._take_group(job)
                is_committed = len(jobs) > 1 and self._transact_group(jobs)
            for job in jobs:
                if not is_committed:
                    self._run_alone(job)
                job.signal_done()
            # Release the jobs and their results before waiting for the next one.
            del job, jobs
        with fork_gate(), suppress(queue.Empty):
            while True:
                self._readers.get_nowait().close()
        # Closed last, because the last connection checkpoints the WAL.
        with self._writing, fork_gate():
            self.connection.close()

    def _run_alone(self, job: _WriteJob[Any]) -> None:
        with self._writing:
            job.run(self._transact_erasing if job.erases else self._transact)

    def _take_group(self, first: _WriteJob[Any]) -> list[_WriteJob[Any]]:
        """Return a job and those queued after it, to be committed together."""
        jobs = [first]
        with suppress(queue.Empty):
            while not jobs[-1].erases and len(jobs) < _MAX_GROUP:
                job = self._jobs.get_nowait()
                if job is None:  # the close marker: process the jobs before it first
                    self._jobs.put(None)
                    break
                jobs.append(job)
        return jobs

    def _transact_group(self, jobs: Sequence[_WriteJob[Any]]) -> bool:
        """Commit several writes with one fsync; False, with nothing written, when one of them fails."""
        if any(job.erases for job in jobs):
            return False
        synchronous: Synchronous = "FULL" if any(job.synchronous == "FULL" for job in jobs) else "NORMAL"
        try:
            results = self._transact(lambda tx: [job.work(tx) for job in jobs], synchronous)
        except Exception:  # each job is then run alone and raises its own error
            return False
        for job, result in zip(jobs, results, strict=True):
            job.result = result
        return True

    def _transact(self, work: Callable[[Transaction], T], synchronous: Synchronous) -> T:
        deadline = time.monotonic() + self._timeout_s
        connection = self.connection
        with fork_gate(), translate_errors(self._path):
            while True:
                try:
                    if synchronous != self._synchronous:
                        connection.execute(f"PRAGMA synchronous = {synchronous}")
                        self._synchronous = synchronous
                    connection.execute("BEGIN IMMEDIATE")
                    result = work(SqliteTransaction(connection, self._path))
                    # SQLite would acknowledge a commit to a deleted or moved file.
                    self.file.check_in_place()
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

    def _transact_erasing(self, work: Callable[[Transaction], T], synchronous: Synchronous) -> T:
        """Run a write that deletes data.

        Overwrite the freed pages and truncate the WAL, so that nothing remains on disk.
        """
        connection = self.connection
        with fork_gate():
            connection.execute("PRAGMA secure_delete = ON")
            try:
                result = self._transact(work, synchronous)
            finally:
                connection.execute("PRAGMA secure_delete = OFF")
            with translate_errors(self._path):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return result

    def _connect(self) -> sqlite3.Connection:
        with fork_gate(), translate_errors(self._path):
            # mode=rw: a file that was deleted meanwhile must not be recreated empty.
            connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=self._timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            try:
                # A damaged text must not keep the other columns and rows from being read.
                connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA cache_size = -16000")
                # A checkpoint costs several fsyncs: run one every 16 MB instead of every 4 MB.
                connection.execute("PRAGMA wal_autocheckpoint = 4000")
                connection.execute("PRAGMA journal_size_limit = 67108864")
            except sqlite3.Error:
                connection.close()
                raise
            return connection


def _close_in_process(writer: _Writer, pid: int) -> None:
    """Close an unclosed database, but not in a forked child, whose connections belong to its parent."""
    if os.getpid() == pid:
        writer.close()


def open_sqlite(
    path: Path, *, clock: Clock, migrations: Sequence[Migration] | None = None, timeout_s: float = TIMEOUT_S
) -> SqliteDatabase:
    """Open or create the database at `path`; before a migration the old file is copied. Raises StoreUnavailable."""
    require_descriptors(path, _DESCRIPTORS_TO_OPEN)
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
    """Copy the database before a migration, as `<name>.schema-<version>.bak` next to it."""
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
        raise StoreUnavailable(f"{path} is a database of another program; choose another file")
    return schema.applied_version(tx, has_record=bool(tables))


def _make_private(path: Path) -> None:
    """Create a new file with owner-only permissions, because conversations are private."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise StoreUnavailable(f"{path} is a folder; name a file in it") from None
        if not path.parent.is_dir():
            raise StoreUnavailable(f"{path.parent} is not a folder; nothing can be stored in it") from None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be created: {error.strerror}") from error
