"""Verify a store: the file, the log of each conversation, and the rows around it. Read-only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from perdure.core.errors import CorruptStore, NotFound
from perdure.store.context import StoreContext
from perdure.store.db.database import DatabaseCheck, Transaction, to_text
from perdure.store.outputs import OutputStore
from perdure.store.queries import conversation_id_of, get_conversation, lineage_of, read_checked
from perdure.store.records import Damage, Span
from perdure.store.structure import check_conversation, check_sessions

_BATCH = 500
_MAX_LISTED = 100


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch of verified messages and their damage."""

    conversation_id: str
    messages: int
    damage: tuple[Damage, ...]


class Verifier:
    """Find damaged rows."""

    def __init__(self, context: StoreContext, outputs: OutputStore) -> None:
        self._context = context
        self._outputs = outputs

    def database(self, *, timeout_s: float | None = None) -> DatabaseCheck:
        """Verify what is not part of a conversation: pages, indexes, references, column types and small values.

        Stops after `timeout_s`.
        """
        check = self._context.database.check(timeout_s=timeout_s)
        return DatabaseCheck((*check.problems, *self._context.database.read(_json_problems)), check.is_complete)

    def conversation(self, any_id: str) -> list[Damage]:
        """Return the damage in one conversation, including messages a branch shares with its parent."""
        ident = self._context.database.read(lambda tx: conversation_id_of(tx, any_id))
        return [damage for batch in self._batches(ident, is_whole=True) for damage in batch.damage]

    def everything(self) -> Iterator[CheckedBatch]:
        """Verify every conversation, most recently used first; stop iterating to stop early."""
        sql = "SELECT id FROM conversation ORDER BY updated_at DESC, id DESC"
        for (ident,) in self._context.database.read(lambda tx: tx.rows(sql)):
            try:
                yield from self._batches(to_text(ident), is_whole=False)
            except NotFound:  # deleted in the meantime
                continue

    def _batches(self, conversation_id: str, *, is_whole: bool) -> Iterator[CheckedBatch]:
        try:
            yield from self._log(conversation_id, is_whole=is_whole)
            rows = self._context.database.read(
                lambda tx: [*check_conversation(tx, conversation_id), *check_sessions(tx, conversation_id)]
            )
            yield CheckedBatch(conversation_id, 0, (*rows, *self._outputs.verify(conversation_id)))
        except CorruptStore as error:
            # A damaged page: the other conversations are verified all the same.
            damage = Damage(
                conversation_id, None, "unreadable", "conversation", conversation_id, f"cannot be read ({error})"
            )
            yield CheckedBatch(conversation_id, 0, (damage,))

    def _log(self, conversation_id: str, *, is_whole: bool) -> Iterator[CheckedBatch]:
        """Verify the messages by their stored positions: a damaged end of the log may be far beyond the last one."""
        read = self._context.database.read
        lineage = read(lambda tx: lineage_of(tx, get_conversation(tx, conversation_id)))
        for owner, lo, hi in reversed(lineage if is_whole else lineage[:1]):
            start = lo
            while start <= hi:
                end = read(partial(_batch_end, conversation_id=owner, start=start))
                span = Span(start, hi if end is None else min(end, hi))
                entries, damage = read(partial(read_checked, lineage=lineage, view=[span]))
                yield CheckedBatch(conversation_id, len(entries), tuple(damage))
                start = span.hi + 1


def _batch_end(tx: Transaction, conversation_id: str, start: int) -> int | None:
    """Return the position of the last message of the next batch; None if there are fewer."""
    sql = "SELECT seq FROM message WHERE conversation = ? AND seq >= ? ORDER BY seq LIMIT 1 OFFSET ?"
    row = tx.row(sql, (conversation_id, start, _BATCH - 1))
    return None if row is None else int(row[0])


# SQL for the rows that hold JSON: table, name of the row, value.
_JSON = (
    "SELECT 'state', scope || ' ' || key, value FROM state"
    " UNION ALL SELECT 'inbox', id, content FROM inbox"
    " UNION ALL SELECT 'inbox', id, scopes FROM inbox"
    " UNION ALL SELECT 'inbox', id, result FROM inbox WHERE result <> ''"
)


def _json_problems(tx: Transaction) -> list[str]:
    problems = []
    for table, name, value in tx.rows(_JSON):
        try:
            json.loads(to_text(value))
        except (ValueError, RecursionError) as error:
            problems.append(
                f"table {table}, row {to_text(name)}: its value cannot be read ({error}); restore it from a backup"
            )
    return problems[:_MAX_LISTED]
