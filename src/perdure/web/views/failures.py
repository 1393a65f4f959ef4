"""List the failures of a conversation: failed and stopped turns, refusals, provider errors, failed tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.core.errors import kind_label
from perdure.core.messages import clean
from perdure.store.records import Conversation, Span, StoredEvent, TimelineEntry, ToolRun
from perdure.web.schemas import FailureRow
from perdure.web.scoped_store import ScopedStore

# The most of each kind that is listed.
_MOST_FAILURES = 2_000
_REASON_CHARS = 300

_ACTIONS = {
    "compact": "the conversation was compacted and the call made again",
    "lower_output": "a shorter reply was requested",
    "drop_images": "the oldest images were left out and the call made again",
    "reroute": "it was tried again with another key or provider",
}


def list_failures(scope: ScopedStore, conversation: Conversation) -> list[FailureRow]:
    """Return every failure of the conversation, oldest first; of each kind, at most the first two thousand."""
    ledger, timeline = scope.store.ledger, scope.store.timeline
    events = [
        event
        for kind in _SENTENCES
        for event in ledger.events(conversation.id, kind=kind, limit=_MOST_FAILURES)
        if kind != "partial_reply" or event.payload.get("why") == "interrupted"
    ]
    seqs = timeline.last_seqs_at(conversation.id, [e.created_at_ms for e in events])
    rows = [_event_row(event, seq) for event, seq in zip(events, seqs, strict=True)]
    results = timeline.failed_results(conversation.id, limit=_MOST_FAILURES)
    if results:
        runs = timeline.tool_runs(conversation.id, Span(results[0].seq, results[-1].seq))
        rows += [_result_row(result, _exit_code(runs, result)) for result in results]
    return sorted(rows, key=lambda row: (row.seq, row.event_id or 0))


def _event_row(event: StoredEvent, seq: int) -> FailureRow:
    return FailureRow(
        kind="turn_stopped" if event.kind == "partial_reply" else event.kind,
        seq=seq,
        event_id=event.id,
        created_at=event.created_at_ms,
        text=clean(_SENTENCES[event.kind](event.payload)),
    )


def _result_row(result: TimelineEntry, exit_code: int | None) -> FailureRow:
    message, name = result.entry.message, result.entry.message.name or "a tool"
    if message.tool_state == "refused":
        kind, text = "tool_refused", f"{name} was refused: it did not run"
    else:
        kind, text = "tool_failed", f"{name} failed" + (f" with exit code {exit_code}" if exit_code else "")
        if not exit_code and (reason := _reason(message.text.removeprefix("Error: ").removeprefix(f"{name} failed: "))):
            text += f": {reason}"
    return FailureRow(kind=kind, seq=result.seq, event_id=None, created_at=result.entry.created_at_ms, text=clean(text))


def _exit_code(runs: Mapping[tuple[int, str], ToolRun], result: TimelineEntry) -> int | None:
    run = runs.get((result.entry.created_at_ms, result.entry.message.tool_call_id or ""))
    return run.exit_code if run is not None else None


def _turn_failed(payload: Mapping[str, Any]) -> str:
    return f"the turn failed: {_reason(payload.get('reason')) or 'no reason was recorded'}"


def _model_refused(payload: Mapping[str, Any]) -> str:
    if payload.get("refused_by") == "filter":
        return "a content filter of the provider cut the answer off"
    return f"{payload.get('model') or 'the model'} refused to answer"


def _turn_stopped(payload: Mapping[str, Any]) -> str:
    return "the turn was stopped" + (
        " while the reply was being written" if payload.get("text") or payload.get("has_text") else ""
    )


def _recovery(payload: Mapping[str, Any]) -> str:
    kind, action = kind_label(_reason(payload.get("kind")) or "unknown"), str(payload.get("action", ""))
    message = _reason(payload.get("message"))
    return f"recovered from {kind}: {_ACTIONS.get(action, action)}{f' (“{message}”)' if message else ''}"


def _reason(value: object) -> str:
    words = " ".join(str(value or "")[: 2 * _REASON_CHARS].split())
    return words if len(words) <= _REASON_CHARS else f"{words[:_REASON_CHARS]}…"


_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "turn_failed": _turn_failed,
    "model_refused": _model_refused,
    "turn_stopped": _turn_stopped,
    "partial_reply": _turn_stopped,
    "recovery": _recovery,
}
