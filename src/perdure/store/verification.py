"""Verify a store: the file, the log of each conversation, and the rows around it. Read-only.

Conversations, sessions, spans and handoffs are checked against the log and each other; `encoding` checks the messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import get_args

from perdure.core.errors import CorruptStore, NotFound
from perdure.store.db.database import DatabaseCheck, Transaction, to_bytes, to_optional_int, to_seq, to_text, to_time_ms
from perdure.store.encoding import has_valid_checksum
from perdure.store.outputs import OutputStore
from perdure.store.queries import (
    CONVERSATION,
    SESSION,
    StoreContext,
    conversation_id_of,
    get_conversation,
    handoff_of_row,
    handoff_rows,
    key_at,
    lineage_of,
    read_checked,
    session_of_row,
    spans_of,
)
from perdure.store.records import BeganBy, Conversation, ConversationKind, Damage, Session, Span, View, merge_spans


def check_conversation(tx: Transaction, conversation_id: str) -> list[Damage]:
    """Return the damage of a conversation's own row."""
    row = tx.row(f"SELECT {CONVERSATION}, last_key FROM conversation WHERE id = ?", (conversation_id,))
    if row is None:
        return []
    conversation = get_conversation(tx, conversation_id)
    fields = dict(zip([*CONVERSATION.split(", "), "last_key"], row, strict=True))
    details = [*_row_problems(fields, conversation), *_parent_problems(tx, conversation)]
    lineage = lineage_of(tx, conversation)
    is_end_known = fields["last_seq"] == conversation.last_seq
    if is_end_known and to_bytes(fields["last_key"]) != key_at(tx, lineage, min(conversation.last_seq, lineage[0][2])):
        details.append("last_key is not the key of the newest message")
    return [_damage(conversation.id, "conversation", conversation.id, detail) for detail in details]


def _row_problems(fields: dict[str, object], conversation: Conversation) -> Iterator[str]:
    if fields["tip"] != conversation.tip_session_id:
        yield (
            f"tip is {to_text(fields['tip'])!r}, which is not one of its sessions; the newest,"
            f" {conversation.tip_session_id}, is used instead"
        )
    if fields["last_seq"] != conversation.last_seq:
        yield f"last_seq is {fields['last_seq']!r}, but the newest stored message is m:{conversation.last_seq}"
    if fields["kind"] not in get_args(ConversationKind):
        yield f"kind is {to_text(fields['kind'])!r}"
    if fields["fork_seq"] != conversation.fork_seq or conversation.fork_seq > conversation.last_seq:
        yield f"fork_seq is {fields['fork_seq']!r}, outside its log"
    for name in ("created_at", "updated_at"):
        if fields[name] != to_time_ms(fields[name]):
            yield f"{name} is an impossible time ({fields[name]!r})"


def _parent_problems(tx: Transaction, conversation: Conversation) -> Iterator[str]:
    owners, current = {conversation.id}, conversation
    if not current.fork_seq and current.parent_id == current.id:
        yield "parent is the conversation itself"
    while current.fork_seq:
        if current.parent_id is None or current.parent_id in owners:
            reason = "though it is a branch" if current.parent_id is None else "a circle"
            yield f"parent is {current.parent_id!r}, {reason}"
            return
        try:
            parent = get_conversation(tx, current.parent_id)
        except NotFound:
            yield f"parent is {current.parent_id!r}, which does not exist"
            return
        if current.fork_seq > parent.last_seq:
            yield f"fork_seq is {current.fork_seq}, but its parent ends at m:{parent.last_seq}"
        owners.add(parent.id)
        current = parent


def check_session(tx: Transaction, session: Session) -> list[Damage]:
    """Return the damage of a session's row and spans, as far as its checksum and its spans show it."""
    spans = spans_of(tx, session.id)
    details = list(_span_problems(session, spans))
    if not has_valid_checksum(tx, session, spans):
        details.append("its row, its system prompt or its spans differ from what was stored")
    return [_damage(session.conversation_id, "session", session.id, detail) for detail in details]


def _span_problems(session: Session, spans: View) -> Iterator[str]:
    for span in spans:
        if not 1 <= span.lo <= span.hi < session.first_seq:
            yield f"its span {span.lo}-{span.hi} is not before its first message, m:{session.first_seq}"
    if sum(map(len, spans)) != sum(map(len, merge_spans(sorted(spans, key=lambda s: s.lo)))):
        yield "its spans overlap"


def check_sessions(tx: Transaction, conversation_id: str) -> list[Damage]:
    """Return the damage of all sessions and handoffs of a conversation."""
    conversation = get_conversation(tx, conversation_id)
    damage: list[Damage] = []
    own = _own_messages(tx, conversation)
    for row in tx.rows(f"SELECT {SESSION} FROM session WHERE conversation = ? ORDER BY id", (conversation_id,)):
        session = session_of_row(row)
        details = list(_session_problems(session, conversation, own.pop(session.id, None)))
        fields = dict(zip(SESSION.split(", "), row, strict=True))
        details += [
            f"{name} is an impossible time ({fields[name]!r})"
            for name in ("started_at", "ended_at")
            if fields[name] is not None and fields[name] != to_time_ms(fields[name])
        ]
        damage += [_damage(conversation_id, "session", session.id, detail) for detail in details]
        damage += check_session(tx, session)
    return [*damage, *_handoff_damage(tx, conversation)]


def _own_messages(tx: Transaction, conversation: Conversation) -> dict[str, tuple[int, int, int]]:
    """Return the first, the last and the number of the original messages of each session."""
    sql = (
        "SELECT session, MIN(seq), MAX(seq), COUNT(*) FROM message WHERE conversation = ? AND chained = 1"
        " GROUP BY session"
    )
    return {to_text(r[0]): (to_seq(r[1]), to_seq(r[2]), r[3]) for r in tx.rows(sql, (conversation.id,))}


def _session_problems(session: Session, conversation: Conversation, own: tuple[int, int, int] | None) -> Iterator[str]:
    if session.began_by not in get_args(BeganBy):
        yield f"began_by is {session.began_by!r}"
    is_tip = session.id == conversation.tip_session_id
    if is_tip != (session.last_seq is None):
        yield f"last_seq is {session.last_seq}, though it is {'the' if is_tip else 'not the'} tip"
        return
    end = conversation.last_seq if session.last_seq is None else session.last_seq
    expected = Span(session.first_seq, end)
    if own is None and len(expected):
        yield f"its messages are {expected.address}, but none of them names it as its session"
    elif own is None and session.first_seq != end + 1:
        yield f"first_seq is {session.first_seq}, but it begins after m:{end}"
    elif own is not None and own != (expected.lo, expected.hi, len(expected)):
        found = Span(own[0], own[1])
        yield f"its messages are {expected.address}, but {own[2]:,} messages name it as their session, {found.address}"


def _handoff_damage(tx: Transaction, conversation: Conversation) -> Iterator[Damage]:
    rows = handoff_rows(tx, lineage_of(tx, conversation)[:1])
    sql = "SELECT seq, session FROM message WHERE conversation = ? AND chained = 0"
    unrecorded = {to_optional_int(seq): session for seq, session in tx.rows(sql, (conversation.id,))}
    for row in rows:
        name = f"h:{row[1]} of {conversation.id}"
        try:
            handoff = handoff_of_row(row)
        except CorruptStore as error:
            yield _damage(conversation.id, "handoff", name, f"cannot be read ({error.__cause__ or error})")
            unrecorded.pop(row[1], None)
            continue
        if handoff.seq not in unrecorded:
            yield _damage(conversation.id, "handoff", name, "there is no handoff message at its position")
        elif any(not 1 <= span.lo <= span.hi < handoff.seq for span in (*handoff.covers, *handoff.replaced)):
            yield _damage(conversation.id, "handoff", name, "it covers messages that come after it")
        elif handoff.session_id != unrecorded[handoff.seq]:
            yield _damage(conversation.id, "handoff", name, "its message names another session")
        unrecorded.pop(handoff.seq, None)
    for seq in sorted(seq for seq in unrecorded if seq is not None):
        yield _damage(conversation.id, "handoff", f"h:{seq} of {conversation.id}", "the row is missing")


def _damage(conversation_id: str, table: str, row: str, detail: str) -> Damage:
    return Damage(conversation_id, None, "inconsistent", table=table, row=row, detail=detail)


_BATCH = 500
_MAX_LISTED = 100


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch of messages that were verified, and the damage found in it."""

    conversation_id: str
    messages: int
    damage: tuple[Damage, ...]


class Verifier:
    """Finds damaged rows in the whole store or in one conversation; read-only."""

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
    " UNION ALL SELECT 'schedule', name, allowed FROM schedule"
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
