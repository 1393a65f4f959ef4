"""Decide when to compact, and do it: the gate before each call and after a turn, preparation, the compaction itself.

`CompactionGate` decides. At the start of a turn it holds the threshold against the estimate of the next prompt. Inside
a turn it holds it against the last prompt the provider reported: what was appended since are results the model has not
read, and those count only against the room of the window. Where they do not fit next to a handoff, they are spilled,
never summarised. It compacts when the engine returns True, takes over a compaction prepared in the background, starts
to prepare one when the threshold is near, and stops a call that would pass a spending limit. While one is being
prepared, the conversation continues beyond the threshold while the window has room to spare; only then does it wait.
`compression.cost_rule` may move the moment in both directions (`compaction_cost`).

`Background` prepares: a task runs the engine's `compress` on a snapshot. Between two requests the finished plan is
applied, and messages appended since are kept. A plan that no longer matches the history, or that would free too little
by now, is discarded: each compaction invalidates the prompt cache, so one that needs another soon after is worse than
none.

`compact` runs one: flush memory, store the new session in one transaction, notify engine and counter. It runs in
threads of the event loop's default executor, not in those for store writes: it may take seconds, and a message of
another conversation must not wait for it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from perdure.agent.compaction_cost import CostRule
from perdure.agent.context_usage import output_limits
from perdure.agent.deps import AgentDeps
from perdure.agent.model_request import spill_results, with_text
from perdure.agent.prompt import refresh_prompt
from perdure.agent.session import LiveSession
from perdure.agent.turn_limits import Spent, check_spending
from perdure.context.compaction_input import tokens_of
from perdure.context.engine import (
    Compaction,
    CompactionReport,
    ContextEngine,
    Insert,
    Keep,
    Reason,
    RunInThread,
    Steps,
    keep_essentials,
    run_steps,
    unchanged_compaction,
)
from perdure.context.handoff import edit_handoff
from perdure.context.retention import find_unread
from perdure.core.concurrency import describe_error, run_shielded
from perdure.core.datastructures import intervals_of
from perdure.core.errors import NotFound
from perdure.core.events import CompactionFinished, CompactionStarted, Emit, Event, Notice, OutputSpilled
from perdure.core.messages import Entry, TextPart
from perdure.core.usage import CanonicalUsage
from perdure.models.tokens import entry_figures, figures_of, sum_figures
from perdure.models.windows import ContextWindow, WindowBudgets
from perdure.store.records import NewHandoff, Plan, Span, StoredEvent
from perdure.tools.hooks import CompactionContext, StoredCompaction


async def compact(
    live: LiveSession, deps: AgentDeps, emit: Emit, *, reason: Reason, focus_topic: str | None = None
) -> Compaction:
    """Ask the engine for a plan and apply it, in as few worker-thread calls as the engine's own awaits need."""
    emit(CompactionStarted(reason, live.counter.estimate))
    with Reporting(emit) as reporting:
        return await run_steps(compaction_steps(live, deps, reporting, reason=reason, focus_topic=focus_topic))


async def compact_on_request(
    live: LiveSession, deps: AgentDeps, emit: Emit, *, focus_topic: str | None, hold: AbstractContextManager[None]
) -> CompactionReport:
    """Compact now, at any context usage, because the user asked for it, and report the outcome."""
    emit(CompactionStarted("user", live.counter.estimate))
    with Reporting(emit) as reporting:

        def steps() -> Steps[CompactionReport]:
            compaction = yield from compaction_steps(
                live, deps, reporting, reason="user", focus_topic=focus_topic, hold=hold
            )
            return report(compaction, live.entries)

        return await run_steps(steps())


async def carry_out(
    compaction: Compaction, live: LiveSession, deps: AgentDeps, emit: Emit, *, reason: str
) -> Compaction:
    """Store the continuation session of a plan and move to it, even if interrupted; the old session never changes."""
    with Reporting(emit) as reporting:
        return await deps.run_blocking(partial(_write, compaction, live, deps, reporting, reason=reason))


class Reporting:
    """Collects the events of a compaction in a worker thread; emits them on the event loop when its `with` block ends.

    An interrupt may end the block before the last step returns: what was stored by then is reported all the same.
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
    deps: AgentDeps,
    reporting: Reporting,
    *,
    reason: Reason,
    focus_topic: str | None = None,
    hold: AbstractContextManager[None] | None = None,
) -> Steps[Compaction]:
    """Ask the engine for a plan, then store it: a generator whose stretches run in worker threads (`run_steps`).

    `hold`, which holds the conversation's lease, is entered with the first stretch and left with the last.
    """
    with hold or nullcontext():
        entries = list(live.view)
        focus = _focus(live, deps, reason, focus_topic)
        try:
            compaction = yield from deps.engine.compress_steps(entries, focus_topic=focus, reason=reason)
        except Exception as error:  # a plug-in engine may raise anything: the conversation continues without it
            why = f"The context engine {deps.engine.name!r} failed: {describe_error(error)}"
            compaction = unchanged_compaction(entries, why, outcome="failed")
        return _write(compaction, live, deps, reporting, reason=reason)


def _focus(live: LiveSession, deps: AgentDeps, reason: str, focus_topic: str | None = None) -> str | None:
    """Run the `pre_compact` hooks and return the topic to focus on, if any. For a worker thread."""
    hooks = deps.tools.hooks
    if not hooks.pre_compact:
        return focus_topic
    tokens = live.counter.estimate
    return hooks.compaction_focus(
        CompactionContext(live.conversation_id, live.id, reason, len(live.entries), tokens, focus_topic)
    )


def _write(
    compaction: Compaction, live: LiveSession, deps: AgentDeps, reporting: Reporting, *, reason: str
) -> Compaction:
    """Store a continuation session and the compaction event, run the hooks, collect the events. For a worker thread."""
    compaction = keep_essentials(compaction)
    prompt_before, previous_id = live.counter.estimate, live.id
    if not compaction.is_noop:
        _rotate(compaction, live, deps, focus=reason)
    payload = {
        "outcome": compaction.outcome,
        "reason": reason,
        "before": compaction.before_tokens,
        "after": compaction.after_tokens,
        # The same by the one counter, as gauge, gate and chart have it: system prompt and tools included, calibrated.
        "prompt_before": prompt_before,
        "prompt_after": live.counter.estimate,
        "threshold": live.window.threshold_tokens if live.window is not None else None,
        "cost_usd": compaction.handoff_data.cost_usd if compaction.handoff_data is not None else None,
    }
    live.record(StoredEvent(live.id, "compaction", payload))
    live.flush()
    # From here on the figures are those of the gauge, so that every surface shows the same pair.
    compaction = replace(compaction, before_tokens=prompt_before, after_tokens=live.counter.estimate)
    if live.id != previous_id and deps.tools.hooks.post_compact:
        deps.tools.hooks.apply_post_compact(_outcome(compaction, live, previous_id, reason))
    reporting.events.append(
        CompactionFinished(
            compaction.outcome, compaction.before_tokens, compaction.after_tokens, live.id, compaction.message
        )
    )
    reporting.events += [Notice(t, "warning") for t in (*compaction.notices, *deps.engine.take_notices())]
    return compaction


def _outcome(compaction: Compaction, live: LiveSession, previous_id: str, reason: str) -> StoredCompaction:
    handoff = next((e.message.text for e in reversed(live.entries) if e.message.kind == "handoff"), "")
    return StoredCompaction(
        live.conversation_id,
        live.id,
        previous_id,
        reason,
        compaction.outcome,
        compaction.before_tokens,
        compaction.after_tokens,
        handoff,
    )


def _rotate(compaction: Compaction, live: LiveSession, deps: AgentDeps, *, focus: str) -> None:
    deps.memory.flush()
    old = live.session
    prompt = refresh_prompt(old.system_prompt, deps.memory.snapshot(deps.user.stored_key), deps.prompt_sources)
    with live.checked_write():
        child = deps.store.compact(
            old.id,
            plan_over_log(compaction, live.entries),
            system_prompt=None if prompt == old.system_prompt else prompt,
            up_to_seq=live.newest_seq if live.entries else None,
            lease=live.lease,
        )
        history = deps.store.history(child.id)
    live.move_to(child, _reuse_entries(history.entries, live.entries))
    deps.engine.on_session_start(child.id, reason="compression", previous=old.id)


def edit_plan(entries: Sequence[Entry], edited: str) -> Plan:
    """Return a plan in which the newest handoff has the sections of `edited`. Raises NotFound, ConfigError."""
    at = next((n for n in reversed(range(len(entries))) if entries[n].message.kind == "handoff"), None)
    if at is None:
        raise NotFound("nothing was compacted: there is no handoff to edit")
    message = entries[at].message
    first, *others = message.parts
    assert isinstance(first, TextPart)
    text = edit_handoff(first.text, edited)
    changed = message.with_content((replace(first, text=text), *others) if others else text)
    spans = [
        [Span(lo, hi) for lo, hi in intervals_of(e.seq for e in part)] for part in (entries[:at], entries[at + 1 :])
    ]
    return (*spans[0], NewHandoff(changed, check={"edited": True}), *spans[1])


def _reuse_entries(entries: Sequence[Entry], current: Sequence[Entry]) -> list[Entry]:
    """Return the entries of the new view; messages that were kept keep their cached sizes and bytes."""
    by_seq = {e.seq: e for e in current}
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
        handoff_data=compaction.handoff_data,
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
    handoff = compaction.handoff_data
    if handoff is None:
        return NewHandoff(step.message)
    return NewHandoff(
        step.message,
        model=handoff.model,
        focus=handoff.focus_topic or "",
        cost_usd=handoff.cost_usd,
        check={"findings": list(handoff.findings)},
    )


# Preparation starts at this share of the threshold, early enough for a slow summary.
NEAR = 0.85


@dataclass(frozen=True, slots=True)
class _Preparation:
    """A compaction prepared in the background, pending or finished."""

    snapshot: tuple[Entry, ...]
    task: asyncio.Task[Compaction | None]


class Background:
    """Prepares at most one compaction at a time: runs the engine on a snapshot while the conversation continues."""

    def __init__(
        self,
        engine: ContextEngine,
        run: RunInThread = run_shielded,
        *,
        on_end: Callable[[], None] | None = None,
        focus: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._run = run
        # Called in a worker thread: once a preparation has ended, however it ended, and when it begins, for its topic.
        self._on_end = on_end
        self._focus = focus
        self._current: _Preparation | None = None

    @property
    def is_preparing(self) -> bool:
        return self._current is not None and not self._current.task.done()

    @property
    def is_ready(self) -> bool:
        return self._current is not None and self._current.task.done()

    def is_due(self, prompt_tokens: int, threshold_tokens: int) -> bool:
        """Whether the prompt is near the threshold and no preparation has been started."""
        return self._current is None and NEAR * threshold_tokens <= prompt_tokens

    def start(self, entries: Sequence[Entry]) -> bool:
        """Start to prepare a compaction of these entries on the running loop; return False if one was started."""
        if self._current is not None:
            return False
        snapshot = tuple(entries)
        self._current = _Preparation(snapshot, asyncio.create_task(self._prepare(snapshot)))
        return True

    async def _prepare(self, snapshot: tuple[Entry, ...]) -> Compaction | None:
        try:
            return await run_steps(self._steps(snapshot), self._run)
        except Exception:  # a plug-in may raise anything; the next pass in the foreground reports it
            return None
        finally:
            if self._on_end is not None:
                await self._run(self._on_end)

    def _steps(self, snapshot: tuple[Entry, ...]) -> Steps[Compaction]:
        focus = self._focus()
        return (yield from self._engine.compress_steps(snapshot, focus_topic=focus, reason="background"))

    def take(self, entries: Sequence[Entry], *, least_freed_tokens: int = 0, model: str = "") -> Compaction | None:
        """Return the prepared compaction for the current history, once; None while pending or if it is stale.

        It is stale when the history no longer begins with the snapshot (an undo, another compaction), when it changes
        nothing, or when it frees less than `least_freed_tokens`, counted for `model`.
        """
        job = self._current
        if job is None or not job.task.done():
            return None
        self._current = None
        compaction = job.task.result() if not job.task.cancelled() else None
        if compaction is None or compaction.is_noop or not _begins_with(entries, job.snapshot):
            return None
        if compaction.before_tokens - compaction.after_tokens < least_freed_tokens:
            return None
        return _with_later(compaction, entries, len(job.snapshot), model)

    async def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for a running preparation; return whether a finished one can be taken."""
        if self._current is not None:
            await asyncio.wait([self._current.task], timeout=timeout_s)
        return self.is_ready

    def cancel(self) -> asyncio.Task[Compaction | None] | None:
        """Discard the preparation, from any thread; return its task, to wait for its end, or None if it has ended."""
        job, self._current = self._current, None
        if job is None or job.task.done():
            return None
        job.task.get_loop().call_soon_threadsafe(job.task.cancel)
        return job.task


def _with_later(compaction: Compaction, entries: Sequence[Entry], start: int, model: str) -> Compaction:
    """Extend a compaction of the first `start` entries to all entries, including its counts and message."""
    later = sum(tokens_of(entry, model) for entry in entries[start:])
    before, after = compaction.before_tokens + later, compaction.after_tokens + later
    message, count = compaction.message, len(entries) - start
    if count:
        since = f"{count:,} message{'' if count == 1 else 's'} added since"
        message = f"{message} Prepared in the background, with {since}.".strip()
    return replace(
        compaction,
        plan=compaction.followed_by(start, len(entries)),
        before_tokens=before,
        after_tokens=after,
        message=message,
        source=entries,
    )


def _begins_with(entries: Sequence[Entry], snapshot: Sequence[Entry]) -> bool:
    return len(entries) >= len(snapshot) and all(
        now.seq == then.seq and (now.message is then.message or now.message == then.message)
        for now, then in zip(entries, snapshot, strict=False)
    )


# Longer than any summary takes: the engine gives up on a slow one by itself.
_LONGEST_WAIT_S = 300.0

AfterTurn = Literal["compact", "prepare"]


class CompactionGate:
    """Decides for one conversation when to compact, and has it done: before each model call and after each turn."""

    def __init__(self, deps: AgentDeps, live: LiveSession, emit: Emit) -> None:
        self._deps = deps
        self._live = live
        self._emit = emit
        # The call for a summary is recorded even if the conversation does not continue.
        self._background = Background(deps.engine, on_end=live.flush, focus=lambda: _focus(live, deps, "background"))
        self.cost = CostRule(deps, live)

    async def before_call(self, spent: Spent, *, max_tokens: int | None, is_turn_start: bool = True) -> None:
        """Compact if a compaction is due, and spill unread tool results that still do not fit. Raises SpendingLimit."""
        self._check_money(spent, max_tokens)
        counter = self._live.counter
        reported = None if is_turn_start else counter.last_prompt_tokens
        if self.cost.is_near:
            await self._deps.run_blocking(self.cost.load)
        await self.spill_what_no_compaction_fits()
        requested = self._live.take_compaction_request()
        if requested is not None:
            self._background.cancel()
            await compact(self._live, self._deps, self._emit, reason="model", focus_topic=requested or None)
        judged = counter.estimate if reported is None else reported
        if self._is_compaction_due(judged) and await self._deps.run_blocking(self._has_content):
            await self._compact("cold" if self.cost.is_advanced(judged) else "preflight")
        await self.spill_overflow()

    def decide_after_turn(self) -> AfterTurn | None:
        """Decide after a turn whether to compact or to prepare a compaction (None: neither). For a worker thread."""
        if self.cost.is_near:
            self.cost.load()
        is_due = self._is_compaction_due(self._live.counter.estimate, is_idle=True)
        if not (is_due or self._is_preparation_due()) or not self._has_content():
            return None
        return "compact" if is_due else "prepare"

    async def after_turn(self, action: AfterTurn | None) -> None:
        """Compact, or start a background preparation, as `decide_after_turn` returned."""
        if action == "compact":
            await self._compact("threshold")
        elif action == "prepare":
            self._background.start(await self._deps.run_blocking(self._snapshot))

    async def wait_for_preparation(self) -> None:
        """Wait for a running background preparation, so that its timing cannot affect the next turn (replays)."""
        await self._background.wait(_LONGEST_WAIT_S)

    def cancel_preparation(self) -> asyncio.Task[Compaction | None] | None:
        """Discard a background preparation; return its task, to wait for its end, or None if none was running."""
        return self._background.cancel()

    # -- unread results ----------------------------------------------------------------------------------------------

    async def spill_what_no_compaction_fits(self) -> bool:
        """Spill unread results that no compaction of earlier messages could make room for; return whether any were."""
        if self._window is None or not self.is_over_window:
            return False
        counter, budgets = self._live.counter, self._window.budgets
        group = self._list_unread()
        if not group:
            return False
        first = group[0].seq
        request = next((e for e in reversed(self._live.view) if e.message.is_request), None)
        others = counter.fixed_tokens + budgets.handoff_tokens + budgets.head_tokens
        if request is not None and request.seq < first:
            others += counter.tokens_of(entry_figures(request))
        excess = others + counter.tokens_of(sum_figures(map(entry_figures, group))) - budgets.largest_prompt_tokens
        return await self._spill(group, excess)

    async def spill_overflow(self) -> bool:
        """Spill unread results, then shorten reasoning, until the request fits; return whether the view changed."""
        if self._window is None or not self.is_over_window:
            return False
        excess = self._live.counter.estimate - self._window.budgets.largest_prompt_tokens
        has_spilled = await self._spill(self._list_unread(), excess)
        # The last thing that can give way: with less of it a model may answer worse, with all of it none will.
        return (self.is_over_window and await self._deps.run_blocking(self._live.shorten_reasoning)) or has_spilled

    async def shed_more(self) -> bool:
        """Spill one more unread result, else shorten reasoning, after the provider rejected the prompt as too long."""
        return await self._spill(self._list_unread(), 1) or await self._deps.run_blocking(self._live.shorten_reasoning)

    @property
    def is_over_window(self) -> bool:
        """Whether the next request leaves no room for a response."""
        return self._window is not None and self._live.counter.estimate > self._window.budgets.largest_prompt_tokens

    @property
    def _window(self) -> ContextWindow | None:
        return self._live.window

    def _list_unread(self) -> Sequence[Entry]:
        """Return the newest tool-calling message and its unread results."""
        view = self._live.view
        start = find_unread([e.message for e in view])
        return view[start:] if start is not None else ()

    async def _spill(self, group: Sequence[Entry], excess_tokens: int) -> bool:
        if not group or excess_tokens <= 0:
            return False
        events: list[OutputSpilled] = []
        try:
            return await self._deps.run_blocking(partial(self._store_spilled, group, excess_tokens, events))
        finally:
            for event in events:
                self._emit(event)

    def _store_spilled(self, group: Sequence[Entry], excess_tokens: int, events: list[OutputSpilled]) -> bool:
        counter, by_seq = self._live.counter, {e.seq: e for e in group}

        def is_enough(texts: Mapping[int, str]) -> bool:
            freed = sum(
                counter.tokens_of(entry_figures(by_seq[seq]) - figures_of(with_text(by_seq[seq].message, text)))
                for seq, text in texts.items()
            )
            return freed >= excess_tokens

        tools, window = self._deps.tools, self._window
        limiter = tools.output_limiter
        texts, stored = spill_results(
            group,
            budgets=limiter if window is None else limiter.within(output_limits(self._deps.settings, window)),
            registry=tools.registry,
            conversation_id=self._live.conversation_id,
            is_enough=is_enough,
        )
        if texts:
            self._live.spill(texts)
        for call, output in stored:
            payload = {"tool": call.name, "call": call.id, "address": output.address, "chars": output.chars}
            self._live.record(StoredEvent(self._live.id, "spill", payload))
            events.append(OutputSpilled(call, output.address, output.chars))
        self._live.flush()
        return bool(texts)

    # -- compaction --------------------------------------------------------------------------------------------------

    def _is_compaction_due(self, tokens: int, *, is_idle: bool = False) -> bool:
        """Ask the engine whether to compact at `tokens`; a prompt larger than the window is judged by its estimate."""
        window = self._window
        if self.is_over_window:
            tokens = max(tokens, self._live.counter.estimate)
        if self.cost.is_held_back:
            return False
        if self._background.is_preparing and window is not None and tokens < _midway(window.budgets):
            return False
        # Checked here too: a plug-in engine may not know the setting.
        is_enabled = self._deps.settings.compression.enabled
        return is_enabled and self._deps.engine.should_compress(self.cost.judged_tokens(tokens, is_idle=is_idle))

    def _is_preparation_due(self) -> bool:
        if self._window is None or not self._deps.settings.compression.enabled or self._live.was_undone:
            return False
        return self._background.is_due(self._live.counter.estimate, self._window.threshold_tokens)

    def _has_content(self) -> bool:
        return self._deps.engine.has_content_to_compress(self._live.view)

    def _snapshot(self) -> tuple[Entry, ...]:
        return tuple(self._live.view)

    async def _compact(self, reason: Reason) -> Compaction:
        if self._background.is_preparing:
            # Nearly there, and begun earlier than anything that could be begun now.
            await self._background.wait(_LONGEST_WAIT_S)
        prepared = self._background.take(
            self._live.view, least_freed_tokens=self._least_freed(), model=self._deps.routes.endpoint.model
        )
        if prepared is not None:
            return await carry_out(prepared, self._live, self._deps, self._emit, reason="background")
        self._background.cancel()
        return await compact(self._live, self._deps, self._emit, reason=reason)

    def _least_freed(self) -> int:
        """Return the tokens (uncalibrated) that a prepared compaction must free so that no second one follows soon."""
        if self._window is None:
            return 0
        counter = self._live.counter
        too_much = counter.estimate - NEAR * self._window.threshold_tokens
        return math.ceil(max(0.0, too_much) / counter.calibration.ratio)

    def _check_money(self, spent: Spent, max_tokens: int | None) -> None:
        limits = self._deps.settings.limits
        if (limits.max_cost_per_turn, limits.max_cost_per_session, limits.max_cost_per_day) == (None, None, None):
            return
        # Nothing cached and the whole allowance used: what the call may cost at most.
        worst = CanonicalUsage(input_tokens=self._live.counter.estimate, output_tokens=max_tokens or 0)
        check_spending(limits, spent, self._deps.models.cost_usd(self._deps.routes.endpoint, worst))


def _midway(budgets: WindowBudgets) -> int:
    """Midpoint between the threshold and the room of the window."""
    return (budgets.threshold_tokens + budgets.room_tokens) // 2
