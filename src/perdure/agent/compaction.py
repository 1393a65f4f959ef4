"""Run a compaction: flush memory, store the new session in one transaction, notify engine and counter.

It runs in threads of the event loop's default executor, not in those for store writes: it may take seconds, and a
message of another conversation must not queue behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from perdure.agent.deps import AgentDeps
from perdure.agent.prompt import renewed
from perdure.agent.session import LiveSession
from perdure.context.engine import (
    Compaction,
    CompactionReport,
    Insert,
    Keep,
    Reason,
    Steps,
    keep_essentials,
    run_steps,
    unchanged,
)
from perdure.core.concurrency import describe_error
from perdure.core.datastructures import intervals_of
from perdure.core.events import CompactionFinished, CompactionStarted, Event, Notice
from perdure.core.messages import Entry
from perdure.store.records import NewHandoff, Plan, Span, StoredEvent

Emit = Callable[[Event], None]


async def compact(live: LiveSession, parts: AgentDeps, emit: Emit, *, reason: Reason) -> Compaction:
    """Ask the engine for a plan and apply it, in as few worker-thread calls as the engine's own awaits need."""
    emit(CompactionStarted(reason, live.counter.estimate))
    with Reporting(emit) as reporting:
        return await run_steps(compaction_steps(live, parts, reporting, reason=reason))


async def compact_on_request(
    live: LiveSession, parts: AgentDeps, emit: Emit, *, focus_topic: str | None, hold: AbstractContextManager[None]
) -> CompactionReport:
    """Compact now, as the user asked, and report it."""
    emit(CompactionStarted("user", live.counter.estimate))
    with Reporting(emit) as reporting:

        def steps() -> Steps[CompactionReport]:
            compaction = yield from compaction_steps(
                live, parts, reporting, reason="user", focus_topic=focus_topic, hold=hold
            )
            return report(compaction, live.entries)

        return await run_steps(steps())


async def carry_out(
    compaction: Compaction, live: LiveSession, parts: AgentDeps, emit: Emit, *, reason: str
) -> Compaction:
    """Apply a plan: rotate to a continuation session. The old session never changes.

    An interrupt that comes meanwhile takes effect once the continuation is stored.
    """
    with Reporting(emit) as reporting:
        return await parts.keep(partial(_write, compaction, live, parts, reporting, reason=reason))


class Reporting:
    """Collects the events of a compaction in a worker thread and emits them on the event loop, at the end of a block.

    An interrupt may end the block before the result of the last step arrives; what was stored is reported all the same.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.events: list[Event] = []

    def __enter__(self) -> Reporting:
        return self

    def __exit__(self, *error: object) -> None:
        for event in self.events:
            self._emit(event)


def compaction_steps(
    live: LiveSession,
    parts: AgentDeps,
    reporting: Reporting,
    *,
    reason: Reason,
    focus_topic: str | None = None,
    hold: AbstractContextManager[None] | None = None,
) -> Steps[Compaction]:
    """One compaction, top to bottom: plan, then store. Runs in worker threads; see `run_steps`.

    `hold`, which holds the conversation's lease, is entered with the first stretch and left with the last.
    """
    with hold or nullcontext():
        entries = list(live.view)
        try:
            compaction = yield from parts.engine.compress_steps(entries, focus_topic=focus_topic, reason=reason)
        except Exception as error:  # a plug-in engine may raise anything: the conversation goes on without it
            compaction = unchanged(entries, f"The context engine failed: {describe_error(error)}", outcome="failed")
        return _write(compaction, live, parts, reporting, reason=reason)


def _write(
    compaction: Compaction, live: LiveSession, parts: AgentDeps, reporting: Reporting, *, reason: str
) -> Compaction:
    """Store everything a compaction writes."""
    compaction = keep_essentials(compaction)
    prompt_before = live.counter.estimate
    if not compaction.is_noop:
        _rotate(compaction, live, parts, focus=reason)
    payload = {
        "outcome": compaction.outcome,
        "reason": reason,
        "before": compaction.before_tokens,
        "after": compaction.after_tokens,
        # The same by the one counter, as gauge, gate and chart have it: system prompt and tools included, calibrated.
        "prompt_before": prompt_before,
        "prompt_after": live.counter.estimate,
        "threshold": live.window.threshold_tokens if live.window is not None else None,
        "cost_usd": compaction.record.cost_usd if compaction.record is not None else None,
    }
    live.record(StoredEvent(live.id, "compaction", payload))
    live.flush()
    reporting.events.append(
        CompactionFinished(
            compaction.outcome, compaction.before_tokens, compaction.after_tokens, live.id, compaction.message
        )
    )
    reporting.events += [Notice(t, "warning") for t in (*compaction.notices, *parts.engine.take_notices())]
    return compaction


def _rotate(compaction: Compaction, live: LiveSession, parts: AgentDeps, *, focus: str) -> None:
    parts.memory.flush()
    old = live.session
    prompt = renewed(old.system_prompt, parts.memory.snapshot(parts.user_key), parts.prompt_sources)
    child = parts.store.compact(
        old.id,
        plan_over_log(compaction, live.entries),
        system_prompt=None if prompt == old.system_prompt else prompt,
        up_to_seq=live.newest_seq if live.entries else None,
        lease=live.lease,
    )
    live.move_to(child, _reused(parts.store.history(child.id).entries, live.entries))
    parts.engine.on_session_start(child.id, reason="compression", previous=old.id)


def _reused(entries: Sequence[Entry], known: Sequence[Entry]) -> list[Entry]:
    """The entries as they were read, with what is cached about the messages that were kept."""
    by_seq = {e.seq: e for e in known}
    pairs = [(e, by_seq.get(e.seq)) for e in entries]
    return [old if old is not None and old.message == new.message else new for new, old in pairs]


def report(compaction: Compaction, entries: Sequence[Entry]) -> CompactionReport:
    """Build the report of a compaction."""
    handoffs = [e.message.text for e in entries if e.message.kind == "handoff"]
    return CompactionReport(
        messages=[e.message.to_dict() for e in entries],
        outcome=compaction.outcome,
        handoff=handoffs[-1] if handoffs else "",
        before_tokens=compaction.before_tokens,
        after_tokens=compaction.after_tokens,
        message=compaction.message,
        notices=compaction.notices,
        record=compaction.record,
    )


def plan_over_log(compaction: Compaction, entries: Sequence[Entry]) -> Plan:
    """Convert an engine's plan (list positions) to a store plan (log spans)."""
    plan: list[Span | NewHandoff] = []
    for step in compaction.plan:
        if isinstance(step, Insert):
            plan.append(_new_handoff(step, compaction))
        elif isinstance(step, Keep):
            plan += [Span(lo, hi) for lo, hi in intervals_of(e.seq for e in entries[step.lo : step.hi])]
    return tuple(plan)


def _new_handoff(step: Insert, compaction: Compaction) -> NewHandoff:
    handoff = compaction.record
    if handoff is None:
        return NewHandoff(step.message)
    return NewHandoff(
        step.message,
        model=handoff.model,
        focus=handoff.focus_topic or "",
        cost_usd=handoff.cost_usd,
        check={"findings": list(handoff.findings)},
    )
