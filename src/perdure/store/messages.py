"""Append messages to the immutable log and read them back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import CorruptStore, StoreError
from perdure.core.messages import Entry, Message, ToolState, clean
from perdure.core.visibility import User
from perdure.store.db.database import Dialect, Row, Step, Transaction, Value, to_bytes, to_time_ms
from perdure.store.encoding import Body, decode_or_placeholder, encode, ingest_key, require_json, to_tool_state, unpack
from perdure.store.leases import check_lease, check_lease_row, lease_row
from perdure.store.ledger import insert_records
from perdure.store.queries import (
    SESSION,
    Lineage,
    StoreContext,
    conversation_id_of,
    get_conversation,
    get_session,
    key_at,
    lineage_of,
    read_checked,
    read_entries,
    read_generated_seqs,
    read_handoffs,
    segments_of,
    session_of_row,
    view_of,
)
from perdure.store.records import (
    AppendResult,
    CallRecord,
    Conversation,
    Lease,
    Session,
    SessionHistory,
    Span,
    StoredEvent,
    StoredHandoff,
    View,
    expand_handoffs,
)
from perdure.store.search.index import IndexedText, conversation_scope, index_text, role_scope, user_scope
from perdure.store.search.tokenizer import searchable_text
from perdure.store.verification import check_conversation, check_session

AnyMessage = Message | Mapping[str, Any] | str

_COLUMNS = "id, conversation, seq, session, role, kind, body, encoding, chars, key, chained, created_at, tool_state"
_INSERT = f"INSERT INTO message ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))})"


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message with its encoded body and index tokens."""

    message: Message
    body: Body
    tokens: IndexedText

    @classmethod
    def of(cls, raw: AnyMessage) -> PreparedMessage:
        message = Message.from_dict(raw)
        if message is not raw:  # a caller's dict
            require_json(message.to_dict())
        return cls(message, encode(message), index_text(searchable_text(message), ()))

    def row(
        self,
        number: int,
        *,
        conversation_id: str,
        seq: int,
        session_id: str,
        key: bytes,
        now_ms: int,
        is_original: bool,
    ) -> tuple[Value, ...]:
        """Return the values of the message's row.

        Handoffs (`is_original` False) are not part of the hash chain, so replaying a history skips them.
        """
        message, body = self.message, self.body
        return (
            number, conversation_id, seq, session_id, message.role, message.kind, body.stored, body.encoding,
            len(message.text), key, int(is_original), now_ms, message.tool_state,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class IdReservation:
    """Row ids reserved for new messages, with the lease and state of the conversation's newest session."""

    numbers: tuple[int, ...]
    lease: Row | None
    is_closed: bool


def stored_text(body: bytes, encoding: int, kind: str, *, seq: int) -> str:
    """Return the searchable text of a stored message; a placeholder for a damaged one."""
    with suppress(CorruptStore, ValueError, RecursionError):
        raw = json.loads(unpack(body, encoding))
        # Most messages are plain text: they need not become a Message first.
        if isinstance(raw, dict) and isinstance(raw.get("content"), str) and not raw.get("tool_calls"):
            return clean(raw["content"])
    return searchable_text(decode_or_placeholder(body, encoding, kind, seq=seq))


def prepare_messages(messages: AnyMessage | Sequence[AnyMessage]) -> list[PreparedMessage]:
    if isinstance(messages, Message | Mapping | str):
        return [PreparedMessage.of(messages)]
    return [PreparedMessage.of(m) for m in messages]


def reserve_ids(tx: Transaction, dialect: Dialect, conversation: Conversation, count: int) -> IdReservation:
    """Reserve row ids and read the tip's state in one round trip; the conversation must be locked."""
    # Most appends need one id: without a series the server can reuse its prepared plan.
    counting = "(SELECT 1 AS n)" if count == 1 else dialect.counting
    rows = tx.rows(
        f"SELECT {dialect.number.format('message')}, s.ended_at, l.holder, l.token, l.expires_at FROM session s"
        f" CROSS JOIN {counting} AS counting LEFT JOIN lease l ON l.conversation = s.conversation WHERE s.id = ?",
        (conversation.tip_session_id,) if count == 1 else (count, conversation.tip_session_id),
    )
    if len(rows) != count:
        raise CorruptStore(
            f"table conversation, row {conversation.id}: its tip {conversation.tip_session_id!r} does not exist;"
            " restore it from a backup"
        )
    lease = lease_row(rows[0][2:]) if rows and rows[0][2] is not None else None
    return IdReservation(tuple(r[0] for r in rows), lease, bool(rows) and rows[0][1] is not None)


def insert_step(rows: Sequence[Sequence[Value]]) -> Step:
    """Return the step that inserts message rows."""
    return _INSERT, rows


def scoped_text(message: PreparedMessage, conversation: Conversation) -> IndexedText:
    """Return the index entry of a message: its tokens, and terms for conversation, role and user to filter by."""
    words = [conversation_scope(conversation.id), role_scope(message.message.kind)]
    if isinstance(conversation.user, User):
        words.append(user_scope(conversation.user.key))
    return IndexedText(message.tokens.parts, message.tokens.wholes, " ".join(words))


_ADVANCE = "UPDATE conversation SET last_seq = ?, last_key = ?, updated_at = ? WHERE id = ?"


class MessageLog:
    """Appends messages to the log and reads them; methods accept any id of a conversation."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def append(
        self,
        any_id: str,
        messages: AnyMessage | Sequence[AnyMessage],
        *,
        after_seq: int | None = None,
        lease: Lease | None = None,
        events: Sequence[StoredEvent] = (),
        calls: Sequence[CallRecord] = (),
    ) -> AppendResult:
        """Append messages to the conversation's tip, durably.

        With `after_seq`, messages already stored after that position are skipped, so that an append whose response was
        lost can be retried. `events` and `calls` are written in the same transaction. Raises LeaseLost, and StoreError
        where the messages differ from the stored ones.
        """
        prepared = prepare_messages(messages)

        def work(tx: Transaction) -> AppendResult:
            if after_seq is None and prepared:
                conversation, last_key = self._context.lock_conversation(tx, any_id)
                try:
                    reserved = reserve_ids(tx, self._context.database.dialect, conversation, len(prepared))
                except CorruptStore:
                    conversation = self._context.repair_tip(tx, conversation)
                    reserved = reserve_ids(tx, self._context.database.dialect, conversation, len(prepared))
                check_lease_row(reserved.lease, conversation.id, lease, now_ms=self._context.clock.now_ms())
                added = self._add(tx, conversation, prepared, key=last_key, reserved=reserved)
            else:
                conversation = self._open(tx, any_id, lease)
                start = conversation.last_seq if after_seq is None else after_seq
                added = self._add_missing(tx, conversation, prepared, start)
            if added.added and (calls or events):
                insert_records(tx, added.conversation_id, (*calls, *events), now_ms=added.entries[-1].created_at_ms)
            return added

        return self._context.database.write(work)

    def ingest(self, any_id: str, messages: Sequence[AnyMessage], *, lease: Lease | None = None) -> AppendResult:
        """Append the messages of a complete history that are not stored yet.

        Raises StoreError where the history differs from the log, which is never changed.
        """
        prepared = prepare_messages(messages)

        def work(tx: Transaction) -> AppendResult:
            return self._add_missing(tx, self._open(tx, any_id, lease), prepared, 0)

        return self._context.database.write(work)

    def history(self, session_id: str) -> SessionHistory:
        """Return a session as sent to the model: its spans, then its own messages; the tip for a conversation id."""

        def load(tx: Transaction) -> SessionHistory:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            session = _named_session(tx, session_id, conversation)
            damage = [*check_conversation(tx, conversation.id), *check_session(tx, session)]
            view = view_of(tx, session, conversation.last_seq)
            entries, damaged = read_checked(tx, lineage_of(tx, conversation), view)
            return SessionHistory(session, tuple(entries), (*damaged, *damage))

        return self._context.database.read(load)

    def read(self, any_id: str, span: Span) -> list[Entry]:
        """Return the messages of a span of the log, including handoffs."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            return read_entries(tx, lineage_of(tx, conversation), [span])

        return self._context.database.read(load)

    def originals(self, any_id: str) -> list[Entry]:
        """Return every original message of the conversation, in order, without the handoffs of compactions."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            lineage = lineage_of(tx, conversation)
            generated = read_generated_seqs(tx, lineage)
            return [e for e in read_entries(tx, lineage, [Span(1, conversation.last_seq)]) if e.seq not in generated]

        return self._context.database.read(load)

    def expand(self, session_id: str) -> list[Entry]:
        """Return a session's messages with every handoff replaced by the messages it covers."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            lineage = lineage_of(tx, conversation)
            session = _named_session(tx, session_id, conversation)
            view = view_of(tx, session, conversation.last_seq)
            return read_entries(tx, lineage, expand_handoffs(view, read_handoffs(tx, lineage)))

        return self._context.database.read(load)

    def handoffs(self, any_id: str) -> dict[int, StoredHandoff]:
        """Return every handoff of the conversation, by seq."""

        def load(tx: Transaction) -> dict[int, StoredHandoff]:
            return read_handoffs(tx, lineage_of(tx, get_conversation(tx, conversation_id_of(tx, any_id))))

        return self._context.database.read(load)

    def view(self, session_id: str) -> View:
        """Return a session's view without reading its messages; the tip's for a conversation id."""

        def load(tx: Transaction) -> View:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            return view_of(tx, _named_session(tx, session_id, conversation), conversation.last_seq)

        return self._context.database.read(load)

    def reader(self, any_id: str) -> ConversationLog:
        """Return a LogReader of one conversation."""
        return ConversationLog(self, any_id)

    def _open(self, tx: Transaction, any_id: str, lease: Lease | None) -> Conversation:
        conversation, _ = self._context.lock_conversation(tx, any_id)
        check_lease(tx, conversation.id, lease, now_ms=self._context.clock.now_ms())
        return conversation

    def _add(
        self,
        tx: Transaction,
        conversation: Conversation,
        prepared: Sequence[PreparedMessage],
        *,
        key: bytes,
        reserved: IdReservation,
    ) -> AppendResult:
        now, tip = self._context.clock.now_ms(), conversation.tip_session_id
        entries, rows, texts = [], [], []
        for seq, (number, message) in enumerate(
            zip(reserved.numbers, prepared, strict=True), conversation.last_seq + 1
        ):
            key = ingest_key(key, message.body.canonical)
            rows.append(
                message.row(
                    number,
                    conversation_id=conversation.id,
                    seq=seq,
                    session_id=tip,
                    key=key,
                    now_ms=now,
                    is_original=True,
                )
            )
            texts.append((number, scoped_text(message, conversation)))
            entries.append(Entry(seq, message.message, now))
        steps = [insert_step(rows), self._context.index.insert_step("message", texts)]
        if reserved.is_closed:
            # An append reopens a closed tip.
            steps.append(("UPDATE session SET ended_at = NULL, end_reason = NULL WHERE id = ?", [(tip,)]))
        tx.run_all([*steps, (_ADVANCE, [(entries[-1].seq, key, now, conversation.id)])])
        return AppendResult(conversation.id, tip, tuple(entries), len(entries))

    def _add_missing(
        self, tx: Transaction, conversation: Conversation, prepared: Sequence[PreparedMessage], after_seq: int
    ) -> AppendResult:
        lineage = lineage_of(tx, conversation)
        key = key_at(tx, lineage, after_seq)
        stored = _chain(tx, lineage, Span(after_seq + 1, conversation.last_seq))
        existing: list[Entry] = []
        for message, (seq, stored_key, created_at, state) in zip(prepared, stored, strict=False):
            expected = ingest_key(key, message.body.canonical)
            if expected != stored_key:
                raise StoreError(f"the messages differ from the log at m:{seq}; branch there to keep both")
            key = stored_key
            existing.append(Entry(seq, replace(message.message, tool_state=state), created_at))
        missing = prepared[len(existing) :]
        if not missing:
            return AppendResult(conversation.id, conversation.tip_session_id, tuple(existing), 0)
        reserved = reserve_ids(tx, self._context.database.dialect, conversation, len(missing))
        added = self._add(tx, conversation, missing, key=key, reserved=reserved)
        return AppendResult(added.conversation_id, added.session_id, (*existing, *added.entries), added.added)


class ConversationLog:
    """Reads the log of one conversation (the LogReader port)."""

    def __init__(self, log: MessageLog, any_id: str) -> None:
        self._log = log
        self._id = any_id

    def read(self, lo: int, hi: int) -> Sequence[Entry]:
        return self._log.read(self._id, Span(lo, hi))


def _named_session(tx: Transaction, any_id: str, conversation: Conversation) -> Session:
    """Return the session of a session id; the tip for any other id of the conversation."""
    row = tx.row(f"SELECT {SESSION} FROM session WHERE id = ?", (any_id,))
    return session_of_row(row) if row is not None else get_session(tx, conversation.tip_session_id)


def _chain(tx: Transaction, lineage: Lineage, span: Span) -> list[tuple[int, bytes, int, ToolState | None]]:
    return [
        (seq, to_bytes(key), to_time_ms(created_at), to_tool_state(state))
        for segment in segments_of(lineage, span)
        for seq, key, created_at, state in tx.rows(
            "SELECT seq, key, created_at, tool_state FROM message WHERE conversation = ? AND seq BETWEEN ? AND ?"
            " AND chained = 1 ORDER BY seq",
            segment,
        )
    ]
