"""Where clients are that name no conversation: a fingerprint of the history each holds leads to its place.

Every answer adds one, so they are kept for a while and up to a number only. A client whose fingerprint is gone is taken
for a new one, with the history it brings along.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.store.backing import StoreContext
from perdure.store.database import Transaction, text


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """A conversation, and its last message when the fingerprint was taken; None where a new one begins next."""

    conversation_id: str | None
    seq: int


class Fingerprints:
    """Keeps, finds and forgets."""

    def __init__(self, backing: StoreContext) -> None:
        self._backing = backing

    def get(self, print_: str) -> HistoryPosition | None:
        sql = "SELECT conversation, seq FROM fingerprint WHERE print = ?"
        row = self._backing.database.row(sql, (text(print_),))
        return None if row is None else HistoryPosition(row[0], row[1])

    def keep(self, print_: str, place: HistoryPosition) -> None:
        """Durably; the newest place of a fingerprint is its place."""
        values = (text(print_), place.conversation_id, place.seq, self._backing.clock.now_ms())
        self._backing.database.write(
            lambda tx: tx.run(
                "INSERT INTO fingerprint (print, conversation, seq, kept_at) VALUES (?, ?, ?, ?) ON CONFLICT (print)"
                " DO UPDATE SET conversation = excluded.conversation, seq = excluded.seq, kept_at = excluded.kept_at",
                values,
            )
        )

    def forget(self, *, before_ms: int, most: int) -> int:
        """Drops those kept before a moment, and the oldest of more than so many; how many went."""

        def work(tx: Transaction) -> int:
            old = tx.run("DELETE FROM fingerprint WHERE kept_at < ?", (before_ms,))
            # Without that many there is no such row, and nothing is older than none.
            return old + tx.run(
                "DELETE FROM fingerprint WHERE kept_at <="
                " (SELECT kept_at FROM fingerprint ORDER BY kept_at DESC LIMIT 1 OFFSET ?)",
                (most,),
            )

        return self._backing.database.write(work)
