"""What caches and compactions spared, as far as the ledger can tell: the counts, not yet the money."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store.backing import StoreContext
from perdure.store.codec import load_payload
from perdure.store.database import Row, Transaction, Value, text
from perdure.store.records import RouteRecord

_CLASSES = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
# How a compaction that was carried out says so.
MADE = ("compacted", "digest")
_BATCH = 400
_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class CachedOn:
    """What the prompts of one route were made of."""

    route: RouteRecord
    usage: CanonicalUsage


@dataclass(frozen=True, slots=True)
class Spared:
    """One compaction: the tokens it took out of the prompt, and the calls that did not carry them, by route."""

    removed_tokens: int
    cost_usd: float | None
    calls: tuple[tuple[RouteRecord, int], ...]


class Savings:
    """Sums over the ledger for one user or for all."""

    def __init__(self, backing: StoreContext) -> None:
        self._backing = backing

    def cached(self, *, since_ms: int = 0, visibility: Visibility = EVERYONE) -> list[CachedOn]:
        """Prompt tokens by class, for each provider and model."""
        sums = ", ".join(f"SUM(k.{c})" for c in _CLASSES)
        joined, narrowed, values = _narrowed(visibility)
        sql = (
            f"SELECT k.provider, k.model, {sums} FROM call k{joined} WHERE k.started_at >= ?{narrowed}"
            " GROUP BY k.provider, k.model"
        )
        rows = self._backing.database.read(lambda tx: tx.rows(sql, [since_ms, *values]))
        return [
            CachedOn(
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

    def compactions(self, *, since_ms: int = 0, visibility: Visibility = EVERYONE) -> list[Spared]:
        """Every compaction since a moment, with the main calls made between it and the next one."""

        def load(tx: Transaction) -> list[Spared]:
            joined, narrowed, values = _narrowed(visibility)
            compacted = tx.rows(
                f"SELECT DISTINCT k.conversation FROM handoff k{joined} WHERE k.created_at >= ?{narrowed}",
                [since_ms, *values],
            )
            ids = [str(r[0]) for r in compacted]
            parts = [ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH)]
            return [spared for part in parts for spared in _spared(tx, part, since_ms)]

        return self._backing.database.read(load)


def prompt_sizes(compaction: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The prompt before and after, from a compaction's event: by the counter, in older events by the engine alone."""
    for names in (("prompt_before", "prompt_after"), ("before", "after")):
        before, after = (compaction.get(name) for name in names)
        if isinstance(before, int) and isinstance(after, int):
            return before, after
    return None, None


def _narrowed(visibility: Visibility) -> tuple[str, str, list[Value]]:
    user_key = visibility.stored_key
    if user_key is None:
        return "", "", []
    return " JOIN conversation c ON c.id = k.conversation", " AND c.user_key = ?", [text(user_key)]


def _spared(tx: Transaction, conversations: Sequence[str], since_ms: int) -> Iterator[Spared]:
    marks = ", ".join("?" * len(conversations))
    events: dict[str, list[Row]] = {}
    for row in tx.rows(
        f"SELECT conversation, created_at, payload FROM event WHERE conversation IN ({marks}) AND kind = 'compaction'"
        " AND created_at >= ? ORDER BY id",
        [*conversations, since_ms],
    ):
        events.setdefault(row[0], []).append(row)
    calls: dict[str, list[Row]] = {}
    for row in tx.rows(
        f"SELECT conversation, started_at, provider, model FROM call WHERE conversation IN ({marks})"
        " AND task = 'main' AND started_at >= ? ORDER BY id",
        [*conversations, since_ms],
    ):
        calls.setdefault(row[0], []).append(row)
    for conversation, happened in events.items():
        yield from _of_conversation(happened, calls.get(conversation, []))


def _of_conversation(happened: Sequence[Row], calls: Sequence[Row]) -> Iterator[Spared]:
    starts = [row[1] for row in calls]
    told = [(at, payload) for _, at, raw in happened if (payload := load_payload(raw)).get("outcome") in MADE]
    for (at, payload), (until, _) in pairwise([*told, (_NEVER, {})]):
        before, after = prompt_sizes(payload)
        removed = (before or 0) - (after or 0)
        made: dict[RouteRecord, int] = {}
        for _, _, provider, model in calls[bisect_left(starts, at) : bisect_left(starts, until)]:
            made[RouteRecord(provider, model)] = made.get(RouteRecord(provider, model), 0) + 1
        yield Spared(max(0, removed), payload.get("cost_usd"), tuple(made.items()))
