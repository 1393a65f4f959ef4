"""Figures of conversations for list views: cost, tokens, context usage, compactions and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.store.db.database import Row, Transaction, to_optional_int, to_text, to_time_ms
from perdure.store.encoding import load_payload
from perdure.store.ledger import prompt_size_since, to_sum

OrderKey = Literal["updated", "messages", "cost", "tokens", "context", "compactions", "failures"]

_TOKENS = "input_tokens + cache_read_tokens + cache_write_tokens + output_tokens"


def _occurrences(member: str) -> str:
    """Count a JSON member's value in a payload; quotes inside a string are escaped, so that no text can pose as one."""
    return f"(LENGTH(payload) - LENGTH(REPLACE(payload, '{member}', ''))) / {len(member)}"


FailureKind = Literal[
    "failed_turns", "model_refusals", "stopped_turns", "provider_errors", "failed_tool_calls", "refused_tool_calls"
]
# What each event adds to each count of failures. A batch's event has the state of each call: `"<call id>": "failed"`.
_FAILURES: Mapping[FailureKind, Mapping[str, str]] = {
    "failed_turns": {"turn_failed": "1"},
    "model_refusals": {"model_refused": "1"},
    "stopped_turns": {"turn_stopped": "1", "partial_reply": _occurrences('"why": "interrupted"')},
    "provider_errors": {"recovery": "1"},
    "failed_tool_calls": {"tools": _occurrences(': "failed"')},
    "refused_tool_calls": {"tools": _occurrences(': "refused"')},
}
_FAILURE_EVENTS = ", ".join(f"'{kind}'" for kind in sorted({k for counts in _FAILURES.values() for k in counts}))


def _count_sql(kind: FailureKind) -> str:
    cases = " ".join(f"WHEN kind = '{event}' THEN {amount}" for event, amount in _FAILURES[kind].items())
    return f"SUM(CASE {cases} ELSE 0 END)"


def failing_sql(kinds: Sequence[FailureKind]) -> str:
    """Return a query for the conversations with a failure of any of these kinds."""
    counts = " + ".join(_count_sql(kind) for kind in kinds)
    return f"SELECT conversation FROM event WHERE kind IN ({_FAILURE_EVENTS}) GROUP BY conversation HAVING {counts} > 0"


_NEWEST_MAIN = "SELECT MAX(id) AS newest FROM call WHERE task = 'main'{where} GROUP BY conversation"
# The figure each order sorts by, per conversation.
ORDER_SQL: Mapping[OrderKey, str] = {
    "cost": "SELECT conversation, SUM(cost_usd) AS figure FROM call GROUP BY conversation",
    "tokens": f"SELECT conversation, SUM({_TOKENS}) AS figure FROM call GROUP BY conversation",
    # Grouped, although there is one row each: a planner may merge a plain subquery into the list and repeat it per row.
    "context": f"SELECT k.conversation, MAX(({_TOKENS}) * 1.0 / NULLIF(window_tokens, 0)) AS figure FROM call k"
    f" JOIN ({_NEWEST_MAIN.format(where='')}) n ON n.newest = k.id GROUP BY k.conversation",
    "compactions": "SELECT conversation, COUNT(*) AS figure FROM session WHERE began_by = 'compression'"
    " GROUP BY conversation",
    # A turn without an answer weighs more than any number of tool calls.
    "failures": f"SELECT conversation, 1000000 * ({_count_sql('failed_turns')} + {_count_sql('model_refusals')})"
    f" + {' + '.join(_count_sql(kind) for kind in list(_FAILURES)[2:])} AS figure FROM event"
    f" WHERE kind IN ({_FAILURE_EVENTS}) GROUP BY conversation",
}


@dataclass(frozen=True, slots=True)
class ConversationFigures:
    """Cost, tokens, context usage, compactions and failures of a conversation.

    `cost_usd` excludes the `unpriced_calls`.
    """

    calls: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    unpriced_calls: int = 0
    # Those of them without token counts; the others have no known price.
    unreported_calls: int = 0
    # The size of the context after the newest call or compaction, and the model's window.
    context_tokens: int | None = None
    window_tokens: int | None = None
    # The model of the newest call; "" before the first.
    model: str = ""
    compactions: int = 0
    failed_turns: int = 0
    # Answers that the model or the provider's filter declined to give.
    model_refusals: int = 0
    stopped_turns: int = 0
    # Errors after which the turn went on.
    provider_errors: int = 0
    failed_tool_calls: int = 0
    refused_tool_calls: int = 0


def load_figures(tx: Transaction, ids: Sequence[str]) -> dict[str, ConversationFigures]:
    """Load the figures of some conversations; those without any calls or events have zeros."""
    figures = dict.fromkeys(ids, ConversationFigures())
    if not ids:
        return figures
    among = f"conversation IN ({', '.join('?' * len(ids))})"
    for conversation, calls, tokens, cost, unpriced, unreported in tx.rows(
        f"SELECT conversation, COUNT(*), SUM({_TOKENS}), SUM(cost_usd),"
        f" SUM(CASE WHEN cost_usd IS NULL THEN 1 ELSE 0 END), SUM(1 - reported) FROM call WHERE {among}"
        " GROUP BY conversation",
        ids,
    ):
        figures[to_text(conversation)] = ConversationFigures(
            _whole(calls),
            _whole(tokens),
            None if cost is None else to_sum(cost),
            _whole(unpriced),
            _whole(unreported),
        )
    for conversation, count in tx.rows(
        f"SELECT conversation, COUNT(*) FROM session WHERE {among} AND began_by = 'compression' GROUP BY conversation",
        ids,
    ):
        key = to_text(conversation)
        figures[key] = replace(figures[key], compactions=_whole(count))
    counts = ", ".join(_count_sql(kind) for kind in _FAILURES)
    for conversation, *amounts in tx.rows(
        f"SELECT conversation, {counts} FROM event WHERE {among} AND kind IN ({_FAILURE_EVENTS}) GROUP BY conversation",
        ids,
    ):
        key = to_text(conversation)
        failures: dict[str, Any] = dict(zip(_FAILURES, map(_whole, amounts), strict=True))
        figures[key] = replace(figures[key], **failures)
    return _with_context(tx, figures, among, ids)


def _with_context(
    tx: Transaction, figures: dict[str, ConversationFigures], among: str, ids: Sequence[str]
) -> dict[str, ConversationFigures]:
    """Add the context usage: the newest call's, or what a compaction or its undo has changed since."""
    newest = _NEWEST_MAIN.format(where=f" AND {among}")
    ended: dict[str, int] = {}
    for conversation, tokens, estimate, window, ended_at, model in tx.rows(
        f"SELECT conversation, {_TOKENS}, estimate_tokens, window_tokens, ended_at, model FROM call"
        f" WHERE id IN ({newest})",
        ids,
    ):
        key = to_text(conversation)
        size = _whole(tokens) or to_optional_int(estimate)
        figures[key] = replace(
            figures[key], context_tokens=size, window_tokens=to_optional_int(window), model=to_text(model)
        )
        ended[key] = to_time_ms(ended_at)
    changes: dict[str, list[Row]] = {}
    for row in tx.rows(
        f"SELECT conversation, kind, payload, created_at FROM event WHERE {among} AND kind IN ('compaction', 'undo')"
        " ORDER BY id",
        ids,
    ):
        changes.setdefault(to_text(row[0]), []).append(row)
    for key, rows in changes.items():
        if key not in ended:
            continue
        events = ((to_text(kind), load_payload(payload), to_time_ms(at)) for _, kind, payload, at in rows)
        size = prompt_size_since(events, since_ms=ended[key], tokens=figures[key].context_tokens or 0)
        if size is not None:
            figures[key] = replace(figures[key], context_tokens=size)
    return figures


def _whole(value: object) -> int:
    """Convert a SUM to int: NULL over no rows, a Decimal in PostgreSQL."""
    return 0 if value is None else int(to_sum(value))
