"""Change feed: which conversations changed since a cursor, cheap enough to poll every second.

A cursor is a position in three append-only tables (messages, calls, events) plus a deletion counter. SQLite has a
single writer, so row ids are in commit order. PostgreSQL has many, so the cursor is a transaction snapshot, and
a row is new when that snapshot does not see it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from perdure.core.errors import StoreError
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store.db.database import Dialect, Transaction, Value, text
from perdure.store.queries import CONVERSATION, StoreContext, conversation_of_row
from perdure.store.records import ChangeSet, ConversationChange

_TABLES = ("message", "call", "event")
_DELETIONS = "(SELECT value FROM state WHERE scope = 'changes' AND key = 'deletions')"
_CURSOR = re.compile(r"(\d{1,18})~([\d.:,]{1,4000})")


class ChangeFeed:
    """Poll for conversations with new messages, calls or events."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._positions = _positions_for(context.database.dialect)

    def now(self) -> str:
        """Return the current cursor."""
        return self._context.database.read(self._cursor)

    def since(self, cursor: str, *, visibility: Visibility = EVERYONE) -> ChangeSet:
        """Return the visible conversations that changed after `cursor`. Raises StoreError for an invalid cursor."""
        deletions, position = _parse_cursor(cursor)

        def load(tx: Transaction) -> ChangeSet:
            current = self._cursor(tx)
            if current == cursor:
                return ChangeSet(cursor)
            deletions_now, position_now = _parse_cursor(current)
            # Ids of deleted rows may be reused, and a restored database may be older than the cursor.
            if self._positions.is_ahead(position, position_now) or deletions != deletions_now:
                return ChangeSet(current, is_reload_needed=True)
            return ChangeSet(current, tuple(self._read_changes(tx, position, visibility)))

        return self._context.database.read(load)

    def _cursor(self, tx: Transaction) -> str:
        row = tx.row(f"SELECT {_DELETIONS}, {self._positions.sql}")
        if row is None:
            raise StoreError("the database returned no position")
        return f"{row[0] or 0}~{'.'.join(str(v) for v in row[1:])}"

    def _read_changes(self, tx: Transaction, position: str, visibility: Visibility) -> list[ConversationChange]:
        news, values = [], list[Value]()
        for number, table in enumerate(_TABLES):
            condition, bindings = self._positions.since(position, number)
            flags = ", ".join(f"{int(number == other)} AS has_{name}" for other, name in enumerate(_TABLES))
            news.append(f"SELECT conversation AS owner, {flags} FROM {table} WHERE {condition}")
            values += bindings
        owned = ""
        if (user_key := visibility.stored_key) is not None:
            owned = " WHERE user_key = ?"
            values.append(text(user_key))
        kinds = ", ".join(f"MAX(has_{name})" for name in _TABLES)
        sql = (
            f"SELECT {CONVERSATION}, {kinds} FROM ({' UNION '.join(news)}) AS news JOIN conversation ON id = owner"
            f"{owned} GROUP BY id ORDER BY updated_at DESC, id DESC"
        )
        return [ConversationChange(conversation_of_row(row[:-3]), *map(bool, row[-3:])) for row in tx.rows(sql, values)]


def record_deletion(tx: Transaction) -> None:
    """Note that a conversation was deleted, which invalidates all cursors, so that every client reloads."""
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES ('changes', 'deletions', '1') ON CONFLICT (scope, key)"
        " DO UPDATE SET value = CAST(CAST(state.value AS INTEGER) + 1 AS TEXT)"
    )


class _Positions(Protocol):
    """The row numbers of one database, by which the rows after a cursor are selected."""

    sql: str

    def since(self, position: str, table: int) -> tuple[str, Sequence[Value]]:
        """Return an SQL condition, with its values, for rows after a position."""
        ...

    def is_ahead(self, position: str, now: str) -> bool:
        """Return whether a position is later than the current one, as after a restore."""
        ...


class _RowNumbers:
    sql = ", ".join(f"(SELECT COALESCE(MAX(id), 0) FROM {table})" for table in _TABLES)

    def since(self, position: str, table: int) -> tuple[str, Sequence[Value]]:
        return "id > ?", [_numbers(position)[table]]

    def is_ahead(self, position: str, now: str) -> bool:
        return any(current > last for current, last in zip(_numbers(position), _numbers(now), strict=True))


class _Snapshots:
    sql = "CAST(txid_current_snapshot() AS TEXT)"

    def since(self, position: str, table: int) -> tuple[str, Sequence[Value]]:
        oldest, _, _ = _bounds(position)
        return "written_in >= ? AND NOT txid_visible_in_snapshot(written_in, CAST(? AS txid_snapshot))", [
            oldest,
            position,
        ]

    def is_ahead(self, position: str, now: str) -> bool:
        return _bounds(position)[1] > _bounds(now)[1]


def _positions_for(dialect: Dialect) -> _Positions:
    return _Snapshots() if dialect.name == "postgresql" else _RowNumbers()


def _parse_cursor(cursor: str) -> tuple[int, str]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise _cursor_error(cursor)
    return int(match[1]), match[2]


def _numbers(position: str) -> list[int]:
    numbers = position.split(".")
    if len(numbers) != len(_TABLES) or not all(n.isdigit() and len(n) < 19 for n in numbers):
        raise _cursor_error(position)
    return [int(n) for n in numbers]


def _bounds(position: str) -> tuple[int, int, list[int]]:
    """Parse a snapshot into its oldest running transaction, the next one, and those running in between."""
    match = re.fullmatch(r"(\d{1,18}):(\d{1,18}):((?:\d{1,18}(?:,\d{1,18})*)?)", position)
    if match is None:
        raise _cursor_error(position)
    oldest, next_one, running = int(match[1]), int(match[2]), [int(n) for n in match[3].split(",") if n]
    # Validate here, because the server raises for an inconsistent snapshot.
    if (
        not 0 < oldest <= next_one
        or running != sorted(set(running))
        or any(not oldest <= n < next_one for n in running)
    ):
        raise _cursor_error(position)
    return oldest, next_one, running


def _cursor_error(cursor: str) -> StoreError:
    return StoreError(f"{cursor[:80]!r} is not a valid change cursor")
