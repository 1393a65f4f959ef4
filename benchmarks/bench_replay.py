"""Money and memory of context policies on recorded sessions, beside Hermes' documented policy.

`REPLAY_RESULTS=FILE python -m benchmarks replay` stores each result in a file and goes on where an earlier run stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.data import EVAL, Skip
from benchmarks.table import Row
from perdure.lab.replay.batch import PolicyTotals, RecordedBill, ResultsFile, make_jobs, run_jobs, total_results
from perdure.lab.replay.importers import read_sessions
from perdure.lab.replay.policies import parse_policy
from perdure.lab.replay.prices import PRICE_SYSTEMS

TITLE = "Context policies replayed on 30 recorded sessions (cost and later-needed facts, beside Hermes' policy)"
WINDOWS = (64_000, 200_000)
HERMES = "hermes"
# The engine as it comes, and two points further down its cost: less context, earlier compactions.
OURS = (
    "compressor",
    "digest",
    "digest:threshold=0.4,target_ratio=0.1,record_ratio=0.06",
    "digest:threshold=0.3,record_ratio=0.06",
)
# Memories that differ by this little are equal.
EQUAL_POINTS = 1.0


def rows() -> Iterator[Row]:
    path = EVAL / "data" / "entire_cli.jsonl.gz"
    if not path.is_file():
        raise Skip(f"recorded sessions are not here ({path.name})")
    stored = os.environ.get("REPLAY_RESULTS")
    bill = RecordedBill()
    policies = [parse_policy(text) for text in (HERMES, *OURS)]
    jobs = make_jobs(read_sessions(path), policies, WINDOWS, on_session=bill.add)
    totals = total_results(run_jobs(jobs, results=ResultsFile(Path(stored)) if stored else None))
    yield Row("recorded bill", bill.cost_usd, "$", note=f"{bill.calls:,} calls, with the agent's own prompt and tools")
    for window in WINDOWS:
        at_window = [t for t in totals if t.window == window]
        yield from _window_rows(at_window, f"{window // 1_000}K")
    yield Row("rule violations", sum(t.violations for t in totals), "", "<= 0")
    yield Row("sessions that could not be replayed", sum(t.failed for t in totals), "", "<= 0")


def _window_rows(totals: Sequence[PolicyTotals], name: str) -> Iterator[Row]:
    hermes = next(t for t in totals if t.policy == HERMES)
    ours = [t for t in totals if t.policy != HERMES]
    for t in (hermes, *ours):
        note = f"{_points(t):.1f}% in view, {t.compactions} compactions"
        yield Row(f"{name} {t.policy}", t.cost_usd["anthropic-5m"], "$", note=note)
    equal = [t for t in ours if _points(t) >= _points(hermes) - EQUAL_POINTS]
    for key, system in PRICE_SYSTEMS.items():
        best = min(equal, key=lambda t: t.cost_usd[key], default=None)
        if best is not None:
            ratio = best.cost_usd[key] / hermes.cost_usd[key]
            bar = "<= 0.8" if key == "anthropic-5m" else None
            yield Row(f"{name} cost at equal memory, {system.title}", ratio, "of Hermes", bar, best.policy)
    cheap = [t for t in ours if t.cost_usd["anthropic-5m"] <= hermes.cost_usd["anthropic-5m"]]
    if cheap:
        best = max(cheap, key=_points)
        yield Row(f"{name} memory at equal cost", _points(best) - _points(hermes), "points", "> 0", best.policy)
    yield Row(f"{name} avoidable rewrites", sum(t.rewrites_avoidable for t in ours), "", "<= 0")


def _points(t: PolicyTotals) -> float:
    return 100 * (t.memory or 0.0)
