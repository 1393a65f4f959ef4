"""What every role of the store stands on, handed to each of them whole."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.core.errors import NotFound
from perdure.core.ports import Clock
from perdure.store.database import Database, Transaction
from perdure.store.ids import IdSource
from perdure.store.records import Conversation
from perdure.store.rows import CONVERSATION, conversation_of_row
from perdure.store.text_index import TextIndex


@dataclass(frozen=True, slots=True)
class Backing:
    database: Database
    index: TextIndex
    clock: Clock
    ids: IdSource

    def hold(self, tx: Transaction, conversation_id: str) -> tuple[Conversation, bytes]:
        """A conversation and its last key, kept from other writers until the transaction ends."""
        row = tx.row(
            f"SELECT {CONVERSATION}, last_key FROM conversation WHERE id = ?{self.database.dialect.for_update}",
            (conversation_id,),
        )
        if row is None:
            raise NotFound(f"no conversation {conversation_id!r}")
        return conversation_of_row(row[:-1]), bytes(row[-1])
