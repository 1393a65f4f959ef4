"""`/usage` and `/insights [days]`: what was used and what it cost."""

from __future__ import annotations

from perdure.commands.command import Command, CommandContext, CommandResult
from perdure.commands.figures import bar, gauge_line, money, share, tokens, usage_lines
from perdure.core.clock import SystemClock
from perdure.core.visibility import Visibility
from perdure.store.records import Grouping, Totals, UsageRow
from perdure.store.store import SessionStore

_DAY_MS = 86_400_000
_GROUPS: tuple[Grouping, ...] = ("day", "model", "source", "task")
MOST_DAYS = 36_500
NOTHING_YET = "Nothing has been said yet."


def usage(surface: CommandContext, argument: str) -> CommandResult:
    """This conversation: tokens by class, cost, cache, gauge, compactions."""
    session_id = surface.agent.session_id
    if session_id is None:
        return CommandResult(NOTHING_YET)
    totals = surface.store.ledger.totals(session_id)
    return CommandResult("\n".join([*totals_lines(totals), "", gauge_line(surface.agent.gauge)]))


def totals_lines(totals: Totals) -> list[str]:
    """Tokens by class, cost, cache hit rate, calls, compactions, and what ended unreported."""
    lines = [
        *usage_lines(totals.usage),
        f"{'cost':<18} {_cost(totals):>12}",
        f"{'cache hit rate':<18} {share(totals.usage.cache_hit_rate):>12}",
        f"{'model calls':<18} {totals.calls:>12}",
        f"{'compactions':<18} {totals.compactions:>12}",
    ]
    if totals.unreported_calls:
        about = tokens(totals.unreported_estimate_tokens)
        lines.append(f"{totals.unreported_calls} calls ended unreported, about {about} tokens")
    return lines


def insights(surface: CommandContext, argument: str) -> CommandResult:
    """All conversations of the last days, by day, model, surface and task."""
    if argument and not (argument.isdecimal() and 0 < int(argument) <= MOST_DAYS):
        return CommandResult("/insights takes a number of days, e.g. /insights 7", "error")
    return CommandResult(insights_text(surface.store, int(argument or 30), visibility=surface.visibility))


def insights_text(store: SessionStore, days: int, *, visibility: Visibility) -> str:
    """Totals of the last days; fresh input, what was read from and written to the cache, and output apart."""
    since_ms = SystemClock().now_ms() - days * _DAY_MS
    parts = []
    for group in _GROUPS:
        rows = store.ledger.usage(group, since_ms=since_ms, visibility=visibility)
        if rows:
            parts.append(f"by {group}\n{_table(rows)}")
    return "\n\n".join([f"The last {days} days", *parts]) if parts else f"Nothing in the last {days} days."


def _table(rows: list[UsageRow]) -> str:
    most = max(r.totals.usage.input_tokens + r.totals.usage.output_tokens for r in rows) or 1
    lines = [f"  {'':<20} {'fresh':>11} {'from cache':>11} {'to cache':>10} {'output':>10} {'cost':>10}"]
    for row in rows:
        used = row.totals.usage
        lines.append(
            f"  {(row.group or '–')[:20]:<20} {tokens(used.input_tokens):>11} {tokens(used.cache_read_tokens):>11} "
            f"{tokens(used.cache_write_tokens):>10} {tokens(used.output_tokens):>10} {_cost(row.totals):>10} "
            f"{bar(used.input_tokens + used.output_tokens, most, width=8)}"
        )
    return "\n".join(lines)


def _cost(totals: Totals) -> str:
    known = money(totals.cost_usd)
    return f"{known}+" if totals.cost_usd is not None and totals.unpriced_calls else known


USAGE = Command("usage", "/usage", "tokens, cost and cache of this conversation", usage)
INSIGHTS = Command("insights", "/insights [days]", "totals by day, model, surface and task", insights)
