"""The log: messages are appended, read, and never changed.

Ordinary messages form a chain of keys, each the hash of the one before and the body. Handing in what is already there
therefore adds nothing, while two equal messages in a row stay two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import StoreError
from perdure.core.messages import Entry, Message
from perdure.store.backing import Backing
from perdure.store.codec import Body, encode, ingest_key
from perdure.store.database import Transaction, Value, insert_numbered
from perdure.store.leases import admit
from perdure.store.ledger import insert_event
from perdure.store.records import Appended, Conversation, Handoff, History, Lease, Session, Span, StoredEvent
from perdure.store.resolve import conversation_id_of
from perdure.store.rows import (
    SESSION,
    Lineage,
    get_conversation,
    get_session,
    key_at,
    lineage_of,
    places,
    read_entries,
    read_handoffs,
    read_written,
    session_of_row,
    view_of,
)
from perdure.store.text_index import IndexedText, conversation_scope, indexed, role_scope, user_scope
from perdure.store.tokenizer import searchable
from perdure.store.views import View, expanded

AnyMessage = Message | Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class Draft:
    """A message made ready in the caller's thread, so that the writer only writes."""

    message: Message
    body: Body
    tokens: IndexedText

    @classmethod
    def of(cls, raw: AnyMessage) -> Draft:
        message = Message.from_dict(raw)
        return cls(message, encode(message), indexed(searchable(message), ()))


class Log:
    """Appends and reads; every id of a conversation names it."""

    def __init__(self, backing: Backing) -> None:
        self._backing = backing

    def append(
        self,
        any_id: str,
        messages: AnyMessage | Sequence[AnyMessage],
        *,
        after_seq: int | None = None,
        lease: Lease | None = None,
        events: Sequence[StoredEvent] = (),
    ) -> Appended:
        """Adds to the conversation's tip, durably. With `after_seq`, what already stands behind that message is not
        added again, so that an append whose answer was lost can be repeated. `events` tell what is known about the
        messages beside their words; they are written with them, or not at all."""
        drafts = _drafts(messages)

        def work(tx: Transaction) -> Appended:
            conversation, last_key = self._open(tx, any_id, lease)
            if after_seq is None:
                added = self._add(tx, conversation, drafts, key=last_key)
            else:
                added = self._add_missing(tx, conversation, drafts, after_seq)
            for event in events if added.added else ():
                insert_event(tx, conversation.id, replace(event, created_at_ms=added.entries[-1].created_at_ms))
            return added

        return self._backing.database.write(work)

    def ingest(self, any_id: str, messages: Sequence[AnyMessage], *, lease: Lease | None = None) -> Appended:
        """Brings the log up to a whole conversation handed in from its first message; what is there already stays.

        Raises StoreError where the two part ways: the log is never changed to fit.
        """
        drafts = _drafts(messages)

        def work(tx: Transaction) -> Appended:
            conversation, _ = self._open(tx, any_id, lease)
            return self._add_missing(tx, conversation, drafts, 0)

        return self._backing.database.write(work)

    def history(self, session_id: str) -> History:
        """One session as it is, or was, sent: its spans, then its own messages. A conversation id means its tip."""

        def load(tx: Transaction) -> History:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            session = _named_session(tx, session_id, conversation)
            view = view_of(tx, session, conversation.last_seq)
            return History(session, tuple(read_entries(tx, lineage_of(tx, conversation), view)))

        return self._backing.database.read(load)

    def read(self, any_id: str, span: Span) -> list[Entry]:
        """The messages of one interval of the log, handoffs included."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            return read_entries(tx, lineage_of(tx, conversation), [span])

        return self._backing.database.read(load)

    def said(self, any_id: str) -> list[Entry]:
        """Everything ever said in the conversation, in order, without what compactions wrote."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            lineage = lineage_of(tx, conversation)
            written = read_written(tx, lineage)
            return [e for e in read_entries(tx, lineage, [Span(1, conversation.last_seq)]) if e.seq not in written]

        return self._backing.database.read(load)

    def expand(self, session_id: str) -> list[Entry]:
        """A session's view with every handoff opened, down to what was really said."""

        def load(tx: Transaction) -> list[Entry]:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            lineage = lineage_of(tx, conversation)
            session = _named_session(tx, session_id, conversation)
            view = view_of(tx, session, conversation.last_seq)
            return read_entries(tx, lineage, expanded(view, read_handoffs(tx, lineage)))

        return self._backing.database.read(load)

    def handoffs(self, any_id: str) -> dict[int, Handoff]:
        """Every handoff of the conversation, by seq."""

        def load(tx: Transaction) -> dict[int, Handoff]:
            return read_handoffs(tx, lineage_of(tx, get_conversation(tx, conversation_id_of(tx, any_id))))

        return self._backing.database.read(load)

    def view(self, session_id: str) -> View:
        """What a session's history is made of, without reading it. A conversation id means its tip."""

        def load(tx: Transaction) -> View:
            conversation = get_conversation(tx, conversation_id_of(tx, session_id))
            return view_of(tx, _named_session(tx, session_id, conversation), conversation.last_seq)

        return self._backing.database.read(load)

    def reader(self, any_id: str) -> ConversationLog:
        """The LogReader port over one conversation."""
        return ConversationLog(self, any_id)

    def _open(self, tx: Transaction, any_id: str, lease: Lease | None) -> tuple[Conversation, bytes]:
        conversation, last_key = self._backing.hold(tx, conversation_id_of(tx, any_id))
        admit(tx, conversation.id, lease, now_ms=self._backing.clock.now_ms())
        return conversation, last_key

    def _add(self, tx: Transaction, conversation: Conversation, drafts: Sequence[Draft], *, key: bytes) -> Appended:
        now = self._backing.clock.now_ms()
        entries, texts = [], []
        for seq, draft in enumerate(drafts, conversation.last_seq + 1):
            key = ingest_key(key, draft.body.canonical)
            number = insert_message(
                tx, conversation, draft, seq=seq, session=conversation.tip_session_id, key=key, now=now
            )
            texts.append((number, scoped(draft, conversation)))
            entries.append(Entry(seq, draft.message, now))
        self._backing.index.add(tx, "message", texts)
        if entries:
            tx.run(
                "UPDATE conversation SET last_seq = ?, last_key = ?, updated_at = ? WHERE id = ?",
                (entries[-1].seq, key, now, conversation.id),
            )
            # Speaking again reopens a tip that was closed.
            tx.run(
                "UPDATE session SET ended_at = NULL, end_reason = NULL WHERE id = ? AND ended_at IS NOT NULL",
                (conversation.tip_session_id,),
            )
        return Appended(conversation.id, conversation.tip_session_id, tuple(entries), len(entries))

    def _add_missing(
        self, tx: Transaction, conversation: Conversation, drafts: Sequence[Draft], after_seq: int
    ) -> Appended:
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
        added = self._add(tx, conversation, drafts[len(known) :], key=key)
        return Appended(added.conversation_id, added.session_id, (*known, *added.entries), added.added)


class ConversationLog:
    """A LogReader: one conversation's log, by seq."""

    def __init__(self, log: Log, any_id: str) -> None:
        self._log = log
        self._id = any_id

    def read(self, lo: int, hi: int) -> Sequence[Entry]:
        return self._log.read(self._id, Span(lo, hi))


def insert_message(
    tx: Transaction,
    conversation: Conversation,
    draft: Draft,
    *,
    seq: int,
    session: str,
    key: bytes,
    now: int,
    is_said: bool = True,
) -> int:
    """The new row's number, which grows with every message of every conversation.

    What a compaction writes was not said: it stands outside the chain of keys, so that replay never stumbles over it.
    """
    message, body = draft.message, draft.body
    values: dict[str, Value] = {
        "conversation": conversation.id,
        "seq": seq,
        "session": session,
        "role": message.role,
        "kind": message.kind,
        "body": body.stored,
        "encoding": body.encoding,
        "chars": len(message.text),
        "key": key,
        "chained": int(is_said),
        "created_at": now,
    }
    return insert_numbered(tx, "message", values)


def scoped(draft: Draft, conversation: Conversation) -> IndexedText:
    """A draft's tokens, with the words that narrow a search to where it stands."""
    words = [conversation_scope(conversation.id), role_scope(draft.message.kind)]
    if conversation.user_key:
        words.append(user_scope(conversation.user_key))
    return IndexedText(draft.tokens.parts, draft.tokens.wholes, " ".join(words))


def _named_session(tx: Transaction, any_id: str, conversation: Conversation) -> Session:
    """The very session a session id names; the tip for any other id of the conversation."""
    row = tx.row(f"SELECT {SESSION} FROM session WHERE id = ?", (any_id,))
    return session_of_row(row) if row is not None else get_session(tx, conversation.tip_session_id)


def _drafts(messages: AnyMessage | Sequence[AnyMessage]) -> list[Draft]:
    if isinstance(messages, Message | Mapping | str):
        return [Draft.of(messages)]
    return [Draft.of(m) for m in messages]


def _chain(tx: Transaction, lineage: Lineage, span: Span) -> list[tuple[int, bytes, int]]:
    return [
        (seq, bytes(key), created_at)
        for place in places(lineage, span)
        for seq, key, created_at in tx.rows(
            "SELECT seq, key, created_at FROM message WHERE conversation = ? AND seq BETWEEN ? AND ?"
            " AND chained = 1 ORDER BY seq",
            place,
        )
    ]
