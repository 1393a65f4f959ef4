"""PostgreSQL backend: connection pool, transactions, errors translated."""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from perdure.core.errors import CommitUnknown, CorruptStore, StoreError, StoreUnavailable
from perdure.core.ports import Clock
from perdure.store import schema
from perdure.store.db.database import DatabaseCheck, Dialect, Row, Step, Transaction, Value, text
from perdure.store.schema import Migration

# Prefix of the SQLSTATE → exception and message. The first match wins.
_ERRORS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("53100", StoreUnavailable, "{where}: the server's disk is full; nothing stored was changed. Free some space"),
    ("53300", StoreUnavailable, "{where} has no free connection; close others or raise max_connections"),
    ("53", StoreUnavailable, "{where} is out of resources ({detail}); nothing was changed. Retry"),
    ("25006", StoreUnavailable, "{where} is read-only (a standby?); connect to the primary server"),
    ("42501", StoreUnavailable, "{where}: no permission ({detail}); grant USAGE and CREATE on the schema to this user"),
    ("3F000", StoreUnavailable, "{where}: the schema in search_path does not exist; create it, or leave it out"),
    ("55P03", StoreUnavailable, "{where}: another process kept it busy for too long; nothing was changed. Retry"),
    ("57014", StoreUnavailable, "{where}: the server stopped a statement that took too long; nothing was changed"),
    ("57P", StoreUnavailable, "{where}: the server is shutting down or starting; nothing was changed. Retry"),
    ("08", StoreUnavailable, "{where}: the connection was lost; nothing was changed. Retry"),
    ("XX", CorruptStore, "{where}: the server reports damaged data ({detail}); restore a backup"),
    ("54", StoreError, "{where}: a message is too large to store ({detail})"),
)
# Pattern of a connection error, which has no SQLSTATE → message.
_CONNECTION_ERRORS: tuple[tuple[str, str], ...] = (
    (r"password authentication failed", "{where} refused the user name or the password"),
    (r"no password supplied|fe_sendauth", "{where} requires a password; give one in the URL or in PGPASSWORD"),
    (r"database \".*\" does not exist", "{where} does not exist; create it first (createdb)"),
    (r"role \".*\" does not exist", "{where} has no such user; check the user name in the URL"),
    (r"no pg_hba\.conf entry|not permitted to log in", "{where} does not let this user in from here (see pg_hba.conf)"),
    (r"too many clients|remaining connection slots|too many connections", "{where} has no free connection"),
    (r"failed to resolve host|could not translate host", "{where}: no such host; check the URL"),
    (r"Connection refused|No such file or directory", "{where}: no server is listening there; is it running?"),
    (r"timeout|timed out", "{where} did not answer in time; check the address and the firewall"),
    (r"starting up|shutting down|recovery mode", "{where} is starting or stopping; retry in a moment"),
    (r"SSL|certificate|GSS", "{where}: the TLS negotiation failed; check sslmode in the URL"),
)

_SERIALIZATION_FAILURES = ("40001", "40P01")
_CONSTRAINT_VIOLATIONS = ("23503", "23505")


def is_serialization_failure(error: psycopg.Error) -> bool:
    """Return whether the server rolled back a conflicting transaction, which can be retried."""
    return error.sqlstate in _SERIALIZATION_FAILURES


def is_constraint_race(error: psycopg.Error) -> bool:
    """Return whether another process created or deleted the same row concurrently; one retry sees its result."""
    return error.sqlstate in _CONSTRAINT_VIOLATIONS


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Translate the driver's errors into StoreError and its subclasses."""
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ("08" if isinstance(error, psycopg.OperationalError) else "")
        for start, kind, text in _ERRORS:
            if state.startswith(start):
                raise kind(text.format(where=where, detail=_first_line(error))) from error
        raise StoreError(f"{where}: {_first_line(error)}") from error


def connection_error(where: str, error: psycopg.Error) -> StoreUnavailable:
    """Build the error of a failed connection, without the driver's message, which may contain the password."""
    message = str(error)
    for pattern, template in _CONNECTION_ERRORS:
        if re.search(pattern, message, re.IGNORECASE):
            return StoreUnavailable(template.format(where=where))
    return StoreUnavailable(f"{where} cannot be reached; check the URL and whether the server accepts connections")


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).strip().split("\n")[0]


AnyConnection = Connection[Row]


class ConnectionPool:
    """A pool of at most `max_size` connections."""

    def __init__(self, connect: Callable[[], AnyConnection], *, max_size: int, timeout_s: float) -> None:
        self._connect = connect
        self._slots = threading.BoundedSemaphore(max_size)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: list[AnyConnection] = []
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[AnyConnection]:
        """Borrow a connection, waiting while all are in use. Raises StoreUnavailable after the timeout."""
        if not self._slots.acquire(timeout=self._timeout_s):
            raise StoreUnavailable("timed out waiting for a free connection; nothing was changed. Retry")
        try:
            connection = self._pop() or self._connect()
            try:
                yield connection
            finally:
                self._return(connection)
        finally:
            self._slots.release()

    def drop_idle(self) -> None:
        """Close idle connections after one failed: they are probably broken too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close idle connections now and the others when they are returned."""
        self._is_closed = True
        self.drop_idle()

    def _pop(self) -> AnyConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _return(self, connection: AnyConnection) -> None:
        # A connection interrupted in the middle of a query is not reused.
        is_idle = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            is_reusable = is_idle and not self._is_closed
            if is_reusable:
                self._idle.append(connection)
        if not is_reusable:
            connection.close()


T = TypeVar("T")

DIALECT = Dialect(
    name="postgresql",
    types={
        "int": "BIGINT",
        "real": "DOUBLE PRECISION",
        # Ids and names sort by byte, independent of the database's locale.
        "text": 'TEXT COLLATE "C"',
        "bytes": "BYTEA",
        "serial": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    },
    number="nextval(pg_get_serial_sequence('{}', 'id'))",
    counting="(SELECT generate_series(1, CAST(? AS INTEGER)) AS n)",
    for_update=" FOR UPDATE",
)
# How long a write waits for other writers.
TIMEOUT_S = 60.0
MAX_CONNECTIONS = 8
_RETRY_PAUSE_S = 0.005
# How long a write whose commit was not acknowledged waits for the server to report its outcome.
_OUTCOME_TIMEOUT_S, _OUTCOME_PAUSE_S = 15.0, 0.05
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
# Each statement sees earlier commits, so after locking a conversation it reads the newest state.
# The transaction's number comes in the same round trip: by it the server later reports whether it was committed.
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SELECT txid_current()"
# Replaced and deleted rows stay on disk until a VACUUM.
_VACUUM = (
    "VACUUM (INDEX_CLEANUP ON) message, message_index, output, output_index, output_text, output_chunk, event, session,"
    " conversation, handoff, message_vector"
)


class _LostCommit(Exception):
    """Raised when the connection broke before a commit was acknowledged; carries the transaction id and the result."""

    def __init__(self, transaction_id: int, result: Any, cause: psycopg.Error) -> None:
        self.transaction_id = transaction_id
        self.result = result
        self.cause = cause


class PostgresTransaction:
    """A transaction over one connection (the Transaction port)."""

    def __init__(self, connection: AnyConnection) -> None:
        # Shared by all statements: creating a cursor takes longer than sending a statement.
        self._cursor = connection.cursor(binary=True)

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        return self._execute(sql, values).fetchone()

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        return self._execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        bindings = [_values(r) for r in rows]
        if len(bindings) == 1:
            # The common case of one message: a pipeline would cost more than it saves.
            self._cursor.execute(_to_driver_sql(sql), bindings[0])
        else:
            self._cursor.executemany(_to_driver_sql(sql), bindings)

    def run_all(self, steps: Sequence[Step]) -> None:
        if any(len(rows) != 1 for _, rows in steps):
            for sql, rows in steps:
                self.run_many(sql, rows)
            return
        # The common case of one row per step: one statement with CTEs takes a single round trip.
        values = [v for _, (row,) in steps for v in row]
        self._cursor.execute(_combine(tuple(sql for sql, _ in steps)), _values(values))

    def begin(self, sql: str) -> int | None:
        """Begin the transaction; return its id if `sql` selects it."""
        # Not binary: only the simple protocol takes two statements at once.
        cursor = self._cursor.execute(sql, prepare=False, binary=False)
        row = cursor.fetchone() if cursor.nextset() else None
        return int(row[0]) if row is not None else None

    def commit(self) -> str | None:
        """Commit and return the server's status."""
        return self._cursor.execute("COMMIT", prepare=False).statusmessage

    def _execute(self, sql: str, values: Sequence[Value]) -> psycopg.Cursor[Row]:
        if not values:
            return self._cursor.execute(sql)
        return self._cursor.execute(_to_driver_sql(sql), _values(values))


class PostgresDatabase:
    """A database or one schema of it. Thread-safe, and processes on several machines may share it."""

    dialect = DIALECT

    def __init__(
        self,
        connect: Callable[[], AnyConnection],
        *,
        where: str,
        max_connections: int = MAX_CONNECTIONS,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.where = where
        self._pool = ConnectionPool(connect, max_size=max_connections, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._running = threading.local()
        self._is_closed = False
        self._finalizer = weakref.finalize(self, _close_in_process, self._pool, self._pid)

    @property
    def is_usable(self) -> bool:
        return not self._is_closed and os.getpid() == self._pid

    def read(self, work: Callable[[Transaction], T]) -> T:
        outer: PostgresTransaction | None = getattr(self._running, "transaction", None)
        # Within a transaction of the same thread it is part of it: a second connection might never come free.
        return work(outer) if outer is not None else self._transact(_READ, work)

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        return self.read(lambda tx: tx.row(sql, values))

    def write(self, work: Callable[[Transaction], T]) -> T:
        if getattr(self._running, "transaction", None) is not None:
            raise StoreError("a transaction is already running in this thread; writes cannot be nested")
        return self._transact(_WRITE, work)

    def write_unsynced(self, work: Callable[[Transaction], T]) -> T:
        # The server may lose its last commits while the processes that rely on them live on.
        return self.write(work)

    def erase(self, work: Callable[[Transaction], T]) -> T:
        result = self.write(work)
        # The rows are deleted; if this VACUUM fails, autovacuum cleans up later.
        with suppress(psycopg.Error), self._pool.connection() as connection:
            connection.execute(_VACUUM)
        return result

    def backup(self, path: Path) -> None:
        raise StoreUnavailable(
            f"{self.where} must be backed up with its own tools, such as pg_dump; a conversation can be exported"
        )

    def check(self, *, timeout_s: float | None = None) -> DatabaseCheck:
        """Return no problems: the server enforces types and references, and verifies its pages itself."""
        return DatabaseCheck()

    def close(self) -> None:
        """Close the pool; idempotent."""
        self._is_closed = True
        self._pool.close()
        self._finalizer.detach()

    def _transact(self, begin: str, work: Callable[[Transaction], T]) -> T:
        self._check_usable()
        deadline = time.monotonic() + self._timeout_s
        was_retried = False
        with translate_errors(self.where):
            while True:
                try:
                    with self._pool.connection() as connection:
                        try:
                            return self._attempt(connection, begin, work)
                        except psycopg.Error as error:
                            if connection.closed:
                                self._pool.drop_idle()
                            # The server has rolled back, so a retry cannot write anything twice.
                            if not is_serialization_failure(error):
                                if was_retried or not (connection.closed or is_constraint_race(error)):
                                    raise
                                was_retried = True
                            elif time.monotonic() > deadline:
                                raise
                except _LostCommit as lost:
                    self._pool.drop_idle()
                    if self._wait_for_outcome(lost):
                        return cast("T", lost.result)
                    if was_retried:
                        raise lost.cause from None
                    was_retried = True
                time.sleep(_RETRY_PAUSE_S)

    def _attempt(self, connection: AnyConnection, begin: str, work: Callable[[Transaction], T]) -> T:
        transaction = PostgresTransaction(connection)
        try:
            transaction_id = transaction.begin(begin)
            self._running.transaction = transaction
            result = work(transaction)
        except BaseException:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        finally:
            self._running.transaction = None
        try:
            status = transaction.commit()
        except psycopg.OperationalError as error:
            if transaction_id is not None and connection.closed:
                raise _LostCommit(transaction_id, result, error) from error
            raise
        # COMMIT reports ROLLBACK instead of an error when an earlier failure in the transaction was ignored.
        if status != "COMMIT":
            raise StoreError(f"{self.where}: a statement failed, so nothing was written")
        return result

    def _wait_for_outcome(self, lost: _LostCommit) -> bool:
        """Return whether a commit that was not acknowledged was carried out. Raises CommitUnknown."""
        deadline = time.monotonic() + min(_OUTCOME_TIMEOUT_S, self._timeout_s)
        while True:
            with suppress(StoreUnavailable, psycopg.Error):
                return self._was_committed(lost.transaction_id)
            if time.monotonic() > deadline:
                break
            time.sleep(_OUTCOME_PAUSE_S)
        raise CommitUnknown(
            f"{self.where}: the connection was lost during a commit; the write may or may not have been stored."
            " Check before retrying it",
            was_stored=partial(self._query_outcome, lost.transaction_id),
        ) from lost.cause

    def _query_outcome(self, transaction_id: int) -> bool:
        with translate_errors(self.where):
            return self._was_committed(transaction_id)

    def _was_committed(self, transaction_id: int) -> bool:
        """Ask the server whether a transaction was committed.

        Raises StoreUnavailable while it is still running there.
        """
        with self._pool.connection() as connection:
            row = connection.execute("SELECT txid_status(%s)", (transaction_id,)).fetchone()
        status = row[0] if row is not None else None
        if status == "in progress":
            raise StoreUnavailable(f"{self.where}: the server has not finished a commit yet. Retry")
        # None: so old that the server no longer knows. A write is rather missed than repeated.
        return status != "aborted"

    def _check_usable(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self.where} has been closed")
        if os.getpid() != self._pid:
            raise StoreError(f"{self.where} was opened before this process forked; open it again here")


def _close_in_process(pool: ConnectionPool, pid: int) -> None:
    """Close an unclosed pool, but not in a forked child, whose connections belong to its parent."""
    if os.getpid() == pid:
        pool.close()


@lru_cache(maxsize=512)
def _to_driver_sql(sql: str) -> str:
    """Replace `?` placeholders by the driver's `%s`; external data is always a bound value."""
    return sql.replace("%", "%%").replace("?", "%s")


@lru_cache(maxsize=64)
def _combine(statements: tuple[str, ...]) -> str:
    *others, last = statements
    named = ", ".join(f"step{n} AS ({sql})" for n, sql in enumerate(others))
    return _to_driver_sql(f"WITH {named} {last}" if others else last)


def _values(values: Sequence[Value]) -> list[Value]:
    return [text(v) if isinstance(v, str) else v for v in values]


_OLDEST_SERVER = 120_000
# Advisory lock for migrations; an arbitrary number.
_MIGRATION_LOCK = 0x7065_7264_7572_65
# Detect a dead network in about 30 s instead of hours; options in the URL take precedence.
_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "perdure",
}
# JIT compilation takes longer than our queries; the timeouts keep a hanging process from blocking others.
_SESSION = (
    "SET jit = off; SET lock_timeout = '{timeout_ms}ms'; SET idle_in_transaction_session_timeout = '{timeout_ms}ms'"
)
_TABLES = ("conversation", "session", "message", "span", "handoff", "call", "event", "output", "lease", "state")


@dataclass(frozen=True, slots=True, repr=False)
class PostgresTarget:
    """Connection options, and a description of them without the password."""

    options: Mapping[str, Any]

    @property
    def where(self) -> str:
        host, port = self.options.get("host") or "the local socket", self.options.get("port")
        name = self.options.get("dbname") or self.options.get("user") or "the default"
        return f"PostgreSQL database {name!r} at {host}{f':{port}' if port else ''}"

    def connect(self, timeout_s: float) -> AnyConnection:
        """Open a connection. Raises StoreUnavailable."""
        try:
            connection = psycopg.connect(autocommit=True, **self.options)
        except psycopg.Error as error:
            raise connection_error(self.where, error) from None
        try:
            self._check_server(connection)
            connection.execute(_SESSION.format(timeout_ms=int(timeout_s * 1000)).encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_server(self, connection: AnyConnection) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(f"{self.where} is encoded in {encoding}; create it with ENCODING 'UTF8'")
        if connection.info.server_version < _OLDEST_SERVER:
            raise StoreUnavailable(f"{self.where} runs an old PostgreSQL; version 12 or newer is needed")


def parse_target(url: str) -> PostgresTarget:
    """Parse a URL. Raises StoreUnavailable, without quoting the URL, for an invalid one."""
    try:
        options = conninfo_to_dict(url)
    except psycopg.Error:
        raise _url_error() from None
    port, location = str(options.get("port") or ""), f"{options.get('host') or ''}{options.get('dbname') or ''}"
    # An unescaped @, / or : moves part of the password into host, port or database name, which are shown.
    if "@" in location or (port and not port.replace(",", "").isdigit()):
        raise _url_error()
    return PostgresTarget({**_DEFAULTS, **options, "client_encoding": "utf8"})


def open_postgres(
    url: str, *, clock: Clock, migrations: Sequence[Migration] | None = None, timeout_s: float = TIMEOUT_S
) -> PostgresDatabase:
    """Open the database at `url`; before a migration the old tables are copied. Raises StoreUnavailable."""
    target = parse_target(url)
    steps = schema.load_migrations(DIALECT) if migrations is None else tuple(migrations)
    database = PostgresDatabase(lambda: target.connect(timeout_s), where=target.where, timeout_s=timeout_s)
    try:
        version = database.read(lambda tx: _version(tx, target.where))
        schema.check_version(version, steps, where=target.where)
        if version < steps[-1].version:
            database.write(lambda tx: _migrate(tx, steps, where=target.where, now_ms=clock.now_ms()))
    except BaseException:
        database.close()
        raise
    return database


def _migrate(tx: Transaction, steps: Sequence[Migration], *, where: str, now_ms: int) -> None:
    """Migrate under a lock, so that only one of several starting processes does it."""
    tx.run("SELECT pg_advisory_xact_lock(?)", (_MIGRATION_LOCK,))
    version = _version(tx, where)
    schema.check_version(version, steps, where=where)
    if 0 < version < steps[-1].version:
        _keep_copy(tx, version)
    schema.apply(tx, steps, DIALECT, now_ms=now_ms)


def _keep_copy(tx: Transaction, version: int) -> None:
    """Copy each table to `<table>_schema_<version>` before a migration changes it."""
    for name in sorted(_tables(tx)):
        if "_schema_" not in name:
            tx.run(f'CREATE TABLE IF NOT EXISTS "{name}_schema_{version}" AS TABLE "{name}"')


def _version(tx: Transaction, where: str) -> int:
    tables = _tables(tx)
    if "migration" not in tables:
        if theirs := sorted(tables & set(_TABLES)):
            raise StoreUnavailable(f"{where} contains tables of another program ({theirs[0]}); {_ADVICE}")
        return 0
    if not tables >= set(_TABLES):
        raise StoreUnavailable(f"{where} contains another program's migration table; {_ADVICE}")
    return schema.applied_version(tx, has_record=True)


_ADVICE = "give Perdure a database or a schema of its own (…?options=-csearch_path%3Dperdure)"


def _tables(tx: Transaction) -> set[str]:
    """Return the names of all tables in the current schema, where Perdure creates its own."""
    return {
        str(name)
        for (name,) in tx.rows("SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = current_schema()")
    }


def _url_error() -> StoreUnavailable:
    return StoreUnavailable(
        "the PostgreSQL URL is invalid; write postgresql://USER:PASSWORD@HOST:5432/database, with"
        " %40 for @, %2F for / and %3A for : in a password"
    )
