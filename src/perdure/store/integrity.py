"""Detect damaged messages by the hash chain of the log, and damaged sessions by a checksum.

A message's key hashes the previous key and its body; a handoff's key hashes its body alone. Verification reports each
message that silent disk corruption changed, and the rest of the conversation stays usable. Scrubbing changes bodies but
not keys, and records the hash of each new body instead. A session's checksum covers its row, its prompt and its spans.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from perdure.core.errors import CorruptStore
from perdure.core.messages import Message, canonical_json
from perdure.store.db.database import Transaction, to_bytes, to_text, to_time_ms
from perdure.store.ids import BODY_KEY_BYTES, FIRST_KEY, body_key, damaged_message, decode_canonical, ingest_key, unpack
from perdure.store.records import Damage, Problem, Session, Span

# The redaction marker; older versions scrubbed bodies without recording the new hash.
_REDACTED = b"[REDACTED]"
# Kinds that a message of any role may have: `user` is the default of messages built by a caller.
_COMMON_KINDS = ("user", "handoff", "note")


class ChainReader:
    """Decode the rows of one conversation's log in order and verify each against its key."""

    def __init__(self, tx: Transaction, conversation_id: str, *, previous: bytes | None, first_seq: int) -> None:
        self._tx = tx
        self._conversation_id = conversation_id
        self._next_seq = first_seq
        # None after a missing message, whose key is unknown.
        self._previous = previous
        # The previous key as computed from its body, in case the stored key is what is damaged.
        self._computed = previous or FIRST_KEY
        self.damage: list[Damage] = []

    def message(
        self,
        seq: int,
        created_at: object,
        body: object,
        encoding: object,
        kind: object,
        key: object,
        chained: object,
        tool_state: object,
    ) -> Message:
        """Return the message of a row, or a placeholder for a damaged one."""
        stored_key = to_bytes(key)
        if seq != self._next_seq:
            self._previous = None
        self._next_seq = seq + 1
        try:
            canonical = unpack(body, encoding)
            message = decode_canonical(canonical, kind, tool_state)
        except CorruptStore:
            if chained:
                self._previous = self._computed = stored_key
            self._report(seq, "unreadable")
            return damaged_message(seq, kind)
        if not self._is_expected(canonical, stored_key, is_chained=bool(chained)):
            digest = scrubbed_key(self._tx, self._conversation_id, seq)
            if body_key(canonical) != digest and (digest is not None or _REDACTED not in canonical):
                self._report(seq, "changed")
                return message
        if tool_state is not None and (message.role != "tool" or message.tool_state is None):
            self._report(seq, "inconsistent", f"has the tool state {to_text(tool_state)!r}, which it cannot have")
        elif detail := _column_problem(message, created_at, body, encoding, kind, key, chained):
            self._report(seq, "inconsistent", detail)
        return message

    def _is_expected(self, canonical: bytes, key: bytes, *, is_chained: bool) -> bool:
        if not is_chained:
            return len(key) != BODY_KEY_BYTES or body_key(canonical) == key
        if self._previous is None:
            self._previous = self._computed = key
            return True
        expected = ingest_key(self._previous, canonical)
        is_expected = expected == key or (
            self._computed != self._previous and ingest_key(self._computed, canonical) == key
        )
        self._previous, self._computed = key, expected
        return is_expected

    def _report(self, seq: int, problem: Problem, detail: str = "") -> None:
        self.damage.append(Damage(self._conversation_id, seq, problem, row=f"m:{seq}", detail=detail))


def _column_problem(
    message: Message, created_at: object, body: object, encoding: object, kind: object, key: object, chained: object
) -> str:
    """Describe a column beside the body that cannot be what was stored; empty if there is none."""
    if kind not in _COMMON_KINDS and kind != ("system" if message.role == "developer" else message.role):
        return f"has the kind {to_text(kind)!r}, which a message with the role {message.role} cannot have"
    for name, value in (("body", body), ("key", key)):
        if isinstance(value, str | int | float) or value is None:
            return f"has a {name} of the wrong type ({type(value).__name__})"
    for name, number in (("encoding", encoding), ("chained", chained)):
        if number not in (0, 1) or not isinstance(number, int):
            return f"has the {name} {number!r} instead of 0 or 1"
    if not isinstance(created_at, int) or to_time_ms(created_at) != created_at:
        return f"has an impossible time ({created_at!r})"
    return ""


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


def record_checksum(tx: Transaction, session: Session, spans: Sequence[Span]) -> None:
    """Record the checksum of a session; to be repeated whenever its prompt changes."""
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES (?, ?, ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (_checksum_scope(session.conversation_id), session.id, json.dumps(_checksum(session, spans))),
    )


def has_valid_checksum(tx: Transaction, session: Session, spans: Sequence[Span]) -> bool:
    """Whether a session is as it was stored; True for sessions of older versions, which have no checksum."""
    scope = _checksum_scope(session.conversation_id)
    row = tx.row("SELECT value FROM state WHERE scope = ? AND key = ?", (scope, session.id))
    return row is None or to_text(row[0]) == json.dumps(_checksum(session, spans))


def _checksum(session: Session, spans: Sequence[Span]) -> str:
    route = session.route
    # Without the columns that change when a session ends.
    fields = (
        session.id, session.conversation_id, session.parent_id, session.began_by, route.provider, route.model,
        route.api_mode, session.system_prompt, session.first_seq, session.started_at_ms, [(s.lo, s.hi) for s in spans],
    )  # fmt: skip
    return body_key(canonical_json(fields).encode("utf-8", "replace")).hex()


def _checksum_scope(conversation_id: str) -> str:
    return f"checksum:{conversation_id}"


def _scope(conversation_id: str) -> str:
    # Deleting a conversation removes all scopes that end in its id.
    return f"scrubbed:{conversation_id}"
