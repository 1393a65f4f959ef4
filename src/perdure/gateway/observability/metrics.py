"""Prometheus metrics of this process: requests, turns, tokens, cost, errors and queue depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from perdure.core.events import (
    CallFinished,
    CompactionFinished,
    CompactionStarted,
    OutputSpilled,
    Recovered,
    ToolFinished,
    TurnFinished,
)
from perdure.core.usage import CanonicalUsage
from perdure.gateway.events.types import CommandAnswered, GatewayEvent
from perdure.gateway.observability.base import RequestRecord, TurnStats

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_TURN_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
# Limit the cardinality of labels: clients may send any model name.
_MAX_NAMES = 100


class Metrics:
    """Counts requests and events; `render` returns the scrape response."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._names: set[str] = set()
        self._compacting: dict[str, str] = {}
        self._totals: dict[str, _Totals] = {}
        counter, histogram = self._counter, self._histogram
        self._requests = counter("requests", "Requests answered.", "method", "route", "status")
        self._request_seconds = histogram("request_seconds", "Response time.", _REQUEST_BUCKETS, "route")
        self._rejected = counter("rejected_requests", "Requests rejected, by reason.", "reason")
        self._turns = counter("turns", "Turns ended.", "platform", "outcome")
        self._turn_seconds = histogram("turn_seconds", "Duration of a turn.", _TURN_BUCKETS, "platform")
        self._first_text = histogram(
            "first_text_seconds", "Time to the first text of a turn.", _TURN_BUCKETS, "platform"
        )
        self._commands = counter("commands", "Slash commands run.", "platform")
        self._calls = counter("model_calls", "Model calls.", "provider", "model", "verdict")
        self._tokens = counter("tokens", "Tokens by class.", "model", "class")
        self._cost = counter("cost_usd", "Cost of calls with a known price.", "model")
        self._unpriced = counter("unpriced_calls", "Calls without a known price or usage.", "model")
        self._tools = counter("tool_calls", "Tool calls run.", "tool", "outcome")
        self._spilled = counter("spilled_outputs", "Tool outputs too large for the context.")
        self._compactions = counter("compactions", "Compactions, by reason and outcome.", "reason", "outcome")
        self._recoveries = counter("recoveries", "Provider errors handled.", "kind", "action")

    def gauge(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """Register a gauge whose value is read at scrape time."""
        Gauge(f"perdure_{name}", help_text, registry=self._registry).set_function(value)

    def total(self, name: str, help_text: str, value: Callable[[], float], **labels: str) -> None:
        """Register a counter whose value another component maintains, read at scrape time."""
        if name not in self._totals:
            self._totals[name] = _Totals(f"perdure_{name}", help_text)
            self._registry.register(self._totals[name])
        self._totals[name].add(labels, value)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def on_request(self, record: RequestRecord) -> None:
        method = "WS" if record.kind == "websocket" else self._bounded_label(record.method)
        self._requests.labels(method, record.route, str(record.status)).inc()
        if record.code is not None:
            self._rejected.labels(record.code).inc()
        if record.kind == "http":
            self._request_seconds.labels(record.route).observe(record.seconds)

    def on_event(self, stats: TurnStats, event: GatewayEvent) -> None:
        platform = self._bounded_label(stats.chat.platform)
        match event:
            case CallFinished():
                self._call(event)
            case ToolFinished(call=call, is_error=is_error, is_registered=is_registered):
                # A tool name the model invented may contain anything, so it gets no time series.
                name = self._bounded_label(call.name) if is_registered else "other"
                self._tools.labels(name, "error" if is_error else "ok").inc()
            case OutputSpilled():
                self._spilled.inc()
            case CompactionStarted(reason=reason):
                self._compacting[stats.turn_id] = reason
            case CompactionFinished(outcome=outcome):
                self._compactions.labels(self._compacting.pop(stats.turn_id, "user"), outcome).inc()
            case Recovered(verdict=verdict, action=action):
                self._recoveries.labels(
                    verdict.kind, self._bounded_label(action.split()[0] if action else "none")
                ).inc()
            case TurnFinished(outcome=outcome):
                self._compacting.pop(stats.turn_id, None)
                self._turns.labels(platform, outcome).inc()
                self._turn_seconds.labels(platform).observe(stats.seconds)
                if stats.first_text_s is not None:
                    self._first_text.labels(platform).observe(stats.first_text_s)
            case CommandAnswered():
                self._commands.labels(platform).inc()

    def _call(self, call: CallFinished) -> None:
        model = self._bounded_label(call.model)
        self._calls.labels(self._bounded_label(call.provider), model, call.verdict or "ok").inc()
        for name, tokens in _classes(call.usage):
            self._tokens.labels(model, name).inc(tokens)
        if call.cost_usd is None:
            self._unpriced.labels(model).inc()
        else:
            self._cost.labels(model).inc(call.cost_usd)

    def _bounded_label(self, name: str) -> str:
        if name not in self._names and len(self._names) >= _MAX_NAMES:
            return "other"
        self._names.add(name)
        return name

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"perdure_{name}", help_text, labels, registry=self._registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"perdure_{name}", help_text, labels, buckets=buckets, registry=self._registry)


class _Totals(Collector):
    """A counter whose values are read from callables, one for each set of labels."""

    def __init__(self, name: str, help_text: str) -> None:
        self._name = name
        self._help_text = help_text
        self._values: list[tuple[Mapping[str, str], Callable[[], float]]] = []

    def add(self, labels: Mapping[str, str], value: Callable[[], float]) -> None:
        self._values.append((labels, value))

    def collect(self) -> Iterator[Metric]:
        names = sorted({name for labels, _ in self._values for name in labels})
        family = CounterMetricFamily(self._name, self._help_text, labels=names)
        for labels, value in self._values:
            family.add_metric([labels[name] for name in names], value())
        yield family


def _classes(usage: CanonicalUsage) -> tuple[tuple[str, int], ...]:
    """Return the four billed token classes, and reasoning, which is part of the output."""
    return (
        ("input", usage.input_tokens),
        ("cache_read", usage.cache_read_tokens),
        ("cache_write", usage.cache_write_tokens),
        ("output", usage.output_tokens),
        ("reasoning", usage.reasoning_tokens),
    )
