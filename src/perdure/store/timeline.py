"""A whole conversation as one story, across its chain of sessions: read a page at a time, from the newest on."""

from __future__ import annotations

from perdure.core.messages import Entry
from perdure.store.backing import StoreContext
from perdure.store.codec import decode_or_placeholder, unpack_or_empty
from perdure.store.database import Transaction
from perdure.store.records import Span, TimelineEntry, TimelinePage
from perdure.store.resolve import conversation_id_of
from perdure.store.rows import Lineage, get_conversation, lineage_of, places

_MOST = 1_000


class Timeline:
    """Everything in the log by seq, handoffs in the places they were written; a branch shows what it shares too."""

    def __init__(self, backing: StoreContext) -> None:
        self._backing = backing

    def page(self, any_id: str, *, before_seq: int | None = None, limit: int = 100) -> TimelinePage:
        """The newest messages, or the newest of those before `before_seq`; in the order they were said."""

        def load(tx: Transaction) -> TimelinePage:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            end = conversation.last_seq + 1 if before_seq is None else min(before_seq, conversation.last_seq + 1)
            span = Span(max(1, end - _within(limit)), end - 1)
            told = _told(tx, lineage_of(tx, conversation), span)
            return TimelinePage(conversation.id, told, conversation.last_seq)

        return self._backing.database.read(load)

    def after(self, any_id: str, seq: int, *, limit: int = 100) -> TimelinePage:
        """What was said since message `seq`, oldest first: how a page that is open stays up to date."""

        def load(tx: Transaction) -> TimelinePage:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            start = max(0, seq) + 1
            span = Span(start, min(conversation.last_seq, start + _within(limit) - 1))
            return TimelinePage(conversation.id, _told(tx, lineage_of(tx, conversation), span), conversation.last_seq)

        return self._backing.database.read(load)

    def bodies(self, any_id: str, span: Span) -> list[tuple[int, str, bytes]]:
        """Messages as they are stored, (seq, kind, JSON): for whoever only looks for words in very many of them."""

        def load(tx: Transaction) -> list[tuple[int, str, bytes]]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            return [
                (seq, kind, unpack_or_empty(body, encoding))
                for place in places(lineage_of(tx, conversation), span)
                for seq, kind, body, encoding in tx.rows(
                    "SELECT seq, kind, body, encoding FROM message WHERE conversation = ? AND seq BETWEEN ? AND ?"
                    " ORDER BY seq",
                    place,
                )
            ]

        return self._backing.database.read(load)


def _within(limit: int) -> int:
    return max(1, min(limit, _MOST))


def _told(tx: Transaction, lineage: Lineage, span: Span) -> tuple[TimelineEntry, ...]:
    return tuple(
        TimelineEntry(
            Entry(seq, decode_or_placeholder(body, encoding, kind, seq=seq), created_at), session, bool(chained)
        )
        for place in places(lineage, span)
        for seq, body, encoding, kind, created_at, session, chained in tx.rows(
            "SELECT seq, body, encoding, kind, created_at, session, chained FROM message"
            " WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq",
            place,
        )
    )
