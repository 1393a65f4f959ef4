"""Spans of every turn that passes through the gateway; see `agent/spans.py` for what they say.

Where they go is OpenTelemetry's own business: whatever tracer provider the process has set up, as
`opentelemetry-instrument perdure gateway` does from the usual OTEL_* variables. With none set up, nothing is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import __version__
from perdure.agent.spans import TurnSpans
from perdure.gateway.chats import CommandAnswered, GatewayEvent, GaugeMoved, QuestionAsked, QuestionClosed
from perdure.gateway.watching import Answered, TurnFigures
from perdure.gateway.wire import is_last

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

_OURS = (CommandAnswered, QuestionAsked, QuestionClosed, GaugeMoved)


class Spans:
    """A watcher that traces."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._turns: dict[str, TurnSpans] = {}

    def answered(self, answered: Answered) -> None:
        """Requests are traced by the usual instrumentation of ASGI, where that is wanted."""

    def heard(self, figures: TurnFigures, event: GatewayEvent) -> None:
        if not isinstance(event, _OURS):
            self._of(figures).hear(event)
        if is_last(event):
            self._turns.pop(figures.turn_id, None)

    def _of(self, figures: TurnFigures) -> TurnSpans:
        if figures.turn_id not in self._turns:
            known = {"perdure.platform": figures.chat.platform, "user.id": figures.chat.user_key}
            self._turns[figures.turn_id] = TurnSpans(self._tracer, known)
        return self._turns[figures.turn_id]


def spans(provider: TracerProvider | None = None) -> Spans | None:
    """The watcher, or None where OpenTelemetry is not installed."""
    try:
        from opentelemetry.trace import get_tracer
    except ImportError:
        return None
    return Spans(get_tracer("perdure", __version__, tracer_provider=provider))
