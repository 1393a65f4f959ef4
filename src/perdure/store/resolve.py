"""From any id a person may type to the conversation it belongs to."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.core.errors import NotFound
from perdure.store.database import Transaction, text

# A conversation by its own id or by that of one of its sessions; takes the id twice.
NAMED = "id = COALESCE((SELECT conversation FROM session WHERE id = ?), ?)"
_PREFIXES = ("c_", "s_")
# Sorts behind every character an id is made of.
_AFTER = "~"
_MOST_NAMED = 5


def conversation_id_of(tx: Transaction, any_id: str) -> str:
    """The conversation of a session id, a conversation id, or a beginning that fits one conversation only."""
    any_id = text(any_id)
    row = tx.row(f"SELECT id FROM conversation WHERE {NAMED}", (any_id, any_id))
    if row is not None:
        return str(row[0])
    gone = tx.row("SELECT deleted_at FROM tombstone WHERE id = ?", (any_id,))
    if gone is not None:
        day = datetime.fromtimestamp(gone[0] / 1000, UTC).date()
        raise NotFound(f"{any_id} was deleted on {day}")
    return _by_beginning(tx, any_id)


def owned_conversation_id_of(tx: Transaction, any_id: str, user_key: str) -> str:
    """The same among one user's conversations; what is somebody else's is as unknown as what never was."""
    any_id, user_key = text(any_id), text(user_key)
    row = tx.row(
        "SELECT id FROM conversation WHERE user_key = ?"
        " AND id IN (SELECT conversation FROM session WHERE id = ? UNION ALL SELECT CAST(? AS TEXT))",
        (user_key, any_id, any_id),
    )
    return str(row[0]) if row is not None else _by_beginning(tx, any_id, user_key=user_key)


def _by_beginning(tx: Transaction, beginning: str, *, user_key: str | None = None) -> str:
    start = beginning.strip().lower()
    starts = [start] if start.startswith(_PREFIXES) else [p + start for p in _PREFIXES] if start else []
    owned = " AND c.user_key = ?" if user_key is not None else ""
    owner = [user_key] if user_key is not None else []
    found: set[str] = set()
    for s in starts:
        for named, tables in (("c", "conversation c"), ("s", "session s JOIN conversation c ON c.id = s.conversation")):
            sql = f"SELECT DISTINCT c.id FROM {tables} WHERE {named}.id >= ? AND {named}.id < ?{owned} LIMIT ?"
            found |= {str(r[0]) for r in tx.rows(sql, (s, s + _AFTER, *owner, _MOST_NAMED + 1))}
    if len(found) == 1:
        return found.pop()
    if found:
        named = ", ".join(sorted(found)[:_MOST_NAMED])
        raise NotFound(f"{beginning!r} fits several conversations ({named}…); type more of it")
    raise NotFound(f"no conversation or session {beginning!r}")
