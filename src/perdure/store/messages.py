"""Append messages to the immutable log and read them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import StoreError
from perdure.core.messages import Entry, Message
from perdure.store.context import StoreContext
from perdure.store.db.database import Dialect, Row, Step, Transaction, Value
from perdure.store.ids import Body, encode, ingest_key
from perdure.store.leases import admit, judge
from perdure.store.ledger import insert_event
from perdure.store.queries import (
    SESSION,
    Lineage,
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
    Conversation,
    Lease,
    Session,
    SessionHistory,
    Span,
    StoredEvent,
    StoredHandoff,
)
from perdure.store.search.index import IndexedText, conversation_scope, index_text, role_scope, user_scope
from perdure.store.search.tokenizer import searchable_text
from perdure.store.spans import View, expand_handoffs

AnyMessage = Message | Mapping[str, Any] | str

_COLUMNS = "id, conversation, seq, session, role, kind, body, encoding, chars, key, chained, created_at"
_INSERT = f"INSERT INTO message ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))})"


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message with all that its row and the index will hold of it."""

    message: Message
    body: Body
    tokens: IndexedText

    @classmethod
    def of(cls, raw: AnyMessage) -> PreparedMessage:
        message = Message.from_dict(raw)
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
        """What a compaction writes was not said: it stands outside the chain of keys, so that replay never stumbles
        over it."""
        message, body = self.message, self.body
        return (
            number, conversation_id, seq, session_id, message.role, message.kind, body.stored, body.encoding,
            len(message.text), key, int(is_original), now_ms,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class IdReservation:
    """Numbers for messages about to be written, and how things stand at their conversation's tip."""

    numbers: tuple[int, ...]
    lease: Row | None
    is_closed: bool


def prepare_messages(messages: AnyMessage | Sequence[AnyMessage]) -> list[PreparedMessage]:
    if isinstance(messages, Message | Mapping | str):
        return [PreparedMessage.of(messages)]
    return [PreparedMessage.of(m) for m in messages]


def reserve_ids(tx: Transaction, dialect: Dialect, conversation: Conversation, count: int) -> IdReservation:
    """Asked in one trip, once the conversation is held: a database may be far away."""
    # One is asked for most often, and then without a series: a server would plan that anew each time.
    counting = "(SELECT 1 AS n)" if count == 1 else dialect.counting
    rows = tx.rows(
        f"SELECT {dialect.number.format('message')}, s.ended_at, l.holder, l.token, l.expires_at FROM session s"
        f" CROSS JOIN {counting} AS counting LEFT JOIN lease l ON l.conversation = s.conversation WHERE s.id = ?",
        (conversation.tip_session_id,) if count == 1 else (count, conversation.tip_session_id),
    )
    lease = rows[0][2:] if rows and rows[0][2] is not None else None
    return IdReservation(tuple(r[0] for r in rows), lease, bool(rows) and rows[0][1] is not None)


def insert_step(rows: Sequence[Sequence[Value]]) -> Step:
    """Puts rows of drafts into the log."""
    return _INSERT, rows


def scoped_text(draft: PreparedMessage, conversation: Conversation) -> IndexedText:
    """A draft's tokens, with the words that narrow a search to where it stands."""
    words = [conversation_scope(conversation.id), role_scope(draft.message.kind)]
    if conversation.user_key:
        words.append(user_scope(conversation.user_key))
    return IndexedText(draft.tokens.parts, draft.tokens.wholes, " ".join(words))


_MOVE_ON = "UPDATE conversation SET last_seq = ?, last_key = ?, updated_at = ? WHERE id = ?"


class MessageLog:
    """Appends and reads; every id of a conversation names it."""

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
    ) -> AppendResult:
        """Adds to the conversation's tip, durably. With `after_seq`, what already stands behind that message is not
        added again, so that an append whose answer was lost can be repeated. `events` tell what is known about the
        messages beside their words; they are written with them, or not at all."""
        drafts = prepare_messages(messages)

        def work(tx: Transaction) -> AppendResult:
            if after_seq is None and drafts:
                conversation, last_key = self._context.lock_conversation(tx, any_id)
                room = reserve_ids(tx, self._context.database.dialect, conversation, len(drafts))
                judge(room.lease, conversation.id, lease, now_ms=self._context.clock.now_ms())
                added = self._add(tx, conversation, drafts, key=last_key, room=room)
            else:
                conversation = self._open(tx, any_id, lease)
                known = conversation.last_seq if after_seq is None else after_seq
                added = self._add_missing(tx, conversation, drafts, known)
            for event in events if added.added else ():
                now = added.entries[-1].created_at_ms
                insert_event(tx, added.conversation_id, replace(event, created_at_ms=now))
            return added

        return self._context.database.write(work)

    def ingest(self, any_id: str, messages: Sequence[AnyMessage], *, lease: Lease | None = None) -> AppendResult:
        """Brings the log up to a whole conversation handed in from its first message; what is there already stays.

        Raises StoreError where the two part ways: the log is never changed to fit.
        """
        drafts = prepare_messages(messages)

        def work(tx: Transaction) -> AppendResult:
            return self._add_missing(tx, self._open(tx, any_id, lease), drafts, 0)

        return self._context.database.write(work)

    def history(self, session_id: str) -> SessionHistory:
        """One session as it is, or was, sent: its spans, then its own messages. A conversation id means its tip."""

        def load(tx: Transaction) -> SessionHistory:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            session = _named_session(tx, session_id, conversation)
            view = view_of(tx, session, conversation.last_seq)
            entries, damage = read_checked(tx, lineage_of(tx, conversation), view)
            return SessionHistory(session, tuple(entries), tuple(damage))

        return self._context.database.read(load)

    def read(self, any_id: str, span: Span) -> list[Entry]:
        """The messages of one interval of the log, handoffs included."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            return read_entries(tx, lineage_of(tx, conversation), [span])

        return self._context.database.read(load)

    def originals(self, any_id: str) -> list[Entry]:
        """Everything ever said in the conversation, in order, without what compactions wrote."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            lineage = lineage_of(tx, conversation)
            written = read_generated_seqs(tx, lineage)
            return [e for e in read_entries(tx, lineage, [Span(1, conversation.last_seq)]) if e.seq not in written]

        return self._context.database.read(load)

    def expand(self, session_id: str) -> list[Entry]:
        """A session's view with every handoff opened, down to what was really said."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            lineage = lineage_of(tx, conversation)
            session = _named_session(tx, session_id, conversation)
            view = view_of(tx, session, conversation.last_seq)
            return read_entries(tx, lineage, expand_handoffs(view, read_handoffs(tx, lineage)))

        return self._context.database.read(load)

    def handoffs(self, any_id: str) -> dict[int, StoredHandoff]:
        """Every handoff of the conversation, by seq."""

        def load(tx: Transaction) -> dict[int, StoredHandoff]:
            return read_handoffs(tx, lineage_of(tx, get_conversation(tx, conversation_id_of(tx, any_id))))

        return self._context.database.read(load)

    def view(self, session_id: str) -> View:
        """What a session's history is made of, without reading it. A conversation id means its tip."""

        def load(tx: Transaction) -> View:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            return view_of(tx, _named_session(tx, session_id, conversation), conversation.last_seq)

        return self._context.database.read(load)

    def reader(self, any_id: str) -> ConversationLog:
        """The LogReader port over one conversation."""
        return ConversationLog(self, any_id)

    def _open(self, tx: Transaction, any_id: str, lease: Lease | None) -> Conversation:
        conversation, _ = self._context.lock_conversation(tx, any_id)
        admit(tx, conversation.id, lease, now_ms=self._context.clock.now_ms())
        return conversation

    def _add(
        self,
        tx: Transaction,
        conversation: Conversation,
        drafts: Sequence[PreparedMessage],
        *,
        key: bytes,
        room: IdReservation,
    ) -> AppendResult:
        now, tip = self._context.clock.now_ms(), conversation.tip_session_id
        entries, rows, texts = [], [], []
        for seq, (number, draft) in enumerate(zip(room.numbers, drafts, strict=True), conversation.last_seq + 1):
            key = ingest_key(key, draft.body.canonical)
            rows.append(
                draft.row(
                    number,
                    conversation_id=conversation.id,
                    seq=seq,
                    session_id=tip,
                    key=key,
                    now_ms=now,
                    is_original=True,
                )
            )
            texts.append((number, scoped_text(draft, conversation)))
            entries.append(Entry(seq, draft.message, now))
        steps = [insert_step(rows), self._context.index.addition("message", texts)]
        if room.is_closed:
            # Speaking again reopens a tip that was closed.
            steps.append(("UPDATE session SET ended_at = NULL, end_reason = NULL WHERE id = ?", [(tip,)]))
        tx.run_all([*steps, (_MOVE_ON, [(entries[-1].seq, key, now, conversation.id)])])
        return AppendResult(conversation.id, tip, tuple(entries), len(entries))

    def _add_missing(
        self, tx: Transaction, conversation: Conversation, drafts: Sequence[PreparedMessage], after_seq: int
    ) -> AppendResult:
        lineage = lineage_of(tx, conversation)
        key = key_at(tx, lineage, after_seq)
        stored = _chain(tx, lineage, Span(after_seq + 1, conversation.last_seq))
        known: list[Entry] = []
        for draft, (seq, stored_key, created_at) in zip(drafts, stored, strict=False):
            expected = ingest_key(key, draft.body.canonical)
            if expected != stored_key:
                raise StoreError(f"what was handed in differs from the log at m:{seq}; branch there to keep both")
            key = stored_key
            known.append(Entry(seq, draft.message, created_at))
        missing = drafts[len(known) :]
        if not missing:
            return AppendResult(conversation.id, conversation.tip_session_id, tuple(known), 0)
        room = reserve_ids(tx, self._context.database.dialect, conversation, len(missing))
        added = self._add(tx, conversation, missing, key=key, room=room)
        return AppendResult(added.conversation_id, added.session_id, (*known, *added.entries), added.added)


class ConversationLog:
    """A LogReader: one conversation's log, by seq."""

    def __init__(self, log: MessageLog, any_id: str) -> None:
        self._log = log
        self._id = any_id

    def read(self, lo: int, hi: int) -> Sequence[Entry]:
        return self._log.read(self._id, Span(lo, hi))


def _named_session(tx: Transaction, any_id: str, conversation: Conversation) -> Session:
    """The very session a session id names; the tip for any other id of the conversation."""
    row = tx.row(f"SELECT {SESSION} FROM session WHERE id = ?", (any_id,))
    return session_of_row(row) if row is not None else get_session(tx, conversation.tip_session_id)


def _chain(tx: Transaction, lineage: Lineage, span: Span) -> list[tuple[int, bytes, int]]:
    return [
        (seq, bytes(key), created_at)
        for place in segments_of(lineage, span)
        for seq, key, created_at in tx.rows(
            "SELECT seq, key, created_at FROM message WHERE conversation = ? AND seq BETWEEN ? AND ?"
            " AND chained = 1 ORDER BY seq",
            place,
        )
    ]
