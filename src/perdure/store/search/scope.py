"""The scope of a search: by conversation, session, role, user and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import StoreError
from perdure.core.visibility import EVERYONE, OWNER, User, Visibility
from perdure.store.db.database import Transaction, Value, text
from perdure.store.queries import Lineage, conversation_id_of, get_conversation, get_session, lineage_of
from perdure.store.search.index import conversation_scope, role_scope, user_scope

KEYS = ("conversation", "session", "role", "since_ms", "until_ms", "asked_in", "answering")


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Restriction of a search: `terms` are groups of index terms, the rest becomes SQL conditions."""

    terms: tuple[tuple[str, ...], ...] = ()
    role: str | None = None
    lineage: Lineage = ()
    session_id: str | None = None
    visibility: Visibility = EVERYONE
    since_ms: int | None = None
    until_ms: int | None = None
    # The conversation in which the search is made; its newest question comes last.
    asked_in: str | None = None
    # The conversation whose turn is running; what the user asked in that turn does not match.
    answering: str | None = None

    @property
    def includes_outputs(self) -> bool:
        """Whether outputs match: they have the role `tool`."""
        return self.role in (None, "tool")

    @property
    def is_indexed(self) -> bool:
        """Whether the index alone decides what is in scope, without the SQL conditions."""
        return not (self.session_id or self.since_ms or self.until_ms or self.visibility == OWNER)

    @property
    def leaves_out_searches(self) -> bool:
        """Whether calls of search tools and their results do not match: in a chat, where they only repeat the rest."""
        return self.asked_in is not None or self.answering is not None

    def conditions(self, table: str) -> tuple[str, list[Value]]:
        """Return SQL to append to a WHERE clause on messages (`m`) or outputs (`o`), and its values."""
        parts: list[str] = []
        values: list[Value] = []
        if self.lineage:
            parts.append(f"({' OR '.join(_segment_condition(table) for _ in self.lineage)})")
            for conversation_id, lo, hi in self.lineage:
                values += [conversation_id] if table == "o" else [conversation_id, lo, hi]
        for condition, value in (
            (f"{table}.session = ?", self.session_id),
            # An expression, so that the planner does not start with the index on user_key instead of the matches.
            ("c.user_key || '' = ?", self.visibility.stored_key and text(self.visibility.stored_key)),
            (f"{table}.created_at >= ?", self.since_ms),
            (f"{table}.created_at < ?", self.until_ms),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        return "".join(f" AND {p}" for p in parts), values


def build_scope(tx: Transaction, scope: Mapping[str, Any], visibility: Visibility) -> SearchScope:
    """Build the scope of a search. Raises StoreError for an unknown key, NotFound for an unknown id."""
    if unknown := sorted(set(scope) - set(KEYS)):
        raise StoreError(f"unknown search scope {', '.join(unknown)}; available: {', '.join(KEYS)}")
    options = {k: v for k, v in scope.items() if v is not None}
    words: list[Sequence[str]] = []
    lineage: Lineage = ()
    session_id = options.get("session")
    if session_id is not None:
        session = get_session(tx, str(session_id))
        words.append([conversation_scope(session.conversation_id)])
    if "conversation" in options:
        lineage = lineage_of(tx, get_conversation(tx, conversation_id_of(tx, str(options["conversation"]))))
        words.append([conversation_scope(owner) for owner, _, _ in lineage])
    if "role" in options:
        words.append([role_scope(str(options["role"]))])
    if isinstance(visibility, User):  # the owner's rows have no index term; the SQL condition applies
        words.append([user_scope(text(visibility.key))])
    return SearchScope(
        tuple(tuple(w) for w in words), options.get("role"), lineage, session_id, visibility,
        options.get("since_ms"), options.get("until_ms"), options.get("asked_in"), options.get("answering"),
    )  # fmt: skip


def _segment_condition(table: str) -> str:
    return "o.conversation = ?" if table == "o" else "(m.conversation = ? AND m.seq BETWEEN ? AND ?)"
