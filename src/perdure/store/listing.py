"""List conversations, filtered and ordered, with what a list view displays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from perdure.core.errors import StoreError
from perdure.core.messages import Entry
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store.conversations import list_cursor, parse_list_cursor
from perdure.store.db.database import Row, Transaction, Value, text, to_time_ms
from perdure.store.encoding import decode_or_placeholder
from perdure.store.queries import (
    CONVERSATION,
    CONVERSATION_SCOPE,
    StoreContext,
    conversation_of_row,
    encode_state,
)
from perdure.store.records import Conversation
from perdure.store.statistics import (
    ORDER_SQL,
    ConversationFigures,
    FailureKind,
    OrderKey,
    failing_sql,
    load_figures,
)

_COLUMNS = ", ".join(f"c.{name}" for name in CONVERSATION.split(", "))
_FROM = "FROM conversation c LEFT JOIN session s ON s.id = c.tip"
_NEWEST_FIRST = "c.updated_at DESC, c.id DESC"
_PLAIN_ORDERS = {"updated": "c.updated_at", "messages": "c.last_seq"}
_MAX_PAGE = 1_000
# Escapes LIKE wildcards, and lowercases ASCII only, as both databases do.
_LIKE = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"} | dict(zip(ascii_uppercase, ascii_lowercase, strict=True)))


@dataclass(frozen=True, slots=True)
class ListedConversation:
    """A conversation and the model of its tip; `opening` is its first message when it has no title."""

    conversation: Conversation
    model: str
    opening: Entry | None = None


@dataclass(frozen=True, slots=True)
class ConversationFilter:
    """Filters of a conversation list; the default selects everything visible except delegated runs."""

    visibility: Visibility = EVERYONE
    source: str | None = None
    model: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    parent_id: str | None = None
    title: str | None = None
    ids: Sequence[str] | None = None
    # Only conversations that were compacted, or with a failure of one of these kinds.
    is_compacted: bool = False
    failures: Sequence[FailureKind] = ()
    # Only conversations whose own state has these keys, each with that value, or with any where it is None.
    state: Mapping[str, Any] = field(default_factory=dict)

    def conditions(self) -> tuple[list[str], list[Value]]:
        parts: list[str] = []
        values: list[Value] = []
        for condition, value in (
            # With ids, the expression keeps the planner from starting with the index on user_key.
            ("c.user_key = ?" if self.ids is None else "c.user_key || '' = ?", self.visibility.stored_key),
            ("c.source = ?", self.source),
            ("s.model = ?", self.model),
            ("c.updated_at >= ?", self.since_ms),
            ("c.updated_at < ?", self.until_ms),
            ("c.parent = ?", self.parent_id),
        ):
            if value is not None:
                parts.append(condition)
                values.append(text(value) if isinstance(value, str) else value)
        if self.title is not None:
            parts.append("LOWER(c.title) LIKE ? ESCAPE '\\'")
            values.append(f"%{text(self.title).translate(_LIKE)}%")
        if self.is_compacted:
            parts.append("c.id IN (SELECT conversation FROM session WHERE began_by = 'compression')")
        if self.failures:
            parts.append(f"c.id IN ({failing_sql(self.failures)})")
        for key, expected in self.state.items():
            condition = "SELECT 1 FROM state f WHERE f.scope = ? || c.id AND f.key = ?"
            values += [CONVERSATION_SCOPE, key]
            if expected is not None:
                condition += " AND f.value = ?"
                values.append(encode_state(expected))
            parts.append(f"EXISTS ({condition})")
        if self.ids is not None:
            parts.append(f"c.id IN ({', '.join('?' * len(self.ids)) or 'NULL'})")
            values += [text(i) for i in self.ids]
        elif self.parent_id is None:
            parts.append("COALESCE(c.kind, '') <> 'delegate'")
        return parts, values


@dataclass(frozen=True, slots=True)
class ListOrder:
    """The order of a list: by default the most recently used first."""

    by: OrderKey = "updated"
    is_ascending: bool = False

    @property
    def is_default(self) -> bool:
        return self.by == "updated" and not self.is_ascending

    @property
    def sql(self) -> tuple[str, str]:
        """The JOIN that computes the figure to order by, and the ORDER BY terms; no figure sorts below every figure."""
        figure = _PLAIN_ORDERS.get(self.by, "COALESCE(f.figure, -1)")
        join = f" LEFT JOIN ({ORDER_SQL[self.by]}) f ON f.conversation = c.id" if self.by in ORDER_SQL else ""
        return join, f"{figure} {'ASC' if self.is_ascending else 'DESC'}, {_NEWEST_FIRST}"


NEWEST_FIRST = ListOrder()


class ConversationListing:
    """Paged lists of conversations; the first page is cheap however many there are."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def page(
        self,
        filter_: ConversationFilter,
        *,
        cursor: str | None = None,
        limit: int = 50,
        order: ListOrder = NEWEST_FIRST,
    ) -> tuple[tuple[ListedConversation, ...], str | None]:
        """Return a page and the next page's cursor. Raises StoreError for a bad cursor."""
        limit = max(1, min(limit, _MAX_PAGE))
        where, values = filter_.conditions()
        join, terms = order.sql
        offset = 0
        if cursor is not None and order.is_default:
            where.append("(c.updated_at, c.id) < (?, ?)")
            values += parse_list_cursor(cursor)
        elif cursor is not None:
            offset = _parse_offset(cursor)
        where_sql = f"WHERE {' AND '.join(where)}" if where else ""
        sql = f"SELECT {_COLUMNS}, s.model {_FROM}{join} {where_sql} ORDER BY {terms} LIMIT ? OFFSET ?"

        def load(tx: Transaction) -> tuple[tuple[ListedConversation, ...], str | None]:
            rows = tx.rows(sql, [*values, limit + 1, offset])
            page = tuple(_listed_of_row(tx, row) for row in rows[:limit])
            if len(rows) <= limit:
                return page, None
            return page, list_cursor(rows[limit - 1][:-1]) if order.is_default else f"offset:{offset + limit}"

        return self._context.database.read(load)

    def figures(self, ids: Sequence[str]) -> dict[str, ConversationFigures]:
        """Return cost, tokens, context usage, compactions and failures of some conversations, by id."""
        return self._context.database.read(lambda tx: load_figures(tx, ids))

    def sources(self, visibility: Visibility) -> list[str]:
        """Return the sources of all visible conversations."""
        return self._distinct("SELECT DISTINCT c.source FROM conversation c", visibility)

    def models(self, visibility: Visibility) -> list[str]:
        """Return the models of all visible conversations' tips."""
        return self._distinct(f"SELECT DISTINCT s.model {_FROM}", visibility)

    def _distinct(self, sql: str, visibility: Visibility) -> list[str]:
        user_key = visibility.stored_key
        where_sql = "" if user_key is None else " WHERE c.user_key = ?"
        values = [] if user_key is None else [text(user_key)]
        rows = self._context.database.read(lambda tx: tx.rows(sql + where_sql, values))
        return sorted(str(row[0]) for row in rows if row[0])


def _parse_offset(cursor: str) -> int:
    prefix, _, number = cursor.partition(":")
    if prefix != "offset" or not number.isdecimal() or len(number) > 9:
        raise StoreError(f"{cursor[:80]!r} is not a valid cursor of this order")
    return int(number)


def _listed_of_row(tx: Transaction, row: Row) -> ListedConversation:
    conversation = conversation_of_row(row[:-1])
    opening = None if conversation.title or not conversation.last_seq else _opening(tx, conversation)
    return ListedConversation(conversation, str(row[-1] or ""), opening)


def _opening(tx: Transaction, conversation: Conversation) -> Entry | None:
    """Return the first user message; of a branch, the first after the fork."""
    row = tx.row(
        "SELECT seq, body, encoding, kind, created_at FROM message WHERE conversation = ? AND seq > ? AND kind = 'user'"
        " ORDER BY seq LIMIT 1",
        (conversation.id, conversation.fork_seq),
    )
    if row is None:
        return None
    seq, body, encoding, kind, created_at = row
    return Entry(seq, decode_or_placeholder(body, encoding, kind, seq=seq), to_time_ms(created_at))
