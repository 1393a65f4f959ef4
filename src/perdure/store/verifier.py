"""Checks stored messages against their keys, a batch at a time, so that a large store can be checked beside its use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from perdure.core.errors import NotFound
from perdure.store.backing import StoreContext
from perdure.store.database import Transaction
from perdure.store.records import Damage, Span
from perdure.store.resolve import conversation_id_of
from perdure.store.rows import get_conversation, lineage_of, places, read_checked

_BATCH = 500


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """Some messages of one conversation, and what is wrong with them."""

    conversation_id: str
    messages: int
    damage: tuple[Damage, ...]


class Verifier:
    """Says which stored messages are damaged. Reads only."""

    def __init__(self, backing: StoreContext) -> None:
        self._backing = backing

    def conversation(self, any_id: str) -> list[Damage]:
        """Everything of one conversation, with what a branch shares."""
        ident = self._backing.database.read(lambda tx: conversation_id_of(tx, any_id))
        return [damage for batch in self._batches(ident, is_whole=True) for damage in batch.damage]

    def everything(self) -> Iterator[CheckedBatch]:
        """Every conversation, last used first; stop whenever it has taken long enough."""
        sql = "SELECT id FROM conversation ORDER BY updated_at DESC, id DESC"
        for (ident,) in self._backing.database.read(lambda tx: tx.rows(sql)):
            try:
                yield from self._batches(ident, is_whole=False)
            except NotFound:  # deleted meanwhile
                continue

    def _batches(self, conversation_id: str, *, is_whole: bool) -> Iterator[CheckedBatch]:
        found = self._backing.database.read(lambda tx: get_conversation(tx, conversation_id))
        first = 1 if is_whole else found.fork_seq + 1
        for lo in range(first, found.last_seq + 1, _BATCH):
            span = Span(lo, min(found.last_seq, lo + _BATCH - 1))
            yield self._backing.database.read(partial(_check, conversation_id=conversation_id, span=span))


def _check(tx: Transaction, *, conversation_id: str, span: Span) -> CheckedBatch:
    lineage = lineage_of(tx, get_conversation(tx, conversation_id))
    entries, damage = read_checked(tx, lineage, [span])
    known = {e.seq for e in entries}
    missing = [
        Damage(owner, seq, "missing")
        for owner, lo, hi in places(lineage, span)
        for seq in range(lo, hi + 1)
        if seq not in known
    ]
    return CheckedBatch(conversation_id, len(entries), (*damage, *missing))
