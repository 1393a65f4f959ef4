"""OpenTelemetry spans of a turn, following the generative AI semantic conventions.

    invoke_agent perdure
    ├── chat gpt-5.5                     tokens by class, cost, what went wrong
    ├── execute_tool terminal            which call, not its result
    └── compact                          before and after

Needs the extra `telemetry`. Figures and names only: no span has text of users or models. For an agent of your own:
`agent.events.listen(TurnSpans(tracer).hear)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.core.events import (
    CallFinished,
    CallStarted,
    CompactionFinished,
    CompactionStarted,
    Event,
    ModelSwitched,
    Recovered,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.core.usage import CanonicalUsage

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind, Tracer


AGENT = "perdure"
# Where our name for a service differs from the conventions' own.
_PROVIDERS: Mapping[str, str] = {
    "xai": "x_ai",
    "mistral": "mistral_ai",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "openai-codex": "openai",
}
Attribute = str | int | float | bool


class TurnSpans:
    """Turns one agent's events into spans, as they come."""

    def __init__(self, tracer: Tracer, attributes: Mapping[str, Attribute] | None = None) -> None:
        self._tracer = tracer
        self._attributes = dict(attributes or {})
        self._turn: Span | None = None
        self._call: Span | None = None
        self._compaction: Span | None = None
        self._tools: dict[str, Span] = {}

    def hear(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._begin(event)
            case CallStarted():
                self._call_started(event)
            case CallFinished():
                self._call_finished(event)
            case ToolStarted(call=call):
                attributes = {
                    "gen_ai.tool.name": call.name,
                    "gen_ai.tool.call.id": call.id,
                    "gen_ai.tool.type": "function",
                }
                self._tools[call.id] = self._start("execute_tool", call.name, attributes)
            case ToolFinished(call=call, is_error=is_error):
                self._finish(self._tools.pop(call.id, None), error="tool_error" if is_error else None)
            case CompactionStarted(reason=reason, before_tokens=before):
                told_compaction: dict[str, Attribute] = {
                    "perdure.compaction.reason": reason,
                    "perdure.compaction.before_tokens": before,
                }
                self._compaction = self._child("compact", told_compaction)
            case CompactionFinished():
                self._compaction_finished(event)
            case Recovered(verdict=verdict, action=action):
                self._note("perdure.recovered", {"error.type": verdict.kind, "perdure.action": action})
            case ModelSwitched(old, new, _):
                self._note("perdure.model_switched", {"perdure.old": old, "perdure.new": new})
            case TurnFinished():
                self._end(event)

    def _begin(self, event: TurnStarted) -> None:
        self._close("lost")
        attributes: dict[str, Attribute] = {
            **self._attributes,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.conversation.id": event.conversation_id or event.session_id,
            "perdure.session.id": event.session_id,
            "perdure.turn.id": event.task_id,
        }
        self._turn = self._tracer.start_span(f"invoke_agent {AGENT}", attributes=attributes)

    def _call_started(self, event: CallStarted) -> None:
        from opentelemetry.trace import SpanKind

        attributes: dict[str, Attribute] = {
            "gen_ai.provider.name": provider_name(event.provider),
            "gen_ai.request.model": event.model,
            "perdure.estimate_tokens": event.estimate_tokens,
            "perdure.window_tokens": event.window_tokens,
            "perdure.threshold_tokens": event.threshold_tokens,
        }
        self._call = self._start("chat", event.model, attributes, kind=SpanKind.CLIENT)
        if self._turn is not None:
            self._turn.set_attribute("gen_ai.provider.name", provider_name(event.provider))
            self._turn.set_attribute("gen_ai.request.model", event.model)

    def _call_finished(self, event: CallFinished) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        call.set_attribute("gen_ai.response.model", event.model)
        if event.usage.reported:
            call.set_attributes(_tokens(event.usage))
        if event.cost_usd is not None:
            call.set_attribute("perdure.cost_usd", event.cost_usd)
        self._finish(call, error=event.verdict or None)

    def _compaction_finished(self, event: CompactionFinished) -> None:
        span, self._compaction = self._compaction, None
        if span is not None:
            span.set_attribute("perdure.compaction.outcome", event.outcome)
            span.set_attribute("perdure.compaction.after_tokens", event.after_tokens)
        self._finish(span, error="compaction_failed" if event.outcome == "failed" else None)

    def _end(self, event: TurnFinished) -> None:
        turn = self._turn
        if turn is not None:
            turn.set_attribute("perdure.outcome", event.outcome)
            turn.set_attributes(_tokens(event.usage))
        self._close(event.outcome if event.outcome in ("failed", "interrupted") else None)

    def _close(self, error: str | None) -> None:
        """End the turn's span and all open child spans, such as those of cancelled tools."""
        open_spans = [self._call, self._compaction, *self._tools.values()]
        for span in open_spans:
            self._finish(span, error="interrupted")
        turn, self._turn, self._call, self._compaction = self._turn, None, None, None
        self._tools.clear()
        self._finish(turn, error=error)

    def _start(
        self, operation: str, name: str, attributes: Mapping[str, Attribute], *, kind: SpanKind | None = None
    ) -> Span:
        return self._child(f"{operation} {name}", {"gen_ai.operation.name": operation, **attributes}, kind=kind)

    def _child(self, name: str, attributes: Mapping[str, Attribute], *, kind: SpanKind | None = None) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context

        parent = set_span_in_context(self._turn) if self._turn is not None else None
        return self._tracer.start_span(
            name, context=parent, kind=kind or SpanKind.INTERNAL, attributes={**self._attributes, **attributes}
        )

    def _note(self, name: str, attributes: Mapping[str, Attribute]) -> None:
        if self._turn is not None:
            self._turn.add_event(name, attributes)

    @staticmethod
    def _finish(span: Span | None, *, error: str | None) -> None:
        if span is None:
            return
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def provider_name(ours: str) -> str:
    return _PROVIDERS.get(ours, ours or "unknown")


def _tokens(usage: CanonicalUsage) -> dict[str, Attribute]:
    """Return the token attributes of a span; by convention, cached tokens count as input and reasoning as output."""
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
