"""The context chart: each model call with the parts of its prompt, and the events between calls with their reasons."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.core.messages import clean
from perdure.store.ledger import prompt_sizes
from perdure.store.records import CallRecord, Conversation, StoredEvent
from perdure.web.schemas import CallPoint, ChartMark, ContextChart, FailureRow
from perdure.web.scoped_store import ScopedStore
from perdure.web.views.failures import list_failures

# More marks of one kind would overlap on the chart.
_MOST_MARKS = 10_000
# From the bottom of the stack to its top.
PARTS = ("system", "tools", "memory", "head", "handoff", "tail", "outputs")


def context_chart(scope: ScopedStore, conversation: Conversation) -> ContextChart:
    """Return the prompt size of each main model call, by part, and marks for compactions, switches, undos and failures.

    Auxiliary calls are only counted: their prompts are not the conversation's.
    """
    store = scope.store
    every_call = store.ledger.calls(conversation.id)
    calls = [c for c in every_call if c.task == "main"]
    # One query per kind: most events are of other kinds.
    raw_events = [
        e for kind in _CHART_EVENTS for e in store.ledger.events(conversation.id, kind=kind, limit=_MOST_MARKS)
    ]
    events = sorted(raw_events, key=lambda e: e.id)
    seqs = store.timeline.last_seqs_at(
        conversation.id, [*(c.started_at_ms for c in calls), *(e.created_at_ms for e in events)]
    )
    starts = [c.started_at_ms for c in calls]
    marks = [
        _mark(event, at=bisect_left(starts, event.created_at_ms), seq=seq, calls=calls)
        for event, seq in zip(events, seqs[len(calls) :], strict=True)
    ]
    marks += [_failure_mark(row, at=bisect_left(starts, row.created_at)) for row in list_failures(scope, conversation)]
    marks.sort(key=lambda mark: (mark.at, mark.seq))
    points = [_point(call, seq) for call, seq in zip(calls, seqs, strict=False)]
    auxiliary = Counter(c.task for c in every_call if c.task != "main")
    return ContextChart(parts=list(PARTS), calls=points, marks=marks, auxiliary_calls=dict(auxiliary))


class _Around:
    """The calls before and after a position on the chart."""

    def __init__(self, calls: Sequence[CallRecord], at: int) -> None:
        self.before = calls[at - 1] if at > 0 else None
        self.after = calls[at] if at < len(calls) else None

    def threshold(self, reason: str) -> int | None:
        """Return the threshold in effect: of the next call, or of the last one if the turn had ended."""
        near = (self.before or self.after) if reason == "threshold" else (self.after or self.before)
        return near.threshold_tokens if near is not None else None


def _mark(event: StoredEvent, *, at: int, seq: int, calls: Sequence[CallRecord]) -> ChartMark:
    before, after = prompt_sizes(event.payload) if event.kind == "compaction" else (None, None)
    return ChartMark(
        kind=event.kind,
        at=at,
        seq=seq,
        event_id=event.id,
        text=clean(_CHART_EVENTS[event.kind](event.payload, _Around(calls, at))),
        before_tokens=before,
        after_tokens=after,
    )


def _failure_mark(row: FailureRow, *, at: int) -> ChartMark:
    return ChartMark(kind=row.kind, at=at, seq=row.seq, event_id=row.event_id, text=row.text)


def _point(call: CallRecord, seq: int) -> CallPoint:
    usage = call.usage
    return CallPoint(
        started_at=call.started_at_ms,
        seq=seq,
        session_id=call.session_id,
        model=call.route.model,
        task=call.task,
        # A refused call reports no prompt either: its size is the estimate.
        prompt_tokens=usage.prompt_tokens or None,
        estimate_tokens=call.estimate_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        window=call.window_tokens,
        threshold=call.threshold_tokens,
        composition={part: call.composition.get(part, 0) for part in PARTS},
        cost_usd=call.cost_usd,
        verdict=call.verdict,
    )


def _compaction(payload: Mapping[str, Any], around: _Around) -> str:
    reason, outcome = str(payload.get("reason", "")), str(payload.get("outcome", ""))
    why = _why(reason, payload.get("threshold") or around.threshold(reason))
    before, after = map(_tokens, prompt_sizes(payload))
    if outcome == "failed":
        return f"compaction failed at {before} tokens; it was tried {why}"
    if outcome == "nothing_to_do":
        return f"nothing to compact at {before} tokens; it was tried {why}"
    by_code = " (by code alone: no summary was written)" if outcome == "digest" else ""
    return f"compacted: {before} → {after} tokens, {why}{by_code}"


def _why(reason: str, threshold: object) -> str:
    limit = f"the threshold of {_tokens(threshold)}" if threshold else "its threshold"
    return {
        "preflight": f"because the prompt reached {limit}",
        "cold": "because the provider no longer had the prompt in its cache: the cheapest moment",
        "threshold": f"because the prompt had reached {limit} when the turn ended",
        "background": f"because the prompt reached {limit} (prepared in the background)",
        "overflow": "because the provider reported that the prompt was too long for the model",
        "hygiene": "because the history was too long to begin with",
        "user": "because you asked for it",
        "model": "because the model asked for it",
    }.get(reason, f"because of {reason}" if reason else "for an unrecorded reason")


def _spill(payload: Mapping[str, Any], around: _Around) -> str:
    tool, address = payload.get("tool") or "a tool", payload.get("address", "")
    return f"{tool} returned {_tokens(payload.get('chars'))} characters, too many for the context: stored at {address}"


def _switch(payload: Mapping[str, Any], around: _Around) -> str:
    reason = str(payload.get("reason", ""))
    why = "because you chose it" if reason == "chosen" else f"because of {reason}" if reason else ""
    return f"model switched: {payload.get('old')} → {payload.get('new')}{', ' + why if why else ''}"


def _undo(payload: Mapping[str, Any], around: _Around) -> str:
    return "compaction undone: what it had taken out is back in the prompt"


def _tokens(figure: object) -> str:
    return f"{figure:,}" if isinstance(figure, int) else "an unknown number of"


_CHART_EVENTS: dict[str, Callable[[Mapping[str, Any], _Around], str]] = {
    "compaction": _compaction,
    "spill": _spill,
    "model_switch": _switch,
    "undo": _undo,
}
