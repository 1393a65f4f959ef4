"""Usage and cost by day, conversation, model, source and task, and what caching and compaction saved.

Saved by the cache: for each model, what its cache reads would have cost as fresh input, less what they did cost, less
what its cache writes cost above fresh input.

Saved by compaction, an estimate: each compaction took `before − after` tokens out of the prompt; every main call from
then to the next compaction (or to the end) did not carry them. In money they are counted at the price of a cache read
where the model has one (a prompt that long would have been cached), else at that of fresh input; what the handoff
itself cost is taken off. Models without a known price are left out; where no price is known at all it is null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.core.usage import CanonicalUsage
from perdure.models.catalog import Catalog, Prices
from perdure.store.ledger import CompactionSavings, RouteCacheUsage
from perdure.store.listing import ConversationFilter
from perdure.store.records import Grouping, RouteRecord, Totals, UsageRow
from perdure.web.schemas import ConversationUsage, TotalsRow, UsageGroup, UsageView
from perdure.web.scoped_store import ScopedStore
from perdure.web.views.conversations import row_of

DAY_MS = 86_400_000
_PER_MTOK = 1_000_000
_MOST_COSTLY = 10

PricesOf = Callable[[RouteRecord], Prices]


def usage_view(scope: ScopedStore, *, days: int) -> UsageView:
    """Return the last `days` days, today included, in UTC."""
    since = (scope.clock.now_ms() // DAY_MS - days + 1) * DAY_MS
    ledger, savings, prices = scope.store.ledger, scope.store.savings, prices_by(scope.catalog)

    def usage_by(by: Grouping) -> list[UsageRow]:
        return ledger.usage(by, since_ms=since, visibility=scope.visibility)

    by_day, spared = usage_by("day"), savings.compactions(since_ms=since, visibility=scope.visibility)
    return UsageView(
        days=days,
        by_day=_groups(by_day),
        by_model=_groups(_by_cost(usage_by("model"))),
        by_source=_groups(_by_cost(usage_by("source"))),
        by_task=_groups(_by_cost(usage_by("task"))),
        costliest=_costliest(scope, since),
        totals=TotalsRow.model_validate(_sum([r.totals for r in by_day], compactions=len(spared))),
        saved_by_cache_usd=saved_by_cache(savings.cache_usage(since_ms=since, visibility=scope.visibility), prices),
        saved_by_compaction_tokens=sum(s.removed_tokens * calls for s in spared for _, calls in s.calls),
        saved_by_compaction_usd=saved_by_compaction(spared, prices),
    )


def _costliest(scope: ScopedStore, since_ms: int) -> list[ConversationUsage]:
    rows = scope.store.ledger.costliest(since_ms=since_ms, visibility=scope.visibility, limit=_MOST_COSTLY)
    filter_ = ConversationFilter(scope.visibility, ids=tuple(r.group for r in rows))
    page, _ = scope.store.listing.page(filter_, limit=_MOST_COSTLY)
    titles = {listed.conversation.id: row_of(listed).title for listed in page}
    return [
        ConversationUsage(id=r.group, title=titles[r.group], totals=TotalsRow.model_validate(r.totals))
        for r in rows
        if r.group in titles
    ]


def _by_cost(rows: Sequence[UsageRow]) -> list[UsageRow]:
    return sorted(rows, key=lambda r: (-(r.totals.cost_usd or 0.0), -r.totals.usage.total_tokens, r.group))


def prices_by(catalog: Catalog) -> PricesOf:
    """Return a function that looks up the prices of a provider and model, each once."""
    price_cache: dict[RouteRecord, Prices] = {}

    def of(route: RouteRecord) -> Prices:
        if route not in price_cache:
            price_cache[route] = catalog.facts(route.provider or None, route.model).prices
        return price_cache[route]

    return of


def saved_by_cache(cached: Sequence[RouteCacheUsage], prices: PricesOf) -> float | None:
    """Return the dollars that prompt caching saved; None if nothing was saved as far as prices are known."""
    used = [c for c in cached if c.usage.cache_read_tokens or c.usage.cache_write_tokens]
    savings = [_cache_saving(c.usage, prices(c.route)) for c in used]
    priced = [saved for saved in savings if saved is not None]
    # Beside models of unknown price, those that are free prove nothing.
    is_unknown = not priced or (not any(priced) and len(priced) < len(savings))
    return None if is_unknown else sum(priced)


def saved_by_compaction(spared: Sequence[CompactionSavings], prices: PricesOf) -> float | None:
    """Return the dollars that compaction saved; None if no spared call has a known price."""
    saved, is_known = 0.0, False
    for compaction in spared:
        for route, calls in compaction.calls:
            price = prices(route)
            each = price.cache_read_per_mtok if price.cache_read_per_mtok is not None else price.input_per_mtok
            if each is not None:
                is_known = True
                saved += compaction.removed_tokens * calls * each / _PER_MTOK
        saved -= compaction.cost_usd or 0.0
    return saved if is_known else None


def _cache_saving(usage: CanonicalUsage, price: Prices) -> float | None:
    fresh, read = price.input_per_mtok, price.cache_read_per_mtok
    if fresh is None or read is None or not (usage.cache_read_tokens or usage.cache_write_tokens):
        return None
    write = price.cache_write_per_mtok if price.cache_write_per_mtok is not None else fresh
    hour = price.cache_write_1h_per_mtok if price.cache_write_1h_per_mtok is not None else write
    short_writes = usage.cache_write_tokens - usage.cache_write_1h_tokens
    extra = short_writes * (write - fresh) + usage.cache_write_1h_tokens * (hour - fresh)
    return (usage.cache_read_tokens * (fresh - read) - extra) / _PER_MTOK


def _groups(rows: Sequence[UsageRow]) -> list[UsageGroup]:
    return [UsageGroup.model_validate(row) for row in rows]


def _sum(parts: Sequence[Totals], *, compactions: int) -> Totals:
    costs = [t.cost_usd for t in parts if t.cost_usd is not None]
    return Totals(
        calls=sum(t.calls for t in parts),
        usage=sum((t.usage for t in parts), CanonicalUsage(reported=False)),
        cost_usd=sum(costs) if costs else None,
        unpriced_calls=sum(t.unpriced_calls for t in parts),
        unreported_calls=sum(t.unreported_calls for t in parts),
        unreported_estimate_tokens=sum(t.unreported_estimate_tokens for t in parts),
        compactions=compactions,
    )
