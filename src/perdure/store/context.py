"""What the store roles share: database, text index, clock and ids; and key-value state beside the log.

`ScopedState` is the state of engines and conversations, `ClientHistories` the positions of client histories.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ports import Clock
from perdure.store.db.database import Database, Transaction, text, to_bytes, to_optional_text, to_seq, to_text
from perdure.store.encoding import IdSource, load_json
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


class ScopedState:
    """Key-value store of one scope, such as `engine:<conversation>`, `cooldown` or `limits`."""

    def __init__(self, context: StoreContext, scope: str) -> None:
        self._context = context
        self._scope = scope

    def get(self, key: str) -> Any:
        sql = "SELECT value FROM state WHERE scope = ? AND key = ?"
        row = self._context.database.row(sql, (self._scope, key))
        return None if row is None else load_json(row[0], f"{self._scope} {key}")

    def set(self, key: str, value: Any) -> None:
        if value is None:
            self._context.database.write(
                lambda tx: tx.run("DELETE FROM state WHERE scope = ? AND key = ?", (self._scope, key))
            )
            return
        # ASCII only: JSON escapes carry characters that a database would reject.
        text = json.dumps(value, ensure_ascii=True, sort_keys=True)
        self._context.database.write(
            lambda tx: tx.run(
                "INSERT INTO state (scope, key, value) VALUES (?, ?, ?)"
                " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
                (self._scope, key, text),
            )
        )

    def list_keys(self) -> list[str]:
        """Return the keys of the scope."""
        rows = self._context.database.read(
            lambda tx: tx.rows("SELECT key FROM state WHERE scope = ? ORDER BY key", (self._scope,))
        )
        return [to_text(row[0]) for row in rows]

    def items(self) -> dict[str, Any]:
        """Return all values of the scope, by key."""
        rows = self._context.database.read(
            lambda tx: tx.rows("SELECT key, value FROM state WHERE scope = ? ORDER BY key", (self._scope,))
        )
        return {key: load_json(value, f"{self._scope} {key}") for key, value in rows}


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """A conversation and its last message at the time; None for a history that starts a new conversation."""

    conversation_id: str | None
    seq: int


class ClientHistories:
    """Map fingerprints of client-sent histories to positions, for clients that send no conversation id."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def get(self, fingerprint: str) -> HistoryPosition | None:
        sql = "SELECT conversation, seq FROM fingerprint WHERE print = ?"
        row = self._context.database.row(sql, (text(fingerprint),))
        return None if row is None else HistoryPosition(to_optional_text(row[0]), to_seq(row[1]))

    def put(self, fingerprint: str, position: HistoryPosition) -> None:
        """Store a position durably, replacing an earlier one."""
        values = (text(fingerprint), position.conversation_id, position.seq, self._context.clock.now_ms())
        self._context.database.write(
            lambda tx: tx.run(
                "INSERT INTO fingerprint (print, conversation, seq, kept_at) VALUES (?, ?, ?, ?) ON CONFLICT (print)"
                " DO UPDATE SET conversation = excluded.conversation, seq = excluded.seq, kept_at = excluded.kept_at",
                values,
            )
        )

    def purge(self, *, before_ms: int, limit: int) -> int:
        """Delete entries older than `before_ms` and all but the newest `limit`; return how many."""

        def work(tx: Transaction) -> int:
            old = tx.run("DELETE FROM fingerprint WHERE kept_at < ?", (before_ms,))
            # With fewer rows the subquery is NULL and nothing is deleted.
            return old + tx.run(
                "DELETE FROM fingerprint WHERE kept_at <="
                " (SELECT kept_at FROM fingerprint ORDER BY kept_at DESC LIMIT 1 OFFSET ?)",
                (limit,),
            )

        return self._context.database.write(work)
