"""Queries and helpers that the store's roles share: row mapping, id resolution, and key-value state.

`StoreContext` has database, text index, clock and ids; `ScopedState` is the state of engines and conversations,
`ClientHistories` the positions of client histories.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast, get_args

from perdure.core.errors import CorruptStore, NotFound, UnknownConversation
from perdure.core.messages import Entry
from perdure.core.ports import Clock
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import AnyUser, Everyone, Visibility, user_from_key
from perdure.store.db.database import (
    Database,
    Row,
    Transaction,
    Value,
    insert,
    text,
    to_bytes,
    to_float,
    to_optional_int,
    to_optional_text,
    to_seq,
    to_text,
    to_time_ms,
)
from perdure.store.encoding import FIRST_KEY, RESTORE, ChainReader, IdSource, damaged_message, load_json, unpack
from perdure.store.records import (
    BeganBy,
    Conversation,
    ConversationKind,
    Damage,
    RouteRecord,
    Session,
    Span,
    StoredHandoff,
    View,
    merge_spans,
)
from perdure.store.search.index import TextIndex

_KINDS = get_args(ConversationKind)
CONVERSATION = (
    "id, kind, tip, parent, source, user_key, chat_key, title, todo, fork_seq, last_seq, created_at, updated_at"
)
SESSION = (
    "id, conversation, parent, began_by, provider, model, api_mode, system_prompt, prompt_encoding, first_seq,"
    " last_seq, started_at, ended_at, end_reason"
)
_HANDOFF = "conversation, seq, session, covers, replaced, model, focus, previous, cost_usd, usage, verified, created_at"
_ENTRY = "seq, created_at, body, encoding, kind, key, chained, tool_state"
# A conversation with the end of its log and whether its tip exists, which its row must agree with.
CHECKED_CONVERSATION = (
    f"{CONVERSATION}, (SELECT MAX(m.seq) FROM message m WHERE m.conversation = conversation.id),"
    " (SELECT 1 FROM session s WHERE s.id = conversation.tip AND s.conversation = conversation.id)"
)

# (conversation, lo, hi) for each part of a log: the own part first, then the parts shared with parents.
Lineage = tuple[tuple[str, int, int], ...]


def conversation_of_row(row: Row) -> Conversation:
    (
        ident, kind, tip, parent, source, user_key, chat_key, title, todo, fork_seq, last_seq, created_at, updated_at,
    ) = row  # fmt: skip
    return Conversation(
        to_text(ident),
        cast(ConversationKind, kind if kind in _KINDS else "main"),
        to_text(tip),
        to_optional_text(parent),
        to_text(source),
        user_from_key(to_text(user_key)),
        to_text(chat_key),
        to_text(title),
        to_text(todo),
        to_seq(fork_seq),
        to_seq(last_seq),
        to_time_ms(created_at),
        to_time_ms(updated_at),
    )


def session_of_row(row: Row) -> Session:
    (
        ident, conversation, parent, began_by, provider, model, mode, prompt, encoding, first_seq, last_seq, started_at,
        ended_at, end_reason,
    ) = row  # fmt: skip
    return Session(
        to_text(ident),
        to_text(conversation),
        to_optional_text(parent),
        cast(BeganBy, to_text(began_by)),
        RouteRecord(to_text(provider), to_text(model), to_text(mode)),
        _prompt_text(to_text(ident), prompt, encoding),
        to_seq(first_seq),
        None if last_seq is None else to_seq(last_seq),
        to_time_ms(started_at),
        None if ended_at is None else to_time_ms(ended_at),
        to_optional_text(end_reason),
    )


def _prompt_text(session_id: str, prompt: object, encoding: object) -> str:
    """Decode a system prompt; a damaged one becomes a placeholder, so that the conversation still opens."""
    try:
        return unpack(prompt, encoding).decode(errors="replace")
    except CorruptStore:
        return f"[The system prompt of {session_id} is damaged in the database and cannot be read.]"


def get_conversation(tx: Transaction, conversation_id: str) -> Conversation:
    """Return a conversation; an outdated row takes last_seq and tip from log and sessions. Raises NotFound."""
    row = tx.row(f"SELECT {CHECKED_CONVERSATION} FROM conversation WHERE id = ?", (conversation_id,))
    if row is None:
        raise NotFound(f"no conversation {conversation_id!r}")
    conversation = conversation_of_row(row[:-2])
    if is_consistent(row):
        return conversation
    end, has_tip = to_optional_int(row[-2]), row[-1]
    tip = conversation.tip_session_id if has_tip else newest_session_id(tx, conversation)
    return replace(conversation, last_seq=conversation.fork_seq if end is None else end, tip_session_id=tip)


def is_consistent(row: Row) -> bool:
    """Whether a row of CHECKED_CONVERSATION agrees with the conversation's log and sessions."""
    fork_seq, last_seq, end, has_tip = row[9], row[10], row[-2], row[-1]
    return bool(has_tip) and last_seq == (end if end is not None else fork_seq)


def newest_session_id(tx: Transaction, conversation: Conversation) -> str:
    """Return the newest session of a conversation, for one whose tip does not exist."""
    sql = "SELECT id FROM session WHERE conversation = ? ORDER BY first_seq DESC, started_at DESC, id DESC LIMIT 1"
    row = tx.row(sql, (conversation.id,))
    return conversation.tip_session_id if row is None else to_text(row[0])


def get_session(tx: Transaction, session_id: str) -> Session:
    row = tx.row(f"SELECT {SESSION} FROM session WHERE id = ?", (session_id,))
    if row is None:
        raise NotFound(f"no session {session_id!r}")
    return session_of_row(row)


def spans_of(tx: Transaction, session_id: str) -> View:
    rows = tx.rows("SELECT lo, hi FROM span WHERE session = ? ORDER BY ordinal", (session_id,))
    return tuple(Span(to_seq(lo), to_seq(hi)) for lo, hi in rows)


def view_of(tx: Transaction, session: Session, last_seq: int) -> View:
    """Return the view of a session: its spans, then its own messages; an open session ends at `last_seq`."""
    own = Span(session.first_seq, session.last_seq if session.last_seq is not None else last_seq)
    return merge_spans([*spans_of(tx, session.id), own])


def lineage_of(tx: Transaction, conversation: Conversation) -> Lineage:
    """Return the parts of a conversation's log with the conversations that store them, newest first.

    It ends where a damaged row names a missing parent or closes a circle; `Verifier` reports that row.
    """
    pieces, hi, owners = [], conversation.last_seq, {conversation.id}
    while True:
        pieces.append((conversation.id, conversation.fork_seq + 1, hi))
        if not conversation.fork_seq or conversation.parent_id is None or conversation.parent_id in owners:
            return tuple(pieces)
        hi = min(hi, conversation.fork_seq)
        try:
            conversation = get_conversation(tx, conversation.parent_id)
        except NotFound:
            return tuple(pieces)
        owners.add(conversation.id)


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
    """Return the messages of a view and the damaged or missing ones. Verification takes 3 µs per message."""
    entries: list[Entry] = []
    damage: list[Damage] = []
    for span in view:
        for segment in segments_of(lineage, span):
            conversation_id, lo, hi = segment
            rows, unreadable = _message_rows(tx, segment)
            # Unknown where a damaged row cut the lineage.
            has_previous = lo == 1 or any(low <= lo - 1 <= high for _, low, high in lineage)
            previous = key_at(tx, lineage, lo - 1) if has_previous else None
            reader = ChainReader(tx, conversation_id, previous=previous, first_seq=lo)
            read = [Entry(row[0], reader.message(*row), to_time_ms(row[1])) for row in rows]
            read += [Entry(d.seq, damaged_message(d.seq, "user")) for d in unreadable if d.seq is not None]
            if unreadable:
                read.sort(key=lambda e: e.seq)
            damage += sorted([*reader.damage, *unreadable], key=lambda d: d.seq or 0)
            if len(read) != hi - lo + 1:
                damage += _gaps(conversation_id, lo, hi, [e.seq for e in read])
            entries += read
    return entries, damage


def _message_rows(tx: Transaction, segment: tuple[str, int, int]) -> tuple[list[Row], list[Damage]]:
    """Return the rows of a segment; where the database cannot read them together, those it can read one by one."""
    sql = f"SELECT {_ENTRY} FROM message WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    with suppress(CorruptStore):
        return tx.rows(sql, segment), []
    rows: list[Row] = []
    unreadable: list[Damage] = []
    # The index on (conversation, seq) answers this without the damaged table.
    seqs = tx.rows("SELECT seq FROM message WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq", segment)
    for (seq,) in seqs:
        try:
            rows += tx.rows(sql, (segment[0], seq, seq))
        except CorruptStore:
            unreadable.append(Damage(segment[0], seq, "unreadable", row=f"m:{seq}"))
    return rows, unreadable


def _gaps(conversation_id: str, lo: int, hi: int, seqs: Sequence[int]) -> Iterator[Damage]:
    """Yield the intervals of [lo, hi] without a message."""
    expected = lo
    for seq in (*seqs, hi + 1):
        if seq > expected:
            yield Damage(conversation_id, expected, "missing", row=f"m:{expected}", last_seq=seq - 1)
        expected = seq + 1


def read_generated_seqs(tx: Transaction, lineage: Lineage) -> set[int]:
    """Return the seqs of messages written by compactions."""
    sql = "SELECT seq FROM message WHERE conversation = ? AND seq BETWEEN ? AND ? AND chained = 0"
    return {seq for segment in lineage for (seq,) in tx.rows(sql, segment)}


def read_handoffs(tx: Transaction, lineage: Lineage) -> dict[int, StoredHandoff]:
    """Return every readable handoff of a log, by seq."""
    handoffs: dict[int, StoredHandoff] = {}
    for row in handoff_rows(tx, lineage):
        with suppress(CorruptStore):
            handoffs[row[1]] = handoff_of_row(row)
    return handoffs


def handoff_rows(tx: Transaction, lineage: Lineage) -> list[Row]:
    """Return the rows of every handoff of a log, oldest first."""
    sql = f"SELECT {_HANDOFF} FROM handoff WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return [row for segment in reversed(lineage) for row in tx.rows(sql, segment)]


def handoff_of_row(row: Row) -> StoredHandoff:
    """Decode a handoff. Raises CorruptStore, naming it, for a damaged one."""
    conversation, seq, session, covers, replaced, model, focus, previous, cost, usage, verified, created_at = row
    what = f"the handoff h:{seq} of {conversation}"
    spans, view = _spans_of_json(covers, what), _spans_of_json(replaced, what)
    try:
        counts = CanonicalUsage(**load_json(usage, what))
        check = dict(load_json(verified, what))
    except (TypeError, ValueError) as error:
        raise _damaged_error(what) from error
    return StoredHandoff(
        to_text(conversation), to_seq(seq), to_text(session), spans, view, to_text(model), to_text(focus),
        to_optional_int(previous), to_float(cost), counts, check, to_time_ms(created_at),
    )  # fmt: skip


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


def _spans_of_json(stored: object, what: str) -> View:
    try:
        spans = tuple(Span(lo, hi) for lo, hi in load_json(stored, what))
    except (TypeError, ValueError) as error:
        raise _damaged_error(what) from error
    if any(to_seq(seq) != seq for span in spans for seq in (span.lo, span.hi)):
        raise _damaged_error(what)
    return spans


def _damaged_error(what: str) -> CorruptStore:
    return CorruptStore(f"{what} is damaged in the database and cannot be read; {RESTORE}")


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
            return to_bytes(row[0])
    return FIRST_KEY


# SQL condition for a conversation by its own id or a session's; binds the id twice.
MATCHES_ID = "id = COALESCE((SELECT conversation FROM session WHERE id = ?), ?)"
_PREFIXES = ("c_", "s_")
# Sorts after every character of an id.
_AFTER = "~"
_MAX_LISTED = 5
# A mistyped id has at least so many characters in common with the one that is offered.
_LEAST_COMMON = 10
_MAX_NEAR = 3


def conversation_id_of(tx: Transaction, any_id: str) -> str:
    """Resolve a session id, conversation id or unique prefix to a conversation id. Raises NotFound."""
    any_id = text(any_id)
    row = tx.row(f"SELECT id FROM conversation WHERE {MATCHES_ID}", (any_id, any_id))
    if row is not None:
        return str(row[0])
    tombstone = tx.row("SELECT deleted_at FROM tombstone WHERE id = ?", (any_id,))
    if tombstone is not None:
        day = datetime.fromtimestamp(to_time_ms(tombstone[0]) / 1000, UTC).date()
        raise NotFound(f"{any_id} was deleted on {day}")
    return _by_prefix(tx, any_id)


def visible_conversation_id_of(tx: Transaction, any_id: str, visibility: Visibility) -> str:
    """Resolve an id among the conversations that a caller may see. Raises NotFound."""
    if isinstance(visibility, Everyone):
        return conversation_id_of(tx, any_id)
    return owned_conversation_id_of(tx, any_id, visibility)


def owned_conversation_id_of(tx: Transaction, any_id: str, user: AnyUser) -> str:
    """Resolve an id among one user's conversations. Raises NotFound, alike for missing ids and other users'."""
    any_id, user_key = text(any_id), text(user.stored_key)
    row = tx.row(
        "SELECT id FROM conversation WHERE user_key = ?"
        " AND id IN (SELECT conversation FROM session WHERE id = ? UNION ALL SELECT CAST(? AS TEXT))",
        (user_key, any_id, any_id),
    )
    return str(row[0]) if row is not None else _by_prefix(tx, any_id, user_key=user_key)


def _by_prefix(tx: Transaction, prefix: str, *, user_key: str | None = None) -> str:
    start = prefix.strip().lower()
    starts = [start] if start.startswith(_PREFIXES) else [p + start for p in _PREFIXES] if start else []
    matches = _starting_with(tx, starts, user_key)
    if len(matches) == 1:
        return matches.pop()
    if matches:
        listed = ", ".join(sorted(matches)[:_MAX_LISTED])
        raise NotFound(f"{prefix!r} matches several conversations ({listed}…); type more characters")
    near: set[str] = set()
    # Not where only some may be seen: a missing id and another user's get the same error.
    for length in range(len(start) - 1, _LEAST_COMMON - 1, -1) if user_key is None else ():
        if near := _starting_with(tx, [start[:length]], user_key):
            break
    hint = f" (did you mean {' or '.join(sorted(near))}?)" if 0 < len(near) <= _MAX_NEAR else ""
    raise UnknownConversation(f"no conversation or session {prefix!r}{hint}")


def _starting_with(tx: Transaction, starts: Iterable[str], user_key: str | None) -> set[str]:
    """Return some conversations of a user, None for everybody's, with an id that starts so, or of such a session."""
    owned = " AND c.user_key = ?" if user_key is not None else ""
    owner = [user_key] if user_key is not None else []
    matches: set[str] = set()
    for s in starts:
        for alias, tables in (("c", "conversation c"), ("s", "session s JOIN conversation c ON c.id = s.conversation")):
            sql = f"SELECT DISTINCT c.id FROM {tables} WHERE {alias}.id >= ? AND {alias}.id < ?{owned} LIMIT ?"
            matches |= {str(r[0]) for r in tx.rows(sql, (s, s + _AFTER, *owner, _MAX_LISTED + 1))}
    return matches


@dataclass(frozen=True, slots=True)
class StoreContext:
    """Shared dependencies of the store's roles: database, text index, clock and ids."""

    database: Database
    index: TextIndex
    clock: Clock
    ids: IdSource

    def lock_conversation(self, tx: Transaction, any_id: str) -> tuple[Conversation, bytes]:
        """Lock a conversation until the transaction ends; return it with its last key. Raises NotFound."""
        ident = text(any_id)
        # A session never moves to another conversation, so the id can be resolved in the locking statement.
        sql = f"SELECT {CONVERSATION}, last_key FROM conversation WHERE {MATCHES_ID}{self.database.dialect.for_update}"
        row = tx.row(sql, (ident, ident))
        if row is not None:
            return conversation_of_row(row[:-1]), to_bytes(row[-1])
        resolved = conversation_id_of(tx, ident)
        if resolved == ident:
            raise NotFound(f"no conversation {ident!r}")
        return self.lock_conversation(tx, resolved)

    def repair_tip(self, tx: Transaction, conversation: Conversation) -> Conversation:
        """Replace the tip of a locked conversation, which does not exist, by its newest session."""
        tip = newest_session_id(tx, conversation)
        tx.run("UPDATE conversation SET tip = ? WHERE id = ?", (tip, conversation.id))
        return replace(conversation, tip_session_id=tip)


def encode_state(value: Any) -> str:
    """Encode a state value as ASCII JSON, whose escapes carry characters that a database would reject."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True)


# In front of the id: the scope of a conversation's own state.
CONVERSATION_SCOPE = "conversation:"


class ScopedState:
    """Key-value store of one scope, such as `engine:<conversation>`, `cooldown` or `limits`."""

    def __init__(self, context: StoreContext, scope: str) -> None:
        self._context = context
        self._scope = scope

    def get(self, key: str) -> Any:
        sql = "SELECT value FROM state WHERE scope = ? AND key = ?"
        row = self._context.database.row(sql, (self._scope, key))
        return None if row is None else load_json(row[0], f"{self._scope} {key}")

    def set(self, key: str, value: Any) -> None:
        if value is None:
            self._context.database.write(
                lambda tx: tx.run("DELETE FROM state WHERE scope = ? AND key = ?", (self._scope, key))
            )
            return
        text = encode_state(value)
        self._context.database.write(
            lambda tx: tx.run(
                "INSERT INTO state (scope, key, value) VALUES (?, ?, ?)"
                " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
                (self._scope, key, text),
            )
        )

    def swap(self, key: str, old: Any, new: Any) -> bool:
        """Replace a value unless another process has changed it; return whether it was replaced."""
        before, after = encode_state(old), encode_state(new)
        sql = "UPDATE state SET value = ? WHERE scope = ? AND key = ? AND value = ?"
        return self._context.database.write(lambda tx: tx.run(sql, (after, self._scope, key, before))) > 0

    def list_keys(self) -> list[str]:
        """Return the keys of the scope."""
        rows = self._context.database.read(
            lambda tx: tx.rows("SELECT key FROM state WHERE scope = ? ORDER BY key", (self._scope,))
        )
        return [to_text(row[0]) for row in rows]

    def items(self) -> dict[str, Any]:
        """Return all values of the scope, by key."""
        rows = self._context.database.read(
            lambda tx: tx.rows("SELECT key, value FROM state WHERE scope = ? ORDER BY key", (self._scope,))
        )
        return {key: load_json(value, f"{self._scope} {key}") for key, value in rows}


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """The position that a client's history corresponds to: a conversation (None for a new one) and its last message."""

    conversation_id: str | None
    seq: int


class ClientHistories:
    """Map fingerprints of client-sent histories to positions, for clients that send no conversation id."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def get(self, fingerprint: str) -> HistoryPosition | None:
        sql = "SELECT conversation, seq FROM fingerprint WHERE print = ?"
        row = self._context.database.row(sql, (text(fingerprint),))
        return None if row is None else HistoryPosition(to_optional_text(row[0]), to_seq(row[1]))

    def put(self, fingerprint: str, position: HistoryPosition) -> None:
        """Store a position durably, replacing an earlier one."""
        values = (text(fingerprint), position.conversation_id, position.seq, self._context.clock.now_ms())
        self._context.database.write(
            lambda tx: tx.run(
                "INSERT INTO fingerprint (print, conversation, seq, kept_at) VALUES (?, ?, ?, ?) ON CONFLICT (print)"
                " DO UPDATE SET conversation = excluded.conversation, seq = excluded.seq, kept_at = excluded.kept_at",
                values,
            )
        )

    def purge(self, *, before_ms: int, limit: int) -> int:
        """Delete entries older than `before_ms` and all but the newest `limit`; return how many."""

        def work(tx: Transaction) -> int:
            old = tx.run("DELETE FROM fingerprint WHERE kept_at < ?", (before_ms,))
            # With fewer rows the subquery is NULL and nothing is deleted.
            return old + tx.run(
                "DELETE FROM fingerprint WHERE kept_at <="
                " (SELECT kept_at FROM fingerprint ORDER BY kept_at DESC LIMIT 1 OFFSET ?)",
                (limit,),
            )

        return self._context.database.write(work)
