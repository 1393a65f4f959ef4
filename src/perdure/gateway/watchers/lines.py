"""What the journal says of requests and turns."""

from __future__ import annotations

from perdure.core.events import CompactionFinished, Recovered, TurnFinished
from perdure.gateway.telling.chats import CommandAnswered, GatewayEvent
from perdure.gateway.watchers.journal import Journal
from perdure.gateway.watchers.watching import RequestRecord, TurnStats

# Asked every few seconds by machines that only want to know whether we live.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class Lines:
    """A watcher that writes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def answered(self, answered: RequestRecord) -> None:
        if answered.route in _QUIET and answered.status < 400:
            return
        fields = {
            "request": answered.request_id,
            "method": "WS" if answered.kind == "websocket" else answered.method,
            "route": answered.route,
            "status": answered.status,
            "refused": answered.code,
            "ms": round(answered.seconds * 1000, 1),
            "user": answered.user_key,
            "address": answered.address,
            "bytes": answered.sent_bytes,
        }
        self._journal.write("request", fields, level=_level(answered.status))

    def heard(self, figures: TurnStats, event: GatewayEvent) -> None:
        known = {
            "turn": figures.turn_id,
            "session": figures.session_id or None,
            "platform": figures.chat.platform,
            "user": figures.chat.user_key,
        }
        match event:
            case TurnFinished(outcome=outcome):
                level = "warning" if outcome == "failed" else "info"
                self._journal.write("turn", {**known, "outcome": outcome, **_sums(figures)}, level=level)
            case CommandAnswered(level=level):
                self._journal.write("command", {**known, "ms": round(figures.seconds * 1000, 1)}, level=level)
            case CompactionFinished(outcome=outcome, before_tokens=before, after_tokens=after):
                level = "warning" if outcome == "failed" else "info"
                told = {**known, "outcome": outcome, "before_tokens": before, "after_tokens": after}
                self._journal.write("compaction", told, level=level)
            case Recovered(verdict=verdict, action=action):
                told = {**known, "kind": verdict.kind, "status": verdict.status, "action": action}
                self._journal.write("recovery", told, level="warning")


def _sums(figures: TurnStats) -> dict[str, int | float | None]:
    usage, first = figures.usage, figures.first_text_s
    return {
        "ms": round(figures.seconds * 1000, 1),
        "first_text_ms": None if first is None else round(first * 1000, 1),
        "calls": figures.calls,
        "tools": figures.tools,
        "compactions": figures.compactions,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": figures.cost_usd,
    }


def _level(status: int) -> str:
    return "error" if status >= 500 else "warning" if status >= 400 else "info"
