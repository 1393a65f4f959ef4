"""Opening a PostgreSQL database by its URL: migrated under a lock if it is old, refused untouched if it is not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from perdure.core.errors import StoreUnavailable
from perdure.core.ports import Clock
from perdure.store import schema
from perdure.store.database import Transaction
from perdure.store.postgres import DIALECT, PATIENCE_S, PostgresDatabase
from perdure.store.postgres_errors import refusal
from perdure.store.postgres_pool import AnyConnection
from perdure.store.schema import Migration

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
    "SET jit = off; SET lock_timeout = '{patience_ms}ms'; SET idle_in_transaction_session_timeout = '{patience_ms}ms'"
)
_TABLES = ("conversation", "session", "message", "span", "handoff", "call", "event", "output", "lease", "state")


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """Where to connect, and how to speak of it: never with the password."""

    options: Mapping[str, Any]

    @property
    def where(self) -> str:
        host, port = self.options.get("host") or "the local socket", self.options.get("port")
        name = self.options.get("dbname") or self.options.get("user") or "the default"
        return f"PostgreSQL database {name!r} at {host}{f':{port}' if port else ''}"

    def connect(self, patience_s: float) -> AnyConnection:
        """Raises StoreUnavailable, saying what to check."""
        try:
            connection = psycopg.connect(autocommit=True, **self.options)
        except psycopg.Error as error:
            raise refusal(self.where, error) from None
        try:
            self._refuse_unfit(connection)
            connection.execute(_SESSION.format(patience_ms=int(patience_s * 1000)).encode())
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


def target_of(url: str) -> Target:
    """What a URL names. Raises StoreUnavailable for one that cannot be understood, without repeating it."""
    try:
        options = conninfo_to_dict(url)
    except psycopg.Error:
        raise _misunderstood() from None
    port, places = str(options.get("port") or ""), f"{options.get('host') or ''}{options.get('dbname') or ''}"
    # A password with a bare @, / or : in it ends up in the host, the port or the name, and must not be shown there.
    if "@" in places or (port and not port.replace(",", "").isdigit()):
        raise _misunderstood()
    return Target({**_DEFAULTS, **options, "client_encoding": "utf8"})


def open_postgres(
    url: str, *, clock: Clock, migrations: Sequence[Migration] | None = None, patience_s: float = PATIENCE_S
) -> PostgresDatabase:
    """The database at `url`. The tables of an older schema are kept as copies before they are changed."""
    target = target_of(url)
    steps = schema.released(DIALECT) if migrations is None else tuple(migrations)
    database = PostgresDatabase(lambda: target.connect(patience_s), where=target.where, patience_s=patience_s)
    try:
        version = database.read(lambda tx: _version(tx, target.where))
        schema.refuse_newer(version, steps, where=target.where)
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
    schema.refuse_newer(version, steps, where=where)
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
    return schema.version_of(tx, has_record=True)


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
