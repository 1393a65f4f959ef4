"""Messages on their way into the log: made ready in the caller's thread, so that the writer only writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.messages import Message
from perdure.store.codec import Body, encode
from perdure.store.database import Dialect, Row, Step, Transaction, Value
from perdure.store.records import Conversation
from perdure.store.text_index import IndexedText, conversation_scope, indexed, role_scope, user_scope
from perdure.store.tokenizer import searchable

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
        return cls(message, encode(message), indexed(searchable(message), ()))

    def row(
        self, number: int, *, conversation_id: str, seq: int, session_id: str, key: bytes, now_ms: int, is_said: bool
    ) -> tuple[Value, ...]:
        """What a compaction writes was not said: it stands outside the chain of keys, so that replay never stumbles
        over it."""
        message, body = self.message, self.body
        return (
            number, conversation_id, seq, session_id, message.role, message.kind, body.stored, body.encoding,
            len(message.text), key, int(is_said), now_ms,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class IdReservation:
    """Numbers for messages about to be written, and how things stand at their conversation's tip."""

    numbers: tuple[int, ...]
    lease: Row | None
    is_closed: bool


def drafts_of(messages: AnyMessage | Sequence[AnyMessage]) -> list[PreparedMessage]:
    if isinstance(messages, Message | Mapping | str):
        return [PreparedMessage.of(messages)]
    return [PreparedMessage.of(m) for m in messages]


def make_room(tx: Transaction, dialect: Dialect, conversation: Conversation, count: int) -> IdReservation:
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


def insertion(rows: Sequence[Sequence[Value]]) -> Step:
    """Puts rows of drafts into the log."""
    return _INSERT, rows


def scoped(draft: PreparedMessage, conversation: Conversation) -> IndexedText:
    """A draft's tokens, with the words that narrow a search to where it stands."""
    words = [conversation_scope(conversation.id), role_scope(draft.message.kind)]
    if conversation.user_key:
        words.append(user_scope(conversation.user_key))
    return IndexedText(draft.tokens.parts, draft.tokens.wholes, " ".join(words))
