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
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from perdure.core.errors import CorruptStore, StoreError, StoreUnavailable
from perdure.core.ports import Clock
from perdure.store import schema
from perdure.store.db.database import Dialect, Row, Step, Transaction, Value, text
from perdure.store.schema import Migration

# The start of an SQLSTATE → (what to raise, what to say). The first that fits wins.
_MEANINGS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("53100", StoreUnavailable, "{where}: the server's disk is full; nothing stored was changed. Free some space"),
    ("53300", StoreUnavailable, "{where} has no connection left to give; close others or raise max_connections"),
    ("53", StoreUnavailable, "{where} is out of resources ({detail}); nothing was changed. Retry"),
    ("25006", StoreUnavailable, "{where} is read-only (a standby?); name the server that takes writes"),
    ("42501", StoreUnavailable, "{where}: no permission ({detail}); grant USAGE and CREATE on the schema to this user"),
    ("3F000", StoreUnavailable, "{where}: the schema in search_path does not exist; create it, or leave it out"),
    ("55P03", StoreUnavailable, "{where}: another process kept it busy for too long; nothing was changed. Retry"),
    ("57014", StoreUnavailable, "{where}: the server stopped a statement that took too long; nothing was changed"),
    ("57P", StoreUnavailable, "{where}: the server is shutting down or starting; nothing was changed. Retry"),
    ("08", StoreUnavailable, "{where}: the connection was lost; nothing was changed. Retry"),
    ("XX", CorruptStore, "{where}: the server reports damaged data ({detail}); restore a backup"),
    ("54", StoreError, "{where}: a message is too large to store ({detail})"),
)
# What is said when a connection cannot be made → what it means. Such errors carry no SQLSTATE.
_REFUSALS: tuple[tuple[str, str], ...] = (
    (r"password authentication failed", "{where} refused the user name or the password"),
    (r"no password supplied|fe_sendauth", "{where} asks for a password; give one in the URL or in PGPASSWORD"),
    (r"database \".*\" does not exist", "{where} does not exist; create it first (createdb)"),
    (r"role \".*\" does not exist", "{where} knows no such user; check the user name in the URL"),
    (r"no pg_hba\.conf entry|not permitted to log in", "{where} does not let this user in from here (see pg_hba.conf)"),
    (r"too many clients|remaining connection slots|too many connections", "{where} has no connection left to give"),
    (r"failed to resolve host|could not translate host", "{where}: no such host; check the URL"),
    (r"Connection refused|No such file or directory", "{where}: no server answers there; is it running?"),
    (r"timeout|timed out", "{where} did not answer in time; check the address and the firewall"),
    (r"starting up|shutting down|recovery mode", "{where} is starting or stopping just now; retry in a moment"),
    (r"SSL|certificate|GSS", "{where}: no secure connection could be agreed on; check sslmode in the URL"),
)

_CLASHES = ("40001", "40P01")
_RACES = ("23503", "23505")


def is_serialization_failure(error: psycopg.Error) -> bool:
    """Two transactions stood in each other's way and the server undid one of them: do it again."""
    return error.sqlstate in _CLASHES


def is_constraint_race(error: psycopg.Error) -> bool:
    """Another process made or deleted the very row meanwhile: looked at again, it is there or gone."""
    return error.sqlstate in _RACES


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """The driver's errors become ours on their way out."""
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ("08" if isinstance(error, psycopg.OperationalError) else "")
        for start, kind, text in _MEANINGS:
            if state.startswith(start):
                raise kind(text.format(where=where, detail=_first_line(error))) from error
        raise StoreError(f"{where}: {_first_line(error)}") from error


def connection_error(where: str, error: psycopg.Error) -> StoreUnavailable:
    """Why a connection could not be made. The driver's own words may repeat what the URL held, so they stay out."""
    message = str(error)
    for pattern, template in _REFUSALS:
        if re.search(pattern, message, re.IGNORECASE):
            return StoreUnavailable(template.format(where=where))
    return StoreUnavailable(f"{where} cannot be reached; check the URL and that the server takes connections from here")


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).strip().split("\n")[0]


AnyConnection = Connection[Row]


class ConnectionPool:
    """At most `most` at once: a server has few to give, and other processes want some too."""

    def __init__(self, connect: Callable[[], AnyConnection], *, most: int, timeout_s: float) -> None:
        self._connect = connect
        self._slots = threading.BoundedSemaphore(most)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: list[AnyConnection] = []
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[AnyConnection]:
        """One that nobody else uses until the block ends. Waits while all are taken."""
        if not self._slots.acquire(timeout=self._timeout_s):
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


T = TypeVar("T")

DIALECT = Dialect(
    name="postgresql",
    types={
        "int": "BIGINT",
        "real": "DOUBLE PRECISION",
        # Ids and names sort by their bytes, whatever language the database was made for.
        "text": 'TEXT COLLATE "C"',
        "bytes": "BYTEA",
        "serial": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    },
    number="nextval(pg_get_serial_sequence('{}', 'id'))",
    counting="(SELECT generate_series(1, CAST(? AS INTEGER)) AS n)",
    for_update=" FOR UPDATE",
)
# How long a write waits for others before a person is told.
TIMEOUT_S = 60.0
MOST_CONNECTIONS = 8
_RETRY_PAUSE_S = 0.005
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
# Each statement sees what was committed before it: after the lock on a conversation that is its newest state.
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE"
# Rows that were replaced or deleted stay in their pages until somebody sweeps.
_CLEAN = (
    "VACUUM (INDEX_CLEANUP ON) message, message_index, output, output_index, output_text, output_chunk, event, session,"
    " conversation, handoff"
)


class PostgresTransaction:
    """The Transaction port over one connection."""

    def __init__(self, connection: AnyConnection) -> None:
        # One for all statements, each read to its end: making a cursor takes longer than sending a statement.
        self._cursor = connection.cursor(binary=True)

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        return self._execute(sql, values).fetchone()

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        return self._execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        given = [_values(r) for r in rows]
        if len(given) == 1:
            # Most appends are of one message: a pipeline for it would cost more than it saves.
            self._cursor.execute(_spelt(sql), given[0])
        else:
            self._cursor.executemany(_spelt(sql), given)

    def run_all(self, steps: Sequence[Step]) -> None:
        if any(len(rows) != 1 for _, rows in steps):
            for sql, rows in steps:
                self.run_many(sql, rows)
            return
        # Most appends are of one message. As one statement they are sent, planned and answered once.
        values = [v for _, (row,) in steps for v in row]
        self._cursor.execute(_together(tuple(sql for sql, _ in steps)), _values(values))

    def command(self, sql: str) -> str | None:
        """What the server says to BEGIN or COMMIT, sent as it is."""
        return self._cursor.execute(sql, prepare=False).statusmessage

    def _execute(self, sql: str, values: Sequence[Value]) -> psycopg.Cursor[Row]:
        if not values:
            return self._cursor.execute(sql)
        return self._cursor.execute(_spelt(sql), _values(values))


class PostgresDatabase:
    """One database, or one schema of it. Thread-safe; many processes on many machines may share it."""

    dialect = DIALECT

    def __init__(
        self,
        connect: Callable[[], AnyConnection],
        *,
        where: str,
        most_connections: int = MOST_CONNECTIONS,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.where = where
        self._pool = ConnectionPool(connect, most=most_connections, timeout_s=timeout_s)
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
            raise StoreError("a transaction is under way in this thread; a write within it could not be undone alone")
        return self._transact(_WRITE, work)

    def erase(self, work: Callable[[Transaction], T]) -> T:
        result = self.write(work)
        # What was asked for is done. Where cleaning up fails or must wait, the server's own rounds do it later.
        with suppress(psycopg.Error), self._pool.connection() as connection:
            connection.execute(_CLEAN)
        return result

    def backup(self, path: Path) -> None:
        raise StoreUnavailable(
            f"{self.where} is backed up by its own means (pg_dump, say); a conversation can be exported"
        )

    def close(self) -> None:
        """Safe to call twice."""
        self._is_closed = True
        self._pool.close()
        self._finalizer.detach()

    def _transact(self, begin: str, work: Callable[[Transaction], T]) -> T:
        self._refuse_if_unusable()
        deadline = time.monotonic() + self._timeout_s
        was_repeated = False
        with translate_errors(self.where):
            while True:
                with self._pool.connection() as connection:
                    try:
                        return self._attempt(connection, begin, work)
                    except psycopg.Error as error:
                        if connection.closed:
                            self._pool.drop_idle()
                        # Up to here the server has undone everything, so that doing it again adds nothing twice.
                        if not is_serialization_failure(error):
                            if was_repeated or not (connection.closed or is_constraint_race(error)):
                                raise
                            was_repeated = True
                        elif time.monotonic() > deadline:
                            raise
                time.sleep(_RETRY_PAUSE_S)

    def _attempt(self, connection: AnyConnection, begin: str, work: Callable[[Transaction], T]) -> T:
        transaction = PostgresTransaction(connection)
        try:
            transaction.command(begin)
            self._running.transaction = transaction
            result = work(transaction)
        except BaseException:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        finally:
            self._running.transaction = None
        self._commit(connection, transaction, is_write=begin is _WRITE)
        return result

    def _commit(self, connection: AnyConnection, transaction: PostgresTransaction, *, is_write: bool) -> None:
        try:
            outcome = transaction.command("COMMIT")
        except psycopg.OperationalError as error:
            # Nobody can tell whether it arrived: repeating it might write it twice.
            if is_write and connection.closed:
                self._pool.drop_idle()
                raise StoreUnavailable(
                    f"{self.where}: the connection was lost while a write was being confirmed; it may or may not have"
                    " been kept. Look before repeating it"
                ) from error
            raise
        # The server answers so, and not with an error, when a statement had failed and somebody passed over it.
        if outcome != "COMMIT":
            raise StoreError(f"{self.where}: a statement had failed, so that nothing was written")

    def _refuse_if_unusable(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self.where} has been closed")
        if os.getpid() != self._pid:
            raise StoreError(f"{self.where} was opened before this process forked; open it again here")


def _close_in_process(pool: ConnectionPool, pid: int) -> None:
    """Closes what was not closed. In a forked child the connections are its parent's, and stay alone."""
    if os.getpid() == pid:
        pool.close()


@lru_cache(maxsize=512)
def _spelt(sql: str) -> str:
    """`?` marks as the driver spells them. The SQL is our own; what comes from outside is always a value."""
    return sql.replace("%", "%%").replace("?", "%s")


@lru_cache(maxsize=64)
def _together(statements: tuple[str, ...]) -> str:
    *others, last = statements
    named = ", ".join(f"step{n} AS ({sql})" for n, sql in enumerate(others))
    return _spelt(f"WITH {named} {last}" if others else last)


def _values(values: Sequence[Value]) -> list[Value]:
    return [text(v) if isinstance(v, str) else v for v in values]


_OLDEST_SERVER = 120_000
# The name of a lock that every starting process takes; any number nobody else uses would do.
_MIGRATION_LOCK = 0x7065_7264_7572_65
# Notices a dead network in about half a minute instead of hours; a setting in the URL wins.
_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "perdure",
}
# Compiling a query costs more than any of ours takes. A process that hangs in mid-write must not hold the others up.
_SESSION = (
    "SET jit = off; SET lock_timeout = '{timeout_ms}ms'; SET idle_in_transaction_session_timeout = '{timeout_ms}ms'"
)
_TABLES = ("conversation", "session", "message", "span", "handoff", "call", "event", "output", "lease", "state")


@dataclass(frozen=True, slots=True, repr=False)
class PostgresTarget:
    """Where to connect, and how to speak of it: never with the password."""

    options: Mapping[str, Any]

    @property
    def where(self) -> str:
        host, port = self.options.get("host") or "the local socket", self.options.get("port")
        name = self.options.get("dbname") or self.options.get("user") or "the default"
        return f"PostgreSQL database {name!r} at {host}{f':{port}' if port else ''}"

    def connect(self, timeout_s: float) -> AnyConnection:
        """Raises StoreUnavailable, saying what to check."""
        try:
            connection = psycopg.connect(autocommit=True, **self.options)
        except psycopg.Error as error:
            raise connection_error(self.where, error) from None
        try:
            self._refuse_unfit(connection)
            connection.execute(_SESSION.format(timeout_ms=int(timeout_s * 1000)).encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_unfit(self, connection: AnyConnection) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(f"{self.where} is encoded in {encoding}; create it with ENCODING 'UTF8'")
        if connection.info.server_version < _OLDEST_SERVER:
            raise StoreUnavailable(f"{self.where} runs an old PostgreSQL; version 12 or newer is needed")


def parse_target(url: str) -> PostgresTarget:
    """What a URL names. Raises StoreUnavailable for one that cannot be understood, without repeating it."""
    try:
        options = conninfo_to_dict(url)
    except psycopg.Error:
        raise _misunderstood() from None
    port, places = str(options.get("port") or ""), f"{options.get('host') or ''}{options.get('dbname') or ''}"
    # A password with a bare @, / or : in it ends up in the host, the port or the name, and must not be shown there.
    if "@" in places or (port and not port.replace(",", "").isdigit()):
        raise _misunderstood()
    return PostgresTarget({**_DEFAULTS, **options, "client_encoding": "utf8"})


def open_postgres(
    url: str, *, clock: Clock, migrations: Sequence[Migration] | None = None, timeout_s: float = TIMEOUT_S
) -> PostgresDatabase:
    """The database at `url`. The tables of an older schema are kept as copies before they are changed."""
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
    """Of several processes that start at once, one migrates; the others then find it done."""
    tx.run("SELECT pg_advisory_xact_lock(?)", (_MIGRATION_LOCK,))
    version = _version(tx, where)
    schema.check_version(version, steps, where=where)
    if 0 < version < steps[-1].version:
        _keep_copy(tx, version)
    schema.apply(tx, steps, DIALECT, now_ms=now_ms)


def _keep_copy(tx: Transaction, version: int) -> None:
    """Each table as the older Perdure left it, as `<table>_schema_<version>` beside it."""
    for name in sorted(_tables(tx)):
        if "_schema_" not in name:
            tx.run(f'CREATE TABLE IF NOT EXISTS "{name}_schema_{version}" AS TABLE "{name}"')


def _version(tx: Transaction, where: str) -> int:
    tables = _tables(tx)
    if "migration" not in tables:
        if theirs := sorted(tables & set(_TABLES)):
            raise StoreUnavailable(f"{where} holds tables of another program ({theirs[0]}); {_ADVICE}")
        return 0
    if not tables >= set(_TABLES):
        raise StoreUnavailable(f"{where} holds another program's migration table; {_ADVICE}")
    return schema.applied_version(tx, has_record=True)


_ADVICE = "give Perdure a database or a schema of its own (…?options=-csearch_path%3Dperdure)"


def _tables(tx: Transaction) -> set[str]:
    """In the schema where ours would be made; others in the search path are none of our business."""
    return {
        str(name)
        for (name,) in tx.rows("SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = current_schema()")
    }


def _misunderstood() -> StoreUnavailable:
    return StoreUnavailable(
        "the PostgreSQL URL cannot be understood; write postgresql://USER:PASSWORD@HOST:5432/database, with"
        " %40 for @, %2F for / and %3A for : within a password"
    )
