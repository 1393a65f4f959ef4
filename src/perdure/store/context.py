"""Dependencies shared by the store roles: database, text index, clock and ids."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perdure.core.errors import NotFound
from perdure.core.ports import Clock
from perdure.store.db.database import Database, Transaction, text, to_bytes
from perdure.store.ids import IdSource
from perdure.store.queries import (
    CONVERSATION,
    MATCHES_ID,
    conversation_id_of,
    conversation_of_row,
    newest_session_id,
)
from perdure.store.records import Conversation
from perdure.store.search.index import TextIndex


@dataclass(frozen=True, slots=True)
class StoreContext:
    """What every store role needs."""

    database: Database
    index: TextIndex
    clock: Clock
    ids: IdSource

    def lock_conversation(self, tx: Transaction, any_id: str) -> tuple[Conversation, bytes]:
        """Lock a conversation until the transaction ends; return it with its last key. Raises NotFound."""
        ident = text(any_id)
        # A session never moves to another conversation, so the id can be resolved in the locking statement.
        sql = f"SELECT {CONVERSATION}, last_key FROM conversation WHERE {MATCHES_ID}{self.database.dialect.for_update}"
        row = tx.row(sql, (ident, ident))
        if row is not None:
            return conversation_of_row(row[:-1]), to_bytes(row[-1])
        resolved = conversation_id_of(tx, ident)
        if resolved == ident:
            raise NotFound(f"no conversation {ident!r}")
        return self.lock_conversation(tx, resolved)

    def repair_tip(self, tx: Transaction, conversation: Conversation) -> Conversation:
        """Replace the tip of a locked conversation, which does not exist, by its newest session."""
        tip = newest_session_id(tx, conversation)
        tx.run("UPDATE conversation SET tip = ? WHERE id = ?", (tip, conversation.id))
        return replace(conversation, tip_session_id=tip)
