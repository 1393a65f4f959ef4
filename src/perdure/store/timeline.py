"""Page through a conversation's messages, and map events and calls to positions among them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.core.messages import Entry
from perdure.store.db.database import Transaction, to_float, to_int, to_text, to_time_ms
from perdure.store.encoding import decode_or_placeholder, load_payload, unpack_or_empty
from perdure.store.queries import Lineage, StoreContext, conversation_id_of, get_conversation, lineage_of, segments_of
from perdure.store.records import Conversation, Span, StoredEvent, TimelineEntry, TimelinePage, ToolRun

# Later than any timestamp.
_NEVER = 2**62
_MAX_PAGE = 1_000


class Timeline:
    """The complete log in order of seq, including handoffs and the messages a branch shares."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def page(self, any_id: str, *, before_seq: int | None = None, limit: int = 100) -> TimelinePage:
        """Return the newest messages, or the newest before `before_seq`, oldest first."""

        def load(tx: Transaction) -> TimelinePage:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            end = conversation.last_seq + 1 if before_seq is None else min(before_seq, conversation.last_seq + 1)
            span = Span(max(1, end - _clamp(limit)), end - 1)
            entries = _read_page(tx, lineage_of(tx, conversation), span)
            return TimelinePage(conversation.id, entries, conversation.last_seq)

        return self._context.database.read(load)

    def after(self, any_id: str, seq: int, *, limit: int = 100) -> TimelinePage:
        """Return the messages after `seq`, oldest first, for a client that is up to date until there."""

        def load(tx: Transaction) -> TimelinePage:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            start = max(0, seq) + 1
            span = Span(start, min(conversation.last_seq, start + _clamp(limit) - 1))
            return TimelinePage(
                conversation.id, _read_page(tx, lineage_of(tx, conversation), span), conversation.last_seq
            )

        return self._context.database.read(load)

    def bodies(self, any_id: str, span: Span) -> list[tuple[int, str, bytes]]:
        """Return raw messages as (seq, kind, JSON), for scanning many without decoding them."""

        def load(tx: Transaction) -> list[tuple[int, str, bytes]]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            return [
                (seq, to_text(kind), unpack_or_empty(body, encoding))
                for segment in segments_of(lineage_of(tx, conversation), span)
                for seq, kind, body, encoding in tx.rows(
                    "SELECT seq, kind, body, encoding FROM message WHERE conversation = ? AND seq BETWEEN ? AND ?"
                    " ORDER BY seq",
                    segment,
                )
            ]

        return self._context.database.read(load)

    def last_seqs_at(self, any_id: str, times_ms: Sequence[int]) -> list[int]:
        """Return, for each timestamp, the seq of the newest message at that time, or 0."""
        if not times_ms:
            return []

        def load(tx: Transaction) -> list[tuple[int, int]]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            whole = Span(1, conversation.last_seq)
            return [row for segment in segments_of(lineage_of(tx, conversation), whole) for row in _times(tx, segment)]

        rows = self._context.database.read(load)
        times = [at for _, at in rows]
        return [rows[at - 1][0] if (at := bisect_right(times, moment)) else 0 for moment in times_ms]

    def events_between(self, any_id: str, span: Span, *, limit: int = 2_000) -> list[tuple[int, StoredEvent]]:
        """Return the events of a span, each with the seq of the message before it; oldest first, at most `limit`.

        Events before the first message belong to a span that starts with it.
        """

        def load(tx: Transaction) -> list[tuple[int, StoredEvent]]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            events: list[tuple[int, StoredEvent]] = []
            for owner, lo, hi in segments_of(lineage_of(tx, conversation), span):
                events += _events_in(tx, conversation, owner, Span(lo, hi), limit - len(events))
            return events

        return self._context.database.read(load)

    def failed_results(self, any_id: str, *, limit: int = 2_000) -> list[TimelineEntry]:
        """Return the first results of tool calls that failed or were refused, oldest first."""

        def load(tx: Transaction) -> list[TimelineEntry]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            whole = Span(1, conversation.last_seq)
            condition = " AND tool_state IN ('failed', 'refused')"
            return list(_read_page(tx, lineage_of(tx, conversation), whole, condition=condition, limit=limit))

        return self._context.database.read(load)

    def tool_runs(self, any_id: str, span: Span) -> dict[tuple[int, str], ToolRun]:
        """Return the tool runs of a span, keyed by result timestamp and call id.

        The id alone is not unique: some providers restart numbering in every response.
        """

        def load(tx: Transaction) -> dict[tuple[int, str], ToolRun]:
            conversation = get_conversation(tx, conversation_id_of(tx, any_id))
            runs: dict[tuple[int, str], ToolRun] = {}
            for segment in segments_of(lineage_of(tx, conversation), span):
                times = [at for _, at in _times(tx, segment)]
                if times:
                    runs.update(_tool_runs(tx, segment[0], min(times), max(times)))
            return runs

        return self._context.database.read(load)


def _clamp(limit: int) -> int:
    return max(1, min(limit, _MAX_PAGE))


def _read_page(
    tx: Transaction, lineage: Lineage, span: Span, *, condition: str = "", limit: int = _NEVER
) -> tuple[TimelineEntry, ...]:
    return tuple(
        TimelineEntry(
            Entry(seq, decode_or_placeholder(body, encoding, kind, seq=seq, tool_state=state), to_time_ms(created_at)),
            to_text(session),
            bool(chained),
        )
        for segment in segments_of(lineage, span)
        for seq, body, encoding, kind, created_at, session, chained, state in tx.rows(
            "SELECT seq, body, encoding, kind, created_at, session, chained, tool_state FROM message"
            f" WHERE conversation = ? AND seq BETWEEN ? AND ?{condition} ORDER BY seq LIMIT ?",
            (*segment, limit),
        )
    )


def _times(tx: Transaction, segment: tuple[str, int, int]) -> list[tuple[int, int]]:
    sql = "SELECT seq, created_at FROM message WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return [(seq, to_time_ms(at)) for seq, at in tx.rows(sql, segment)]


def _events_in(
    tx: Transaction, conversation: Conversation, owner: str, span: Span, limit: int
) -> list[tuple[int, StoredEvent]]:
    messages = _times(tx, (owner, span.lo, span.hi + 1))
    following = messages.pop()[1] if messages and messages[-1][0] > span.hi else None
    if not messages:
        return []
    is_first = span.lo == (conversation.fork_seq + 1 if owner == conversation.id else 1)
    since = 0 if is_first else messages[0][1]
    until = following if following is not None else _NEVER if owner == conversation.id else conversation.created_at_ms
    rows = tx.rows(
        "SELECT session, kind, payload, created_at, id FROM event WHERE conversation = ? AND created_at >= ?"
        " AND created_at < ? AND kind <> 'tools' ORDER BY id LIMIT ?",
        (owner, since, until, max(0, limit)),
    )
    times = [at for _, at in messages]
    return [
        (
            messages[max(0, bisect_right(times, at) - 1)][0],
            StoredEvent(to_text(session), to_text(kind), load_payload(payload), at, number),
        )
        for session, kind, payload, at, number in rows
    ]


def _tool_runs(tx: Transaction, owner: str, since: int, until: int) -> Iterator[tuple[tuple[int, str], ToolRun]]:
    rows = tx.rows(
        "SELECT created_at, payload FROM event WHERE conversation = ? AND kind = 'tools'"
        " AND created_at BETWEEN ? AND ?",
        (owner, since, until),
    )
    for at, raw in rows:
        payload: Mapping[str, Any] = load_payload(raw)
        seconds, states, codes = (_mapping(payload.get(name)) for name in ("seconds", "states", "exit_codes"))
        for call_id in {**seconds, **states}:
            took, state, code = seconds.get(call_id), states.get(call_id), codes.get(call_id)
            yield (
                (at, str(call_id)),
                ToolRun(
                    to_float(took),
                    str(state) if state is not None else None,
                    to_int(code) if code is not None else None,
                ),
            )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
