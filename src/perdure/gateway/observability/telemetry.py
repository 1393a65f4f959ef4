"""OpenTelemetry spans of every turn; see `agent/telemetry.py` for their attributes.

`gateway.traces` selects the exporter, which reads the OTEL_* variables itself. The tracer provider is not registered
globally: it would also receive the web framework's spans, which contain addresses and errors. A global provider that
is already set up (by `opentelemetry-instrument`) is used as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from perdure import __version__
from perdure.agent.telemetry import TurnSpans
from perdure.core.errors import ConfigError
from perdure.gateway.events.serialize import is_final
from perdure.gateway.events.types import (
    CommandAnswered,
    ContextUsageChanged,
    GatewayEvent,
    QuestionAsked,
    QuestionClosed,
)
from perdure.gateway.observability.base import RequestRecord, TurnStats

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider


_GATEWAY_EVENTS = (CommandAnswered, QuestionAsked, QuestionClosed, ContextUsageChanged)


class SpanObserver:
    """Observer that traces turns as OpenTelemetry spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._turns: dict[str, TurnSpans] = {}

    def on_request(self, record: RequestRecord) -> None:
        """Ignore requests: ASGI instrumentation traces those."""

    def on_event(self, stats: TurnStats, event: GatewayEvent) -> None:
        if not isinstance(event, _GATEWAY_EVENTS):
            self._spans_for(stats).hear(event)
        if is_final(event):
            self._turns.pop(stats.turn_id, None)

    def _spans_for(self, stats: TurnStats) -> TurnSpans:
        if stats.turn_id not in self._turns:
            attributes = {"perdure.platform": stats.chat.platform, "user.id": stats.chat.user.stored_key}
            self._turns[stats.turn_id] = TurnSpans(self._tracer, attributes)
        return self._turns[stats.turn_id]


def make_span_observer(provider: TracerProvider | None = None) -> SpanObserver | None:
    """Return an observer that traces turns, or None if OpenTelemetry is not installed."""
    try:
        from opentelemetry.trace import get_tracer
    except ImportError:
        return None
    return SpanObserver(get_tracer("perdure", __version__, tracer_provider=provider))


@contextmanager
def open_tracer_provider(exporter_name: Literal["off", "console", "otlp"]) -> Iterator[TracerProvider | None]:
    """Set up the tracer provider of an exporter; None for the global one. Raises ConfigError."""
    if exporter_name == "off":
        yield None
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as Provider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

        if exporter_name == "console":
            exporter: SpanExporter = ConsoleSpanExporter(out=sys.stderr)
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
    except ImportError as error:
        raise ConfigError(
            f"gateway.traces needs a package that is not installed ({error.name}): pip install 'perdure[telemetry]'"
        ) from error
    provider = Provider(resource=Resource.create({"service.name": "perdure", "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider
    finally:
        provider.shutdown()
