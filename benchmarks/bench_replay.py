"""Money and memory of context policies on recorded sessions, beside Hermes' documented policy.

The settings in `CHOSEN` were chosen on every other session, beginning with the first; what they cost and remember is
measured on the others. `REPLAY_RESULTS=FILE python -m benchmarks replay` stores each result in a file and goes on where
an earlier run stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from benchmarks.data import EVAL, Skip
from benchmarks.table import Row
from perdure.lab.replay.batch import (
    PolicyTotals,
    RecordedBill,
    ReplayResult,
    ResultsFile,
    make_jobs,
    run_jobs,
    total_results,
)
from perdure.lab.replay.importers import read_sessions
from perdure.lab.replay.policies import parse_policy
from perdure.lab.replay.prices import MAIN_SYSTEM, PRICE_SYSTEMS
from perdure.lab.replay.sessions import RecordedSession

TITLE = "Context policies replayed on 30 recorded sessions (cost and later-needed facts, beside Hermes' policy)"
HERMES = "hermes"
OURS = ("compressor", "digest", "windows")
# Earlier compactions, a shorter tail and a longer record, by window.
_LESS_TAIL = "digest:cost_rule=both,target_ratio=0.1"
CHOSEN = {
    64_000: f"{_LESS_TAIL},cost_floor=0.5,threshold=0.35,record_ratio=0.1",
    200_000: f"{_LESS_TAIL},cost_floor=0.4,record_ratio=0.12,record_max_tokens=24000",
}
# Memories that differ by this little are equal.
EQUAL_POINTS = 1.0


def rows() -> Iterator[Row]:
    path = EVAL / "data" / "entire_cli.jsonl.gz"
    if not path.is_file():
        raise Skip(f"recorded sessions are not here ({path.name})")
    stored = os.environ.get("REPLAY_RESULTS")
    bill = RecordedBill()
    sessions = list(read_sessions(path))
    for session in sessions:
        bill.add(session)
    names = {window: (HERMES, *OURS, chosen) for window, chosen in CHOSEN.items()}
    jobs = chain.from_iterable(
        make_jobs(sessions, [parse_policy(name) for name in names[window]], [window], on_session=lambda session: None)
        for window in CHOSEN
    )
    started_s = time.monotonic()
    results = list(run_jobs(jobs, results=ResultsFile(Path(stored)) if stored else None))
    yield Row("recorded bill", bill.cost_usd, "$", note=f"{bill.calls:,} calls, with the agent's own prompt and tools")
    for window, chosen in CHOSEN.items():
        yield from _window_rows([t for t in total_results(results) if t.window == window], window, chosen)
        yield from _chosen_rows(_others(results, sessions, window), window, chosen)
    totals = total_results(results)
    yield Row("rule violations", sum(t.violations for t in totals), "", "<= 0")
    yield Row("sessions that could not be replayed", sum(t.failed for t in totals), "", "<= 0")
    note = f"{sum(t.own_s for t in totals):,.0f} s of processor time for {len(results)} replays"
    yield Row("whole run", time.monotonic() - started_s, "s", None if stored else "<= 300", note)


def _others(results: Sequence[ReplayResult], sessions: Sequence[RecordedSession], window: int) -> list[PolicyTotals]:
    """The totals over the sessions that nothing was chosen on."""
    unseen = {session.id for session in sessions[1::2]}
    return total_results(r for r in results if r.window == window and r.session in unseen)


def _window_rows(totals: Sequence[PolicyTotals], window: int, chosen: str) -> Iterator[Row]:
    name = f"{window // 1_000}K"
    for policy in (HERMES, *OURS, chosen):
        t = _of(totals, policy)
        note = f"{_points(t):.1f}% in view, {_context_points(t):.1f}% in context, {t.compactions} compactions"
        yield Row(f"{name} {policy}", t.cost_usd[MAIN_SYSTEM], "$", note=note)
    asked = _of(totals, "compressor")
    yield Row(f"{name} summaries, requests of their own", asked.summary_cost_usd[MAIN_SYSTEM], "$", note="main model")
    yield Row(f"{name} summaries, requests of their own", asked.summary_small_usd, "$", note="small model")
    yield Row(f"{name} summaries, behind the conversation", asked.summary_prefix_usd, "$", note="main model, cached")
    yield Row(f"{name} avoidable rewrites", sum(t.rewrites_avoidable for t in totals), "", "<= 0")


def _chosen_rows(totals: Sequence[PolicyTotals], window: int, chosen: str) -> Iterator[Row]:
    """What was chosen beside Hermes' policy, on sessions that it was not chosen on."""
    name = f"{window // 1_000}K, other half"
    hermes, ours = _of(totals, HERMES), _of(totals, chosen)
    for key, system in PRICE_SYSTEMS.items():
        ratio = ours.cost_usd[key] / hermes.cost_usd[key]
        yield Row(f"{name}: cost, {system.title}", ratio, "of Hermes", "<= 0.8" if key == MAIN_SYSTEM else None)
    yield Row(f"{name}: in view", _points(ours) - _points(hermes), "points", f">= {-EQUAL_POINTS}")
    yield Row(f"{name}: in context", _context_points(ours) - _context_points(hermes), "points")
    cheaper = [t for t in totals if t.cost_usd[MAIN_SYSTEM] <= hermes.cost_usd[MAIN_SYSTEM] and t is not hermes]
    best = max(cheaper, key=_points, default=None)
    if best is not None:
        gain = _points(best) - _points(hermes)
        yield Row(f"{name}: memory at no higher cost", gain, "points", "> 0", best.policy)


def _of(totals: Sequence[PolicyTotals], policy: str) -> PolicyTotals:
    return next(t for t in totals if t.policy == policy)


def _points(t: PolicyTotals) -> float:
    return 100 * (t.memory or 0.0)


def _context_points(t: PolicyTotals) -> float:
    return 100 * t.in_context / t.needs if t.needs else 0.0
