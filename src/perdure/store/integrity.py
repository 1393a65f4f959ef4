"""Detect damaged messages by verifying the hash chain of the log.

A message's key hashes the previous key and its body; a handoff's key hashes its body alone. Verification reports each
message that silent disk corruption changed, and the rest of the conversation stays usable. Scrubbing changes bodies but
not keys, and records the hash of each new body instead.
"""

from __future__ import annotations

import json

from perdure.core.errors import CorruptStore
from perdure.core.messages import Message
from perdure.store.db.database import Transaction
from perdure.store.ids import BODY_KEY_BYTES, body_key, damaged_message, decode_canonical, ingest_key, unpack
from perdure.store.records import Damage, Problem

# The redaction marker; older versions scrubbed bodies without recording the new hash.
_REDACTED = b"[REDACTED]"


class ChainReader:
    """Decode the rows of one conversation's log in order and verify each against its key."""

    def __init__(self, tx: Transaction, conversation_id: str, *, previous: bytes) -> None:
        self._tx = tx
        self._conversation_id = conversation_id
        self._previous = previous
        # The previous key as computed from its body, in case the stored key is what is damaged.
        self._computed = previous
        self.damage: list[Damage] = []

    def message(self, seq: int, body: bytes, encoding: int, kind: str, key: bytes, chained: int) -> Message:
        """Return the message of a row, or a placeholder for a damaged one."""
        try:
            canonical = unpack(body, encoding)
            message = decode_canonical(canonical, kind)
        except CorruptStore:
            if chained:
                self._previous = self._computed = bytes(key)
            self._report(seq, "unreadable")
            return damaged_message(seq, kind)
        if not self._is_expected(canonical, bytes(key), is_chained=bool(chained)):
            digest = scrubbed_key(self._tx, self._conversation_id, seq)
            if body_key(canonical) != digest and (digest is not None or _REDACTED not in canonical):
                self._report(seq, "changed")
        return message

    def _is_expected(self, canonical: bytes, key: bytes, *, is_chained: bool) -> bool:
        if not is_chained:
            return len(key) != BODY_KEY_BYTES or body_key(canonical) == key
        expected = ingest_key(self._previous, canonical)
        is_expected = expected == key or (
            self._computed != self._previous and ingest_key(self._computed, canonical) == key
        )
        self._previous, self._computed = key, expected
        return is_expected

    def _report(self, seq: int, problem: Problem) -> None:
        self.damage.append(Damage(self._conversation_id, seq, problem))


def record_scrubbed(tx: Transaction, conversation_id: str, seq: int, canonical: bytes) -> None:
    """Record the hash of a scrubbed body, which no longer matches its key."""
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES (?, ?, ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (_scope(conversation_id), str(seq), json.dumps(body_key(canonical).hex())),
    )


def scrubbed_key(tx: Transaction, conversation_id: str, seq: int) -> bytes | None:
    row = tx.row("SELECT value FROM state WHERE scope = ? AND key = ?", (_scope(conversation_id), str(seq)))
    try:
        return bytes.fromhex(json.loads(row[0])) if row is not None else None
    except (ValueError, TypeError):
        return None


def copy_scrubbed(tx: Transaction, conversation_id: str, branch_id: str) -> None:
    """Copy the recorded hashes to a branch that gets its own copy of shared messages."""
    tx.run(
        "INSERT INTO state (scope, key, value) SELECT CAST(? AS TEXT), key, value FROM state WHERE scope = ?"
        " ON CONFLICT (scope, key) DO NOTHING",
        (_scope(branch_id), _scope(conversation_id)),
    )


def _scope(conversation_id: str) -> str:
    # Deleting a conversation removes all scopes that end in its id.
    return f"scrubbed:{conversation_id}"
