"""The port behind which a database stands: SQL with `?` marks in, tuples out. What differs is data in a Dialect.

Everything above this file is written once, in SQL that SQLite and PostgreSQL both read. `?` never occurs in it other
than as a mark.
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
# A statement, and each row of values it is run with.
Step = tuple[str, Sequence[Sequence[Value]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What two databases spell differently."""

    name: str
    # Fills the {marks} of the common tables: column types.
    types: Mapping[str, str]
    # A new number for a row of the table {}; `n` counts those that are asked for at once.
    number: str
    # A table of the `n` from 1 to `?`.
    counting: str
    # Appended to a SELECT that must hold its row until the transaction ends.
    for_update: str = ""


class Transaction(Protocol):
    """One transaction: what it reads is one moment, what it writes happens wholly or not at all."""

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]: ...

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """The first row, or None."""
        ...

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        """How many rows were changed."""
        ...

    def run_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None: ...

    def run_all(self, steps: Sequence[Step]) -> None:
        """Several INSERTs and UPDATEs, none of which needs what another writes: one trip, if it can be."""
        ...


class Database(Protocol):
    """Raises StoreError and its kin only, whatever the driver raised."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def is_usable(self) -> bool:
        """Whether it is open in this process, and what it has open is still there."""
        ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """What `work` returns of one moment; may run beside other reads and a write."""
        ...

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """The first row of one statement, which needs no transaction around it."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Durable when this returns; undone when `work` raises. `work` may run again after a clash, so it only uses
        the transaction."""
        ...

    def erase(self, work: Callable[[Transaction], T]) -> T:
        """A write after which nothing of what it removed is left on the disk."""
        ...

    def backup(self, path: Path) -> None:
        """A copy in a new file, taken while others read and write; whole and on disk when this returns."""
        ...

    def close(self) -> None: ...


def text(value: str) -> str:
    """What both databases take as text: no lone surrogates, no NUL."""
    return clean(value).replace("\0", "")


def insert(tx: Transaction, table: str, values: Mapping[str, Value]) -> None:
    """One row, by the names of its columns."""
    tx.run(_insertion(table, values), tuple(values.values()))


def insert_numbered(tx: Transaction, table: str, values: Mapping[str, Value], *, number: str = "id") -> int:
    """One row of a table that numbers its rows; the number it was given."""
    row = tx.row(f"{_insertion(table, values)} RETURNING {number}", tuple(values.values()))
    if row is None:
        raise StoreError(f"a row of {table} was not written")
    return int(row[0])


def _insertion(table: str, values: Mapping[str, Value]) -> str:
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
