"""Usage accounting: one immutable row per call, totals by session, day, model and task."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import Any

from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store.db.database import (
    Row,
    Transaction,
    Value,
    insert,
    text,
    to_float,
    to_int,
    to_optional_int,
    to_text,
    to_time_ms,
)
from perdure.store.encoding import load_payload
from perdure.store.queries import StoreContext, conversation_id_of, get_conversation
from perdure.store.records import CallRecord, Grouping, RouteRecord, StoredEvent, StoredUsage, Totals, UsageRow

_CLASSES = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
# Outcomes of compaction events that changed the prompt.
COMPACTED = ("compacted", "digest")
_BATCH = 400
# The last main call is among these; the others are summaries and the like.
_LAST_CALLS = 50
_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class RouteCacheUsage:
    """Prompt tokens of one provider and model, by cache class (read, written, uncached)."""

    route: RouteRecord
    usage: CanonicalUsage


@dataclass(frozen=True, slots=True)
class CompactionSavings:
    """One compaction: the tokens it removed from the prompt, and the later calls without them, by model."""

    removed_tokens: int
    cost_usd: float | None
    calls: tuple[tuple[RouteRecord, int], ...]


class Savings:
    """Totals of what prompt caching and compaction saved."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def cache_usage(self, *, since_ms: int = 0, visibility: Visibility = EVERYONE) -> list[RouteCacheUsage]:
        """Return prompt tokens by cache class for each provider and model."""
        sums = ", ".join(f"SUM(k.{c})" for c in _CLASSES)
        join, where, values = _visible_clause(visibility)
        sql = (
            f"SELECT k.provider, k.model, {sums} FROM call k{join} WHERE k.started_at >= ?{where}"
            " GROUP BY k.provider, k.model"
        )
        rows = self._context.database.read(lambda tx: tx.rows(sql, [since_ms, *values]))
        return [
            RouteCacheUsage(
                RouteRecord(provider, model),
                CanonicalUsage(
                    input_tokens=int(fresh),
                    cache_read_tokens=int(read),
                    cache_write_tokens=int(write),
                    cache_write_1h_tokens=int(hour),
                ),
            )
            for provider, model, fresh, read, write, hour in rows
        ]

    def compactions(self, *, since_ms: int = 0, visibility: Visibility = EVERYONE) -> list[CompactionSavings]:
        """Return every compaction since `since_ms` with the main calls between it and the next one."""

        def load(tx: Transaction) -> list[CompactionSavings]:
            join, where, values = _visible_clause(visibility)
            compacted = tx.rows(
                f"SELECT DISTINCT k.conversation FROM handoff k{join} WHERE k.created_at >= ?{where}",
                [since_ms, *values],
            )
            ids = [str(r[0]) for r in compacted]
            parts = [ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH)]
            return [savings for part in parts for savings in _batch_savings(tx, part, since_ms)]

        return self._context.database.read(load)


def prompt_sizes(compaction: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the prompt tokens before and after a compaction; older events only have the engine's figures."""
    for names in (("prompt_before", "prompt_after"), ("before", "after")):
        before, after = (compaction.get(name) for name in names)
        if isinstance(before, int) and isinstance(after, int):
            return before, after
    return None, None


def prompt_size_since(
    changes: Iterable[tuple[str, Mapping[str, Any], int]], *, since_ms: int, tokens: int
) -> int | None:
    """Return the prompt's size after the compactions and undos since the newest call; None if there was none.

    `changes` are kind, payload and time of all of them, oldest first; `tokens` is the size after that call.
    """
    size, has_changed = tokens, False
    standing: list[tuple[int, int]] = []
    for kind, payload, at_ms in changes:
        if kind == "undo":
            freed = standing.pop() if standing else (0, 0)
            change = freed[0] - freed[1]
        elif payload.get("outcome") in COMPACTED:
            before, after = prompt_sizes(payload)
            if before is None or after is None:
                continue
            standing.append((before, after))
            change = after - size
        else:
            continue
        if at_ms >= since_ms:
            size, has_changed = size + change, True
    return size if has_changed else None


def _visible_clause(visibility: Visibility) -> tuple[str, str, list[Value]]:
    user_key = visibility.stored_key
    if user_key is None:
        return "", "", []
    return " JOIN conversation c ON c.id = k.conversation", " AND c.user_key = ?", [text(user_key)]


def _batch_savings(tx: Transaction, conversations: Sequence[str], since_ms: int) -> Iterator[CompactionSavings]:
    placeholders = ", ".join("?" * len(conversations))
    events: dict[str, list[Row]] = {}
    for row in tx.rows(
        f"SELECT conversation, created_at, payload FROM event WHERE conversation IN ({placeholders})"
        " AND kind = 'compaction' AND created_at >= ? ORDER BY id",
        [*conversations, since_ms],
    ):
        events.setdefault(row[0], []).append(row)
    calls: dict[str, list[Row]] = {}
    for row in tx.rows(
        f"SELECT conversation, started_at, provider, model FROM call WHERE conversation IN ({placeholders})"
        " AND task = 'main' AND started_at >= ? ORDER BY id",
        [*conversations, since_ms],
    ):
        calls.setdefault(row[0], []).append(row)
    for conversation, rows in events.items():
        yield from _conversation_savings(rows, calls.get(conversation, []))


def _conversation_savings(events: Sequence[Row], calls: Sequence[Row]) -> Iterator[CompactionSavings]:
    starts = [row[1] for row in calls]
    payloads = [(at, load_payload(raw)) for _, at, raw in events]
    compactions = [(at, payload) for at, payload in payloads if payload.get("outcome") in COMPACTED]
    for (at, payload), (until, _) in pairwise([*compactions, (_NEVER, {})]):
        before, after = prompt_sizes(payload)
        removed = (before or 0) - (after or 0)
        calls_by_route: dict[RouteRecord, int] = {}
        for _, _, provider, model in calls[bisect_left(starts, at) : bisect_left(starts, until)]:
            route = RouteRecord(provider, model)
            calls_by_route[route] = calls_by_route.get(route, 0) + 1
        yield CompactionSavings(max(0, removed), payload.get("cost_usd"), tuple(calls_by_route.items()))


_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cache_write_1h_tokens",
)
_CALL = (
    f"session, turn, task, provider, model, api_mode, {', '.join(_COUNTS)}, reported, cost_usd, estimate_tokens,"
    " window_tokens, threshold_tokens, composition, verdict, started_at, ended_at, id"
)
_SUMS = (
    f"COUNT(*), {', '.join(f'SUM(k.{c})' for c in _COUNTS)}, SUM(k.reported), SUM(k.cost_usd),"
    " SUM(CASE WHEN k.cost_usd IS NULL THEN 1 ELSE 0 END), SUM(1 - k.reported),"
    " SUM(CASE WHEN k.reported = 0 THEN COALESCE(k.estimate_tokens, 0) ELSE 0 END)"
)
_DAY_MS = 86_400_000
# SQL of each grouping over a call `k` and its conversation `c`; a day is the number of days since 1970 in UTC.
_GROUPS: dict[Grouping, str] = {
    "day": f"k.started_at / {_DAY_MS}",
    "model": "k.model",
    "source": "c.source",
    "task": "k.task",
}


class Ledger:
    """Record model calls and events; total them by conversation, day, model, source and task."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def record_call(self, call: CallRecord) -> None:
        """Record a model call durably, so that its cost is counted even if the turn fails later."""
        self.record([call])

    def record_event(self, event: StoredEvent) -> None:
        self.record([event])

    def record(self, records: Sequence[CallRecord | StoredEvent]) -> None:
        """Record calls and events of one conversation in one transaction."""
        now = self._context.clock.now_ms()

        def work(tx: Transaction) -> None:
            insert_records(tx, conversation_id_of(tx, records[0].session_id), records, now_ms=now)

        if records:
            self._context.database.write(work)

    def calls(
        self, any_id: str, *, after_id: int = 0, before_id: int | None = None, limit: int | None = None
    ) -> list[CallRecord]:
        """Return a conversation's calls with after_id < id < before_id, oldest first; `limit` keeps the newest."""

        def load(tx: Transaction) -> list[Row]:
            sql = f"SELECT {_CALL} FROM call WHERE conversation = ? AND id > ?"
            values: list[Value] = [conversation_id_of(tx, any_id), after_id]
            for clause, value in ((" AND id < ?", before_id), (" ORDER BY id DESC LIMIT ?", limit)):
                if value is not None:
                    sql += clause
                    values.append(value)
            return tx.rows(sql if limit is not None else f"{sql} ORDER BY id DESC", values)

        return [_call(r) for r in reversed(self._context.database.read(load))]

    def context_usage(self, any_id: str) -> StoredUsage | None:
        """Return how full the context is by what was stored of it; None before the first main call."""
        calls = self.calls(any_id, limit=_LAST_CALLS)
        last = next((c for c in reversed(calls) if c.task == "main"), None)
        if last is None:
            return None
        tokens = last.usage.total_tokens or last.estimate_tokens or 0
        events = [e for kind in ("compaction", "undo") for e in self.events(any_id, kind=kind)]
        changes = ((e.kind, e.payload, e.created_at_ms) for e in sorted(events, key=lambda e: e.id))
        since = prompt_size_since(changes, since_ms=last.ended_at_ms, tokens=tokens)
        return StoredUsage(
            last.route.model,
            tokens if since is None else since,
            last.window_tokens,
            last.threshold_tokens,
            last.composition,
            is_changed=since is not None,
        )

    def events(
        self, any_id: str, *, kind: str | None = None, after_id: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        """Return a conversation's events with id > after_id, oldest first."""

        def load(tx: Transaction) -> list[Row]:
            values: list[Value] = [conversation_id_of(tx, any_id), after_id]
            narrowed = " AND kind = ?" if kind is not None else ""
            return tx.rows(
                "SELECT session, kind, payload, created_at, id FROM event WHERE conversation = ? AND id > ?"
                f"{narrowed} ORDER BY id LIMIT ?",
                [*values, *([kind] if kind is not None else []), limit],
            )

        return [
            StoredEvent(to_text(session), to_text(kind), load_payload(payload), to_time_ms(at), ident)
            for session, kind, payload, at, ident in self._context.database.read(load)
        ]

    def all_events(self, any_id: str) -> list[StoredEvent]:
        """Return every event of a conversation, oldest first."""
        return self.events(any_id, limit=2**31)

    def totals(self, any_id: str) -> Totals:
        """Return the totals of a conversation over all its sessions."""

        def load(tx: Transaction) -> Totals:
            owner = conversation_id_of(tx, any_id)
            sums = tx.rows(f"SELECT {_SUMS} FROM call k WHERE k.conversation = ?", (owner,))[0]
            began = tx.rows(
                "SELECT began_by, COUNT(*) FROM session WHERE conversation = ? AND began_by IN ('compression', 'undo')"
                " GROUP BY began_by",
                (owner,),
            )
            sessions = {to_text(kind): _to_int(count) for kind, count in began}
            totals = _totals(sums, compactions=sessions.get("compression", 0))
            return replace(totals, undone_compactions=sessions.get("undo", 0))

        return self._context.database.read(load)

    def totals_by_task(self, any_id: str) -> list[UsageRow]:
        """Return the totals of a conversation by task, the answers first, then the most expensive."""
        rows = self._context.database.read(
            lambda tx: tx.rows(
                f"SELECT k.task, {_SUMS} FROM call k WHERE k.conversation = ? GROUP BY 1",
                (conversation_id_of(tx, any_id),),
            )
        )
        groups = [UsageRow(to_text(task), _totals(sums)) for task, *sums in rows]
        return sorted(groups, key=lambda row: (row.group != "main", -(row.totals.cost_usd or 0), row.group))

    def totals_before_branch(self, any_id: str) -> Totals | None:
        """Return the totals of the conversations that a branch comes from, up to the branch; None for no branch."""

        def load(tx: Transaction) -> Totals | None:
            child = get_conversation(tx, conversation_id_of(tx, any_id))
            parts, values, visited = list[str](), list[Value](), {child.id}
            while child.kind == "branch" and child.parent_id is not None and child.parent_id not in visited:
                parts.append("(k.conversation = ? AND k.started_at <= ?)")
                values += [child.parent_id, child.created_at_ms]
                visited.add(child.parent_id)
                child = get_conversation(tx, child.parent_id)
            sql = f"SELECT {_SUMS} FROM call k WHERE {' OR '.join(parts)}"
            return _totals(tx.rows(sql, values)[0]) if parts else None

        return self._context.database.read(load)

    def unpriced_models(self, any_id: str) -> list[tuple[str, str]]:
        """Return provider and model of each route of a conversation with calls that have token counts and no price."""
        rows = self._context.database.read(
            lambda tx: tx.rows(
                "SELECT DISTINCT provider, model FROM call"
                " WHERE conversation = ? AND cost_usd IS NULL AND reported = 1 ORDER BY 1, 2",
                (conversation_id_of(tx, any_id),),
            )
        )
        return [(to_text(provider), to_text(model)) for provider, model in rows]

    def session_totals(self, session_id: str) -> Totals:
        """Return the totals of one session."""
        sums = self._context.database.read(
            lambda tx: tx.rows(
                f"SELECT {_SUMS} FROM call k WHERE k.conversation = ? AND k.session = ?",
                (conversation_id_of(tx, session_id), session_id),
            )
        )
        return _totals(sums[0])

    def usage(
        self, by: Grouping, *, since_ms: int = 0, until_ms: int | None = None, visibility: Visibility = EVERYONE
    ) -> list[UsageRow]:
        """Return totals over all visible conversations, one row per group, sorted by group."""
        where, values = ["k.started_at >= ?"], [since_ms]
        more: Sequence[Value] = ()
        if until_ms is not None:
            where.append("k.started_at < ?")
            values.append(until_ms)
        if (user_key := visibility.stored_key) is not None:
            where.append("c.user_key = ?")
            more = (text(user_key),)
        sql = (
            f"SELECT {_GROUPS[by]}, {_SUMS} FROM call k JOIN conversation c ON c.id = k.conversation"
            f" WHERE {' AND '.join(where)} GROUP BY 1 ORDER BY 1"
        )
        rows = self._context.database.read(lambda tx: tx.rows(sql, [*values, *more]))
        return [UsageRow(_group_name(by, group), _totals(sums)) for group, *sums in rows]

    def costliest(self, *, since_ms: int = 0, visibility: Visibility = EVERYONE, limit: int = 10) -> list[UsageRow]:
        """Return totals of the conversations that cost most, by their id, the most expensive first.

        Those whose calls were free, or have no known price, are left out.
        """
        user_key = visibility.stored_key
        where, values = ("", []) if user_key is None else (" AND c.user_key = ?", [text(user_key)])
        sql = (
            f"SELECT k.conversation, {_SUMS} FROM call k JOIN conversation c ON c.id = k.conversation"
            f" WHERE k.started_at >= ?{where} GROUP BY 1 HAVING SUM(k.cost_usd) > 0"
            " ORDER BY SUM(k.cost_usd) DESC, COUNT(*) DESC, 1 LIMIT ?"
        )
        rows = self._context.database.read(lambda tx: tx.rows(sql, [since_ms, *values, limit]))
        return [UsageRow(to_text(group), _totals(sums)) for group, *sums in rows]


def insert_records(
    tx: Transaction, conversation_id: str, records: Sequence[CallRecord | StoredEvent], *, now_ms: int
) -> None:
    """Insert calls and events in the given order; those without a time get `now_ms`."""
    for record in records:
        if isinstance(record, StoredEvent):
            insert_event(tx, conversation_id, replace(record, created_at_ms=record.created_at_ms or now_ms))
        else:
            started, ended = record.started_at_ms or now_ms, record.ended_at_ms or now_ms
            insert_call(tx, conversation_id, replace(record, started_at_ms=started, ended_at_ms=ended))


def insert_call(tx: Transaction, conversation_id: str, call: CallRecord) -> None:
    values: dict[str, Value] = {
        "conversation": conversation_id,
        "session": call.session_id,
        "turn": call.turn_id,
        "task": call.task,
        "provider": call.route.provider,
        "model": call.route.model,
        "api_mode": call.route.api_mode,
        **{name: getattr(call.usage, name) for name in _COUNTS},
        "reported": int(call.usage.reported),
        "cost_usd": call.cost_usd,
        "estimate_tokens": call.estimate_tokens,
        "window_tokens": call.window_tokens,
        "threshold_tokens": call.threshold_tokens,
        "composition": json.dumps(dict(call.composition)),
        "verdict": text(call.verdict),
        "started_at": call.started_at_ms,
        "ended_at": call.ended_at_ms,
    }
    insert(tx, "call", values)


def insert_event(tx: Transaction, conversation_id: str, event: StoredEvent) -> None:
    values: dict[str, Value] = {
        "conversation": conversation_id,
        "session": event.session_id,
        "kind": event.kind,
        # ASCII only: JSON escapes carry characters that a database would reject.
        "payload": json.dumps(dict(event.payload), ensure_ascii=True, default=str),
        "created_at": event.created_at_ms,
    }
    insert(tx, "event", values)


def _group_name(by: Grouping, group: object) -> str:
    if by != "day":
        return str(group)
    return date.fromordinal(date(1970, 1, 1).toordinal() + int(str(group))).isoformat()


def _call(row: Row) -> CallRecord:
    session, turn, task, provider, model, api_mode = map(to_text, row[:6])
    counts, figures = [to_int(count) for count in row[6:12]], row[12:]
    reported, cost, estimate, window, threshold, composition, verdict, started, ended, number = figures
    usage = CanonicalUsage(**dict(zip(_COUNTS, counts, strict=True)), reported=bool(reported))
    return CallRecord(
        session, task, turn, RouteRecord(provider, model, api_mode), usage, to_float(cost), to_optional_int(estimate),
        to_optional_int(window), to_optional_int(threshold), load_payload(composition), to_text(verdict),
        to_time_ms(started), to_time_ms(ended), number,
    )  # fmt: skip


def _totals(sums: Sequence[object], *, compactions: int = 0) -> Totals:
    calls, *counts = sums[:7]
    reported, cost, unpriced, unreported, estimate = sums[7:]
    whole = [_to_int(c) for c in counts]
    usage = CanonicalUsage(**dict(zip(_COUNTS, whole, strict=True)), reported=bool(_to_int(reported)))
    cost_usd = None if cost is None else to_sum(cost)
    return Totals(
        _to_int(calls), usage, cost_usd, _to_int(unpriced), _to_int(unreported), _to_int(estimate), compactions
    )


def _to_int(value: object) -> int:
    """Convert a SUM to int: it is NULL over no rows, a Decimal in PostgreSQL, and a float over damaged values."""
    return 0 if value is None else int(to_sum(value))


def to_sum(value: object) -> float | int:
    try:
        return int(str(value))
    except ValueError:
        return float(str(value))
