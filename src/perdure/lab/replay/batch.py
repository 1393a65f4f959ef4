"""Replay many sessions under many policies: in parallel, resumable, and with totals per policy.

Sessions are read while others are replayed; only a few are in memory at a time. Each result is appended to a results
file as soon as it is there, and a later run skips what the file holds.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

from perdure import __version__
from perdure.core.concurrency import describe_error
from perdure.core.errors import ConfigError
from perdure.core.usage import CanonicalUsage
from perdure.lab.replay.measures import CompactionDetail, DroppedMessage, MissedFact, SessionMeasures
from perdure.lab.replay.policies import Policy
from perdure.lab.replay.prices import MAIN_SYSTEM, PRICE_SYSTEMS
from perdure.lab.replay.run import ReplayJob, remove_scratch, replay
from perdure.lab.replay.sessions import RecordedSession, RecordedUsage, read_turns, session_digest
from perdure.testing.simulator import count_text

# Raised when a measure changes its meaning: results of another format are computed again.
FORMAT = 6
# How each line of a results file begins.
_RESULT_START = '{"key": "'
# Jobs that wait for a process, for each process.
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class FailedReplay:
    """A replay that could not be finished, and the reason."""

    session: str
    policy: str
    window: int
    error: str


ReplayResult = SessionMeasures | FailedReplay


def job_key(job: ReplayJob) -> str:
    """Return a key for one replay: the same session, policy, window and version give the same figures."""
    parts = (FORMAT, __version__, session_digest(job.session), job.policy.label, job.window)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


class ResultsFile:
    """Results by key, one JSON line each; a last line that was cut off is ignored.

    Raises ConfigError for a file that holds anything else: results are not appended to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[str, SessionMeasures] = {}
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if text and not text.startswith(_RESULT_START):
            raise ConfigError(f"{path} is not a results file: its first line is not a result; name another file")
        self._is_cut = bool(text) and not text.endswith("\n")
        for line in text.split("\n"):
            self._load(line)

    def get(self, key: str) -> SessionMeasures | None:
        return self._done.get(key)

    def add(self, key: str, measures: SessionMeasures) -> None:
        line = json.dumps({"key": key, "measures": asdict(measures)}, ensure_ascii=False)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"\n{line}\n" if self._is_cut else f"{line}\n")
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error.strerror}") from error
        self._is_cut = False

    def _load(self, line: str) -> None:
        try:
            row = json.loads(line)
            self._done[row["key"]] = measures_from_dict(row["measures"])
        except (ValueError, KeyError, TypeError):
            return


def end_with_parent() -> None:
    """End this worker process as soon as the one that started it has ended, even by a signal."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            remove_scratch()
            os._exit(1)

    threading.Thread(target=watch, name="replay-parent", daemon=True).start()


def measures_from_dict(raw: Mapping[str, Any]) -> SessionMeasures:
    """Rebuild measures from the dict that `dataclasses.asdict` made of them."""
    details = tuple(
        CompactionDetail(**{**d, "dropped": tuple(DroppedMessage(**m) for m in d["dropped"])}) for d in raw["details"]
    )
    missed = tuple(MissedFact(**m) for m in raw["missed"])
    return SessionMeasures(**{**raw, "context": tuple(raw["context"]), "details": details, "missed": missed})


def run_jobs(
    jobs: Iterable[ReplayJob], *, processes: int | None = None, results: ResultsFile | None = None
) -> Iterator[ReplayResult]:
    """Yield the result of each job as it is done; a failed one does not stop the others."""
    workers = processes or os.cpu_count() or 1
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=end_with_parent)
    pending: dict[Future[ReplayResult], str] = {}
    try:
        for job in jobs:
            key = job_key(job)
            if results is not None and (stored := results.get(key)) is not None:
                # A copy of a session may have another id.
                yield replace(stored, session=job.session.id)
                continue
            if len(pending) >= workers * _AHEAD:
                yield from _collect_finished(pending, results)
            pending[pool.submit(run_job, job)] = key
        while pending:
            yield from _collect_finished(pending, results)
    finally:
        pool.shutdown(cancel_futures=True)


def run_job(job: ReplayJob) -> ReplayResult:
    """Replay one job; a failure is returned as FailedReplay, never raised."""
    try:
        return replay(job)
    except Exception as error:  # one broken log must not stop the rest of a batch
        return FailedReplay(job.session.id, job.policy.label, job.window, describe_error(error))


def _collect_finished(pending: dict[Future[ReplayResult], str], results: ResultsFile | None) -> Iterator[ReplayResult]:
    done, _ = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        key, result = pending.pop(future), future.result()
        if results is not None and isinstance(result, SessionMeasures):
            results.add(key, result)
        yield result


@dataclass(frozen=True, slots=True)
class PolicyTotals:
    """The totals of one policy at one window, over the sessions that all of them completed at every window."""

    policy: str
    window: int
    sessions: int
    # Sessions that this policy could not finish, and those that it finished but another policy did not.
    failed: int
    left_out: int
    calls: int
    summary_calls: int
    usage: Mapping[str, Mapping[str, int]]
    cost_usd: Mapping[str, float]
    summary_cost_usd: Mapping[str, float]
    summary_small_usd: float
    summary_prefix_usd: float
    compactions: int
    rewrites_expired: int
    rewrites_compaction: int
    rewrites_avoidable: int
    peak_tokens: int
    mean_tokens: float
    needs: int
    in_view: int
    in_context: int
    one_question: int
    all_needs: int
    all_in_view: int
    instructions: int
    instructions_kept: int
    violations: int
    overflows: int
    own_s: float

    @property
    def hit_rate(self) -> float:
        used = self.usage.get(MAIN_SYSTEM, {})
        prompt = sum(used.get(k, 0) for k in ("input_tokens", "cache_read_tokens", "cache_write_tokens"))
        return used.get("cache_read_tokens", 0) / prompt if prompt else 0.0

    @property
    def memory(self) -> float | None:
        """The share of later-needed facts that were in the prompt; None if no fact was needed later."""
        return self.in_view / self.needs if self.needs else None

    @property
    def reach(self) -> float | None:
        """The share of later-needed facts that were in the prompt or found by one search."""
        return (self.in_view + self.one_question) / self.needs if self.needs else None


_SUMMED = (
    "calls",
    "summary_calls",
    "compactions",
    "rewrites_expired",
    "rewrites_compaction",
    "rewrites_avoidable",
    "needs",
    "in_view",
    "in_context",
    "one_question",
    "all_needs",
    "all_in_view",
    "instructions",
    "instructions_kept",
    "violations",
    "overflows",
)


def total_results(results: Iterable[ReplayResult]) -> list[PolicyTotals]:
    """Return one row of totals for each window and policy, sorted by both.

    To be comparable, all rows count the same sessions: those that every row completed. A row that completed none is
    ignored for this, and its totals are zero.
    """
    ordered = sorted(results, key=lambda r: (r.window, r.policy, r.session))
    rows = [(key, list(group)) for key, group in groupby(ordered, key=lambda r: (r.window, r.policy))]
    completed = [{r.session for r in group if isinstance(r, SessionMeasures)} for _, group in rows]
    shared = set.intersection(*filter(None, completed)) if any(completed) else set()
    return [_total(policy, window, group, shared) for (window, policy), group in rows]


def _total(policy: str, window: int, group: Sequence[ReplayResult], shared: Set[str]) -> PolicyTotals:
    completed = [r for r in group if isinstance(r, SessionMeasures)]
    done = [m for m in completed if m.session in shared]
    calls = sum(m.calls for m in done)
    return PolicyTotals(
        policy=policy,
        window=window,
        sessions=len(done),
        failed=len(group) - len(completed),
        left_out=len(completed) - len(done),
        usage={key: _sum_maps([m.usage[key] for m in done]) for key in PRICE_SYSTEMS} if done else {},
        cost_usd={key: round(sum(m.cost_usd[key] for m in done), 4) for key in PRICE_SYSTEMS},
        summary_cost_usd={key: round(sum(m.summary_cost_usd[key] for m in done), 4) for key in PRICE_SYSTEMS},
        summary_small_usd=round(sum(m.summary_small_usd for m in done), 4),
        summary_prefix_usd=round(sum(m.summary_prefix_usd for m in done), 4),
        peak_tokens=max((m.peak_tokens for m in done), default=0),
        mean_tokens=round(sum(m.mean_tokens * m.calls for m in done) / max(1, calls), 1),
        own_s=round(sum(m.own_s for m in done), 1),
        **{name: sum(getattr(m, name) for m in done) for name in _SUMMED},
    )


def _sum_maps(maps: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {key: sum(m[key] for m in maps) for key in maps[0]}


@dataclass
class RecordedBill:
    """The cost that the providers of the recording agents billed, as far as the logs have it."""

    sessions: int = 0
    calls: int = 0
    usage: CanonicalUsage = field(default_factory=CanonicalUsage)

    def add(self, session: RecordedSession) -> None:
        """Add a session. Logs often hold the usage of a reply's first moment only: then its output is counted here."""
        usages = session.usages
        if not usages:
            return
        self.sessions += 1
        self.calls += len(usages)
        billed = sum(map(_as_usage, usages), CanonicalUsage())
        self.usage += replace(billed, output_tokens=max(billed.output_tokens, _output_tokens(session)))

    @property
    def cost_usd(self) -> float:
        """The recorded cost, by the prices of the main price system."""
        return round(PRICE_SYSTEMS[MAIN_SYSTEM].cost_usd(self.usage), 4)


def _as_usage(raw: RecordedUsage) -> CanonicalUsage:
    return CanonicalUsage(**asdict(raw))


def _output_tokens(session: RecordedSession) -> int:
    steps = (step for turn in read_turns(session) for step in turn.steps)
    return sum(
        count_text(step.text) + count_text(step.thinking) + sum(count_text(c.arguments_text) for c in step.calls)
        for step in steps
    )


def unique_sessions(
    sessions: Iterable[RecordedSession], on_copy: Callable[[RecordedSession], None]
) -> Iterator[RecordedSession]:
    """Yield sessions of equal content once; where two have the same id, the second gets a numbered one."""
    digests: set[str] = set()
    ids: set[str] = set()
    for session in sessions:
        digest = session_digest(session)
        if session.messages and digest in digests:
            on_copy(session)
            continue
        digests.add(digest)
        names = (session.id if n == 1 else f"{session.id} ({n})" for n in count(1))
        unique_id = next(name for name in names if name not in ids)
        ids.add(unique_id)
        yield session if unique_id == session.id else replace(session, id=unique_id)


def make_jobs(
    sessions: Iterable[RecordedSession],
    policies: Sequence[Policy],
    windows: Sequence[int],
    *,
    on_session: Callable[[RecordedSession], None],
    on_copy: Callable[[RecordedSession], None] = lambda session: None,
) -> Iterator[ReplayJob]:
    """Yield one job for each session, window and policy; policies that ignore the window run once, at the largest."""
    for session in unique_sessions(sessions, on_copy):
        on_session(session)
        for window in windows:
            for policy in policies:
                if policy.has_window or window == windows[-1]:
                    yield ReplayJob(session, policy, window)
