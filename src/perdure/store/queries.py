"""Row mapping and id resolution shared by the store roles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from perdure.core.errors import CorruptStore, NotFound
from perdure.core.messages import Entry
from perdure.core.usage import CanonicalUsage
from perdure.store.db.database import Row, Transaction, Value, insert, text
from perdure.store.ids import FIRST_KEY, load_json, unpack
from perdure.store.integrity import ChainReader
from perdure.store.records import Conversation, Damage, RouteRecord, Session, Span, StoredHandoff
from perdure.store.spans import View, merge_spans

CONVERSATION = (
    "id, kind, tip, parent, source, user_key, chat_key, title, todo, fork_seq, last_seq, created_at, updated_at"
)
SESSION = (
    "id, conversation, parent, began_by, provider, model, api_mode, system_prompt, prompt_encoding, first_seq,"
    " last_seq, started_at, ended_at, end_reason"
)
_HANDOFF = "conversation, seq, session, covers, replaced, model, focus, previous, cost_usd, usage, verified, created_at"
_ENTRY = "seq, created_at, body, encoding, kind, key, chained"

# (conversation, lo, hi) for each part of a log: the own part first, then the parts shared with parents.
Lineage = tuple[tuple[str, int, int], ...]


def conversation_of_row(row: Row) -> Conversation:
    return Conversation(*row)


def session_of_row(row: Row) -> Session:
    ident, conversation, parent, began_by, provider, model, mode, prompt, encoding, *rest = row
    text = _prompt_text(ident, prompt, encoding)
    return Session(ident, conversation, parent, began_by, RouteRecord(provider, model, mode), text, *rest)


def _prompt_text(session_id: str, prompt: bytes, encoding: int) -> str:
    """Decode a system prompt; a damaged one becomes a placeholder, so that the conversation still opens."""
    try:
        return unpack(prompt, encoding).decode(errors="replace")
    except CorruptStore:
        return f"[The system prompt of {session_id} is damaged in the database and cannot be read.]"


def get_conversation(tx: Transaction, conversation_id: str) -> Conversation:
    row = tx.row(f"SELECT {CONVERSATION} FROM conversation WHERE id = ?", (conversation_id,))
    if row is None:
        raise NotFound(f"no conversation {conversation_id!r}")
    return conversation_of_row(row)


def get_session(tx: Transaction, session_id: str) -> Session:
    row = tx.row(f"SELECT {SESSION} FROM session WHERE id = ?", (session_id,))
    if row is None:
        raise NotFound(f"no session {session_id!r}")
    return session_of_row(row)


def spans_of(tx: Transaction, session_id: str) -> View:
    return tuple(Span(*r) for r in tx.rows("SELECT lo, hi FROM span WHERE session = ? ORDER BY ordinal", (session_id,)))


def view_of(tx: Transaction, session: Session, last_seq: int) -> View:
    """Return a session's spans followed by its own messages; an open session ends at `last_seq`."""
    own = Span(session.first_seq, session.last_seq if session.last_seq is not None else last_seq)
    return merge_spans([*spans_of(tx, session.id), own])


def lineage_of(tx: Transaction, conversation: Conversation) -> Lineage:
    """Return the parts of a conversation's log with the conversations that store them, newest first."""
    pieces, hi = [], conversation.last_seq
    while True:
        pieces.append((conversation.id, conversation.fork_seq + 1, hi))
        if not conversation.fork_seq or conversation.parent_id is None:
            return tuple(pieces)
        hi = min(hi, conversation.fork_seq)
        conversation = get_conversation(tx, conversation.parent_id)


def segments_of(lineage: Lineage, span: Span) -> Iterable[tuple[str, int, int]]:
    """Split a span by the conversations that store it, oldest first."""
    for conversation_id, lo, hi in reversed(lineage):
        low, high = max(lo, span.lo), min(hi, span.hi)
        if low <= high:
            yield conversation_id, low, high


def read_entries(tx: Transaction, lineage: Lineage, view: Iterable[Span]) -> list[Entry]:
    """Return the messages of a view, in its order, with placeholders for damaged ones."""
    return read_checked(tx, lineage, view)[0]


def read_checked(tx: Transaction, lineage: Lineage, view: Iterable[Span]) -> tuple[list[Entry], list[Damage]]:
    """Return the messages of a view and the damaged ones among them. Verification takes 2 µs per message."""
    entries: list[Entry] = []
    damage: list[Damage] = []
    for span in view:
        for segment in segments_of(lineage, span):
            conversation_id, lo, _ = segment
            rows = tx.rows(
                f"SELECT {_ENTRY} FROM message WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq", segment
            )
            reader = ChainReader(tx, conversation_id, previous=key_at(tx, lineage, lo - 1))
            entries += [Entry(seq, reader.message(seq, *stored), created_at) for seq, created_at, *stored in rows]
            damage += reader.damage
    return entries, damage


def read_generated_seqs(tx: Transaction, lineage: Lineage) -> set[int]:
    """Return the seqs of messages written by compactions."""
    sql = "SELECT seq FROM message WHERE conversation = ? AND seq BETWEEN ? AND ? AND chained = 0"
    return {seq for segment in lineage for (seq,) in tx.rows(sql, segment)}


def read_handoffs(tx: Transaction, lineage: Lineage) -> dict[int, StoredHandoff]:
    """Return every handoff of a log, by seq."""
    return {
        row[1]: handoff_of_row(row)
        for segment in reversed(lineage)
        for row in tx.rows(f"SELECT {_HANDOFF} FROM handoff WHERE conversation = ? AND seq BETWEEN ? AND ?", segment)
    }


def handoff_of_row(row: Row) -> StoredHandoff:
    conversation, seq, session, covers, replaced, model, focus, previous, cost, usage, verified, created_at = row
    what = f"the handoff h:{seq} of {conversation}"
    spans, view = _spans_of_json(covers, what), _spans_of_json(replaced, what)
    counts = CanonicalUsage(**load_json(usage, what))
    check = load_json(verified, what)
    return StoredHandoff(
        conversation, seq, session, spans, view, model, focus, previous, cost, counts, check, created_at
    )


def add_handoff(tx: Transaction, handoff: StoredHandoff) -> None:
    values: dict[str, Value] = {
        "conversation": handoff.conversation_id,
        "seq": handoff.seq,
        "session": handoff.session_id,
        "covers": _json_of_spans(handoff.covers),
        "replaced": _json_of_spans(handoff.replaced),
        "model": handoff.model,
        "focus": handoff.focus,
        "previous": handoff.previous,
        "cost_usd": handoff.cost_usd,
        "usage": json.dumps(asdict(handoff.usage)),
        "verified": json.dumps(dict(handoff.check), default=str),
        "created_at": handoff.created_at_ms,
    }
    insert(tx, "handoff", values)


def _spans_of_json(text: str, what: str) -> View:
    return tuple(Span(lo, hi) for lo, hi in load_json(text, what))


def _json_of_spans(view: View) -> str:
    return json.dumps([(s.lo, s.hi) for s in view])


def add_spans(tx: Transaction, session_id: str, view: Sequence[Span]) -> None:
    tx.run_many(
        "INSERT INTO span (session, ordinal, lo, hi) VALUES (?, ?, ?, ?)",
        [(session_id, i, s.lo, s.hi) for i, s in enumerate(view)],
    )


def key_at(tx: Transaction, lineage: Lineage, seq: int) -> bytes:
    """Return the hash chain's key after message `seq`. Raises NotFound."""
    if seq and not any(lo <= seq <= hi for _, lo, hi in lineage):
        raise NotFound(f"no message m:{seq} to append after")
    for conversation_id, lo, hi in lineage:
        row = tx.row(
            "SELECT key FROM message WHERE conversation = ? AND seq BETWEEN ? AND ? AND chained = 1"
            " ORDER BY seq DESC LIMIT 1",
            (conversation_id, lo, min(hi, seq)),
        )
        if row is not None:
            return bytes(row[0])
    return FIRST_KEY


# SQL condition for a conversation by its own id or a session's; binds the id twice.
MATCHES_ID = "id = COALESCE((SELECT conversation FROM session WHERE id = ?), ?)"
_PREFIXES = ("c_", "s_")
# Sorts after every character of an id.
_AFTER = "~"
_MAX_LISTED = 5


def conversation_id_of(tx: Transaction, any_id: str) -> str:
    """Resolve a session id, conversation id or unique prefix to a conversation id. Raises NotFound."""
    any_id = text(any_id)
    row = tx.row(f"SELECT id FROM conversation WHERE {MATCHES_ID}", (any_id, any_id))
    if row is not None:
        return str(row[0])
    tombstone = tx.row("SELECT deleted_at FROM tombstone WHERE id = ?", (any_id,))
    if tombstone is not None:
        day = datetime.fromtimestamp(tombstone[0] / 1000, UTC).date()
        raise NotFound(f"{any_id} was deleted on {day}")
    return _by_prefix(tx, any_id)


def owned_conversation_id_of(tx: Transaction, any_id: str, user_key: str) -> str:
    """Resolve an id among one user's conversations. Raises NotFound, alike for missing ids and other users'."""
    any_id, user_key = text(any_id), text(user_key)
    row = tx.row(
        "SELECT id FROM conversation WHERE user_key = ?"
        " AND id IN (SELECT conversation FROM session WHERE id = ? UNION ALL SELECT CAST(? AS TEXT))",
        (user_key, any_id, any_id),
    )
    return str(row[0]) if row is not None else _by_prefix(tx, any_id, user_key=user_key)


def _by_prefix(tx: Transaction, prefix: str, *, user_key: str | None = None) -> str:
    start = prefix.strip().lower()
    starts = [start] if start.startswith(_PREFIXES) else [p + start for p in _PREFIXES] if start else []
    owned = " AND c.user_key = ?" if user_key is not None else ""
    owner = [user_key] if user_key is not None else []
    matches: set[str] = set()
    for s in starts:
        for alias, tables in (("c", "conversation c"), ("s", "session s JOIN conversation c ON c.id = s.conversation")):
            sql = f"SELECT DISTINCT c.id FROM {tables} WHERE {alias}.id >= ? AND {alias}.id < ?{owned} LIMIT ?"
            matches |= {str(r[0]) for r in tx.rows(sql, (s, s + _AFTER, *owner, _MAX_LISTED + 1))}
    if len(matches) == 1:
        return matches.pop()
    if matches:
        listed = ", ".join(sorted(matches)[:_MAX_LISTED])
        raise NotFound(f"{prefix!r} matches several conversations ({listed}…); type more characters")
    raise NotFound(f"no conversation or session {prefix!r}")
