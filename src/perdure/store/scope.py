"""What a search is narrowed to: words for the index, conditions for the rows it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import StoreError
from perdure.core.visibility import Visibility
from perdure.store.database import Transaction, Value, text
from perdure.store.resolve import conversation_id_of
from perdure.store.rows import Lineage, get_conversation, get_session, lineage_of
from perdure.store.text_index import conversation_scope, role_scope, user_scope

KEYS = ("conversation", "session", "role", "since_ms", "until_ms")


@dataclass(frozen=True, slots=True)
class SearchScope:
    """`words` are groups for the index, one of each to be met; the rest is checked on the rows."""

    words: tuple[tuple[str, ...], ...] = ()
    role: str | None = None
    lineage: Lineage = ()
    session_id: str | None = None
    user_key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def takes_outputs(self) -> bool:
        """An output is a tool's; a search for what a person or a model said leaves outputs out."""
        return self.role in (None, "tool")

    def conditions(self, table: str) -> tuple[str, list[Value]]:
        """SQL to follow a WHERE, for messages (`m`) or outputs (`o`), and its values."""
        parts: list[str] = []
        values: list[Value] = []
        if self.lineage:
            parts.append(f"({' OR '.join(_place(table) for _ in self.lineage)})")
            for conversation_id, lo, hi in self.lineage:
                values += [conversation_id] if table == "o" else [conversation_id, lo, hi]
        for condition, value in (
            (f"{table}.session = ?", self.session_id),
            # An expression, so that no planner begins with all that the user ever said instead of what was found.
            ("c.user_key || '' = ?", self.user_key),
            (f"{table}.created_at >= ?", self.since_ms),
            (f"{table}.created_at < ?", self.until_ms),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        return "".join(f" AND {p}" for p in parts), values


def scope_of(tx: Transaction, given: Mapping[str, Any], visibility: Visibility) -> SearchScope:
    """The scope a mapping describes. Raises StoreError for a key nobody knows, NotFound for an id."""
    if unknown := sorted(set(given) - set(KEYS)):
        raise StoreError(f"a search cannot be narrowed by {', '.join(unknown)}; there are: {', '.join(KEYS)}")
    wanted = {k: v for k, v in given.items() if v is not None}
    words: list[Sequence[str]] = []
    lineage: Lineage = ()
    session_id = wanted.get("session")
    if session_id is not None:
        session = get_session(tx, str(session_id))
        words.append([conversation_scope(session.conversation_id)])
    if "conversation" in wanted:
        lineage = lineage_of(tx, get_conversation(tx, conversation_id_of(tx, str(wanted["conversation"]))))
        words.append([conversation_scope(owner) for owner, _, _ in lineage])
    if "role" in wanted:
        words.append([role_scope(str(wanted["role"]))])
    user_key = None if visibility.stored_key is None else text(visibility.stored_key)
    if user_key:  # the owner's rows carry no word for the index; their condition is checked on the rows
        words.append([user_scope(user_key)])
    return SearchScope(
        tuple(tuple(w) for w in words), wanted.get("role"), lineage, session_id, user_key,
        wanted.get("since_ms"), wanted.get("until_ms"),
    )  # fmt: skip


def _place(table: str) -> str:
    return "o.conversation = ?" if table == "o" else "(m.conversation = ? AND m.seq BETWEEN ? AND ?)"
