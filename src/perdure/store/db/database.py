"""Database port: SQL with `?` placeholders in, tuples out; differences between databases are data in a Dialect.

The rest of the store is written once, in SQL that both SQLite and PostgreSQL accept. `?` occurs in it only as a
placeholder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from perdure.core.errors import StoreError
from perdure.core.messages import clean

Value = str | int | float | bytes | None
Row = tuple[Any, ...]
# A statement and the rows of values to run it with.
Step = tuple[str, Sequence[Sequence[Value]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dialect:
    """SQL that differs between databases."""

    name: str
    # Column types for the {placeholders} of the shared schema.
    types: Mapping[str, str]
    # Expression for a new row id of the table {}; `n` counts the rows requested at once.
    number: str
    # Table of the numbers `n` from 1 to `?`.
    counting: str
    # Suffix of a SELECT that locks its rows until the transaction ends.
    for_update: str = ""


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """Damage that a database check found in pages, indexes or references, a line each.

    `is_complete` is False if the check ran into its timeout.
    """

    problems: tuple[str, ...] = ()
    is_complete: bool = True


class Transaction(Protocol):
    """A transaction: consistent reads, atomic writes."""

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]: ...

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """Return the first row, or None."""
        ...

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Run a statement and return the number of changed rows."""
        ...

    def run_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None: ...

    def run_all(self, steps: Sequence[Step]) -> None:
        """Run independent INSERTs and UPDATEs, in one round trip if possible."""
        ...


class Database(Protocol):
    """A connection pool with transactions. Raises only StoreError and its subclasses, whatever the driver raised."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def is_usable(self) -> bool:
        """Whether the database is open in this process and its file is still in place."""
        ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a read transaction, concurrently with other reads and a write."""
        ...

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """Return the first row of one statement, without a transaction."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a write transaction; durable when this returns, rolled back when `work` raises.

        `work` may be retried after a conflict, so it must have no other side effects.
        """
        ...

    def write_unsynced(self, work: Callable[[Transaction], T]) -> T:
        """Like `write`, for what only running processes need: a power cut may undo it, unless a `write` came after it.

        It outlives any process that is killed. A database server that other machines use makes it durable.
        """
        ...

    def erase(self, work: Callable[[Transaction], T]) -> T:
        """Run a write after which nothing it deleted remains on disk."""
        ...

    def backup(self, path: Path) -> None:
        """Copy the database to a new file while it is in use; complete and durable when this returns."""
        ...

    def check(self, *, timeout_s: float | None = None) -> DatabaseCheck:
        """Verify pages, indexes, references and column types, as far as the database does not enforce them."""
        ...

    def close(self) -> None: ...


def text(value: str) -> str:
    """Return text that both databases accept: without lone surrogates and NUL."""
    return clean(value).replace("\0", "")


def insert(tx: Transaction, table: str, values: Mapping[str, Value]) -> None:
    """Insert one row, given by column name."""
    tx.run(_insert_sql(table, values), tuple(values.values()))


def insert_numbered(tx: Transaction, table: str, values: Mapping[str, Value], *, number: str = "id") -> int:
    """Insert one row and return its generated id."""
    row = tx.row(f"{_insert_sql(table, values)} RETURNING {number}", tuple(values.values()))
    if row is None:
        raise StoreError(f"a row of {table} was not written")
    return int(row[0])


def _insert_sql(table: str, values: Mapping[str, Value]) -> str:
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"


# Values as they are read. SQLite does not enforce column types, so a flipped bit on disk can turn a blob into text or a
# number into anything. Each function returns a neutral value for a damaged one, so that the other rows stay readable;
# `Verifier` reports the row.

# The beginning of year 9999: datetime can represent it in every time zone.
LAST_TIME_MS = 253_370_764_800_000
# Larger than any log; below the largest integer of a database, so that arithmetic on a seq cannot overflow.
LAST_SEQ = 2**53


def to_int(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default


def to_optional_int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def to_seq(value: object) -> int:
    """Return the position of a message; 0 for an impossible one."""
    return value if isinstance(value, int) and 0 <= value <= LAST_SEQ else 0


def to_time_ms(value: object) -> int:
    """Return a timestamp; 0 for an impossible one."""
    return value if isinstance(value, int) and 0 <= value <= LAST_TIME_MS else 0


def to_float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return "" if value is None else str(value)


def to_optional_text(value: object) -> str | None:
    return None if value is None else to_text(value)


def to_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return b"" if value is None else str(value).encode("utf-8", "replace")
