"""Format numbers for display, the same on every surface: tokens, money, shares, bars."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime

from perdure.agent.agent import ConversationAgent
from perdure.agent.context_usage import ContextUsage
from perdure.core.errors import PerdureError
from perdure.core.usage import CanonicalUsage
from perdure.store.records import Totals

# The head of a message in an opened address: `[m:12 · user · 2026-11-16 16:48 UTC]`.
_MESSAGE_TIME = re.compile(
    r"^(\[m:\d+ · [^\]\n]{1,80} · )(\d{4}-\d\d-\d\d \d\d:\d\d) UTC(?=\]| · answers )", re.MULTILINE
)
_FULL, _EMPTY, _MARK = "█", "░", "│"
# Eighths of a cell: a small part is seen, and not seen larger than it is.
_EIGHTHS = "▏▎▍▌▋▊▉"


def tokens(n: int) -> str:
    return f"{n:,}"


def short_tokens(n: int) -> str:
    """Format a token count in at most seven characters: exact below a million, then `1.23M` or `45.6G`."""
    if n < 1_000_000:
        return tokens(n)
    value, unit = (n / 1_000_000, "M") if n < 1_000_000_000 else (n / 1_000_000_000, "G")
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}{unit}"


def count(n: int, noun: str) -> str:
    """Format a number with its noun: `1 message`, `2 messages`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def money(usd: float | None) -> str:
    """Format a cost; an unknown price is shown as unknown, never as 0."""
    if usd is None:
        return "unknown"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def total_cost(totals: Totals) -> str:
    """Format the cost of several calls: `$0.0123+` where some have no known price, `unknown` where the rest is free."""
    if not totals.calls:
        return money(0.0)
    amount = money(totals.least_cost_usd)
    return f"{amount}+" if totals.least_cost_usd is not None and totals.unpriced_calls else amount


def when(ms: int) -> str:
    """Format a timestamp in the local time zone; 0 is shown as unknown."""
    if ms <= 0:
        return f"{'unknown time':<16}"
    return datetime.fromtimestamp(ms / 1_000).astimezone().strftime("%Y-%m-%d %H:%M")


def short_when(ms: int) -> str:
    """Format a timestamp in eleven columns: `today 16:48`, `11-16 16:48`, or the day of another year."""
    if ms <= 0:
        return f"{'unknown':<11}"
    moment, today = datetime.fromtimestamp(ms / 1_000).astimezone(), datetime.now().astimezone()
    if moment.date() == today.date():
        return moment.strftime("today %H:%M")
    return moment.strftime("%m-%d %H:%M" if moment.year == today.year else "%Y-%m-%d ")


def local_times(text: str) -> str:
    """Convert the UTC times in the text of an opened address to the local time zone."""

    def localize(match: re.Match[str]) -> str:
        moment = datetime.strptime(match[2], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        return f"{match[1]}{when(int(moment.timestamp() * 1_000))}"

    return _MESSAGE_TIME.sub(localize, text)


def share(part: float | None) -> str:
    return "–" if part is None else f"{part:.0%}"


def bar(value: int, whole: int, *, width: int = 30, mark: int | None = None) -> str:
    """Draw a bar for `value` of `whole`; `mark` adds a vertical line, such as the compaction threshold."""
    eighths = min(8 * width, max(value > 0, round(8 * width * value / whole))) if whole else 0
    filled, rest = divmod(eighths, 8)
    cells = [_FULL] * filled + [_EIGHTHS[rest - 1]] * bool(rest)
    cells += [_EMPTY] * (width - len(cells))
    if mark is not None and whole:
        cells[min(width - 1, round(width * mark / whole))] = _MARK
    return "".join(cells)


def measure_usage(agent: ConversationAgent) -> ContextUsage:
    """Return the context usage; if the window is not known yet, resolve it, which may query the endpoint once."""
    gauge = agent.gauge
    if gauge.window is None or sum(gauge.composition.values()) != gauge.tokens:
        with contextlib.suppress(PerdureError):  # a turn is just beginning: what is known so far is shown
            return agent.measure()
    return agent.gauge


def gauge_line(gauge: ContextUsage) -> str:
    """Format context usage as one line: `████░░│░░ 12,345 of 32,000 tokens (39%), compacts at 16,000`."""
    if gauge.window is None:
        return f"{tokens(gauge.tokens)} tokens; the window is known after the first message"
    drawn = bar(gauge.tokens, gauge.window, mark=gauge.threshold)
    window = f"~{tokens(gauge.window)} (assumed)" if gauge.is_assumed else tokens(gauge.window)
    line = f"{drawn} {tokens(gauge.tokens)} of {window} tokens ({share(gauge.tokens / gauge.window)})"
    return f"{line}, compacts at {tokens(gauge.threshold)}" if gauge.threshold else line


def usage_lines(usage: CanonicalUsage) -> list[str]:
    """Format token usage with each class on its own line, so that cache reads do not inflate a total."""
    rows = [
        ("input, fresh", usage.input_tokens),
        ("input, from cache", usage.cache_read_tokens),
        ("input, to cache", usage.cache_write_tokens),
        ("output", usage.output_tokens),
    ]
    if usage.reasoning_tokens:
        rows.append(("  of it reasoning", usage.reasoning_tokens))
    return [f"{name:<18} {tokens(n):>12}" for name, n in rows]
