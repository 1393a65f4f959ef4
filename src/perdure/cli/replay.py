"""`perdure replay`: measure offline what another context policy would have cost and forgotten."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perdure.cli.output import echo

if TYPE_CHECKING:
    from perdure.lab.replay.batch import PolicyTotals, RecordedBill, ReplayResult
    from perdure.lab.replay.sessions import RecordedSession

_BAR_CELLS = 24
_MOST_FAILURES = 5


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policy_texts",
    multiple=True,
    metavar="NAME[:key=value,…]",
    help="A policy to replay under; may be repeated. Default: recorded, none, truncate, mask, hermes, digest and"
    " compressor.",
)
@click.option(
    "--window",
    "windows",
    multiple=True,
    type=click.IntRange(min=8_000),
    default=(200_000,),
    show_default=True,
    help="The model's context window in tokens; may be repeated.",
)
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report to this file.")
@click.option(
    "--results",
    "results_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write each result to this file at once, and skip those it already holds.",
)
@click.option("--processes", type=click.IntRange(1, 256), help="Replays at a time. Default: one per processor.")
@click.option("--json", "is_json", is_flag=True, help="Print the totals as JSON instead of a table.")
def replay(
    files: tuple[Path, ...],
    policy_texts: tuple[str, ...],
    windows: tuple[int, ...],
    report: Path | None,
    results_path: Path | None,
    processes: int | None,
    is_json: bool,
) -> None:
    """Measure what another context policy would have cost and forgotten.

    FILES are logs of Perdure (`perdure sessions export`), Claude Code, Codex or pi, OpenAI-style messages (JSON, or
    JSONL with one session a line), or folders of them. Each session runs through the real agent with the recorded
    replies and tool results. Nothing is sent anywhere, and nothing is stored but the report and the results file.

    \b
    Policies:
      none          send everything, as if the window had no end
      truncate      drop the oldest messages            (threshold, keep)
      mask          replace old tool outputs            (threshold, keep_results, target)
      hermes        Hermes' documented policy      (threshold, target, protect_first, protect_last)
      digest        the compressor without a model      (any `compression` setting)
      compressor    the built-in engine                 (any `compression` setting)
      windows       fresh windows with a notebook       (any `compression` setting)
      recorded      what the recording agent did
      NAME          any installed context engine

    \b
    Examples:
      perdure replay ~/.claude/projects/my-project --report report.html
      perdure replay talk.jsonl --policy compressor --policy compressor:threshold=0.7 --window 64000
      perdure replay sessions.jsonl.gz --results results.jsonl --json
    """
    from perdure.lab.replay.batch import RecordedBill, ResultsFile, make_jobs, run_jobs, total_results
    from perdure.lab.replay.importers import count_sessions, find_logs
    from perdure.lab.replay.policies import DEFAULT_POLICIES, parse_policy, unique_policies

    policies = unique_policies(map(parse_policy, policy_texts or DEFAULT_POLICIES))
    sizes = sorted(set(windows))
    if report is not None and not report.absolute().parent.is_dir():
        raise click.ClickException(f"cannot write {report}: there is no folder {report.absolute().parent}")
    logs = list({path.resolve(): path for path in find_logs(files)}.values())
    bill = RecordedBill()
    reader = _LogReader()
    total = sum(map(count_sessions, logs)) * sum(len(sizes) if p.has_window else 1 for p in policies)
    jobs = make_jobs(reader.read(logs), policies, sizes, on_session=bill.add, on_copy=reader.add_copy)
    stored = ResultsFile(results_path) if results_path is not None else None
    results = list(_with_progress(run_jobs(jobs, processes=processes, results=stored), total))
    totals = total_results(results)
    if report is not None and totals:
        _write_report(report, totals, results, bill)
    if is_json:
        click.echo(_as_json(totals, results, bill))
    elif totals:
        for line in table_lines(totals, bill):
            echo(line)
        if report is not None:
            echo(f"\nReport: {report}")
    reader.show_notices()
    _show_failures(results, reader.unread)


def _write_report(path: Path, totals: list[PolicyTotals], results: Iterable[ReplayResult], bill: RecordedBill) -> None:
    from perdure.core.files import AtomicFile, mode_of
    from perdure.lab.replay.report import render_report

    try:
        with AtomicFile(path, mode=mode_of(path)) as file:
            file.write(render_report(totals, results, bill).encode())
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None


class _LogReader:
    """Reads the sessions of all logs; collects what is unreadable or a copy of another session."""

    def __init__(self) -> None:
        # By reason.
        self.unread: dict[str, list[Path]] = {}
        self._copies: dict[str, None] = {}
        self._skipped: dict[Path, list[int]] = {}

    def read(self, logs: Iterable[Path]) -> Iterator[RecordedSession]:
        from perdure.core.errors import ConfigError
        from perdure.lab.replay.importers import read_sessions

        for path in logs:
            lines = self._skipped.setdefault(path, [])
            try:
                yield from read_sessions(path, on_skip=lines.append)
            except ConfigError as error:
                self.unread.setdefault(str(error), []).append(path)

    def add_copy(self, session: RecordedSession) -> None:
        self._copies[session.id] = None

    def show_notices(self) -> None:
        """Name the lines that were skipped and the sessions that are copies."""
        for path, lines in ((path, lines) for path, lines in self._skipped.items() if lines):
            numbers = ", ".join(map(str, lines[:_MOST_FAILURES])) + (", …" if len(lines) > _MOST_FAILURES else "")
            noun = "line" if len(lines) == 1 else "lines"
            echo(f"perdure: {path}: skipped {len(lines):,} {noun} without a JSON object: {numbers}", err=True)
        if self._copies:
            names = ", ".join(list(self._copies)[:_MOST_FAILURES])
            more = len(self._copies) - _MOST_FAILURES
            end = f" and {more:,} more" if more > 0 else ""
            echo(f"perdure: in the logs more than once, counted once: {names}{end}", err=True)


def _with_progress(results: Iterable[ReplayResult], total: int) -> Iterator[ReplayResult]:
    is_shown = sys.stderr.isatty()
    for number, result in enumerate(results, 1):
        if is_shown:
            filled = _BAR_CELLS * min(number, total) // max(1, total)
            bar = "█" * filled + "░" * (_BAR_CELLS - filled)
            click.echo(f"\r{bar} {number:,} of {total:,} replays (Ctrl-C stops)", nl=False, err=True)
        yield result
    if is_shown:
        click.echo("\r\x1b[K", nl=False, err=True)


_Column = tuple[str, "Callable[[PolicyTotals], str]"]


def _cost_column(head: str, key: str) -> _Column:
    return head, lambda t: _dollars(t.cost_usd[key])


_COLUMNS: tuple[_Column, ...] = (
    _cost_column("cost", "anthropic-5m"),
    _cost_column("cost 1h", "anthropic-1h"),
    _cost_column("OpenAI", "openai"),
    _cost_column("DeepSeek", "deepseek"),
    ("hits", lambda t: f"{t.hit_rate:.1%}"),
    ("compact.", lambda t: f"{t.compactions:,}"),
    ("avoidable", lambda t: f"{t.rewrites_avoidable:,}"),
    ("mean", lambda t: f"{t.mean_tokens:,.0f}"),
    ("peak", lambda t: f"{t.peak_tokens:,}"),
    ("in view", lambda t: _share(t.memory)),
    ("context", lambda t: _share(t.in_context / t.needs if t.needs else None)),
    ("+ask", lambda t: _share(t.reach)),
    ("rules", lambda t: f"{t.violations:,}"),
)


def table_lines(totals: Iterable[PolicyTotals], bill: RecordedBill) -> Iterator[str]:
    """Yield the totals as tables, one for each window with a row for each policy."""
    from perdure.lab.replay.report import count_noun, coverage_line, unlimited_line

    rows = list(totals)
    width = max([len(t.policy) for t in rows] + [10])
    has_failures = any(t.failed for t in rows)
    heads = [*(("sessions", "failed") if has_failures else ()), *(head for head, _ in _COLUMNS)]
    for window in sorted({t.window for t in rows}):
        yield f"Window {window:,} tokens"
        yield f"  {'policy':<{width}}" + "".join(f" {head:>9}" for head in heads)
        for t in (t for t in rows if t.window == window):
            counts = (f"{t.sessions:,}", f"{t.failed:,}") if has_failures else ()
            yield f"  {t.policy:<{width}}" + "".join(f" {cell:>9}" for cell in (*counts, *_cells(t)))
        yield ""
    if has_failures:
        yield coverage_line(rows)
    if bill.calls:
        calls, sessions = count_noun(bill.calls, "call"), count_noun(bill.sessions, "session")
        yield f"The recorded bill: {calls} of {sessions}, ${_dollars(bill.cost_usd)}, the"
        yield "recording agent's own system prompt and tools included."
    yield "cost: US dollars at Anthropic's prices with a cache of 5 minutes; in view: later-needed facts in the prompt;"
    yield "context: those near their words; +ask: in view, or in the first hits of one search; avoidable: full rewrites"
    yield "of a live cache; rules: requests that a service would refuse."
    if rows:
        yield f"in view, context and +ask are shares of {count_noun(max(t.needs for t in rows), 'later-needed fact')}."
    if unlimited := unlimited_line(rows):
        yield unlimited


def _cells(t: PolicyTotals) -> Iterator[str]:
    return (cell(t) if t.sessions else "–" for _, cell in _COLUMNS)


def _dollars(amount: float) -> str:
    from perdure.lab.replay.report import dollars

    return dollars(amount)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _as_json(totals: Iterable[PolicyTotals], results: Iterable[ReplayResult], bill: RecordedBill) -> str:
    from perdure.lab.replay.batch import FailedReplay

    failed = [asdict(r) for r in results if isinstance(r, FailedReplay)]
    figures = {"totals": [_totals_json(t) for t in totals], "failed": failed, "recorded": _bill_json(bill)}
    return json.dumps(figures, indent=2)


def _totals_json(t: PolicyTotals) -> dict[str, object]:
    return {**asdict(t), "hit_rate": t.hit_rate, "memory": t.memory, "reach": t.reach}


def _bill_json(bill: RecordedBill) -> dict[str, object] | None:
    if not bill.calls:
        return None
    return {"sessions": bill.sessions, "calls": bill.calls, "usage": asdict(bill.usage), "cost_usd": bill.cost_usd}


def _unread_lines(unread: Mapping[str, Sequence[Path]]) -> Iterator[str]:
    """Return one line per error message: hundreds of files in a folder may raise the same one."""
    for reason, paths in unread.items():
        more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        yield f"{paths[0]}{more}: {reason}"


def _show_failures(results: Iterable[ReplayResult], unread: Mapping[str, Sequence[Path]]) -> None:
    """Name what could not be read or replayed; exit status 1 where nothing could."""
    from perdure.lab.replay.batch import FailedReplay
    from perdure.lab.replay.report import failure_lines

    every = list(results)
    lines = [*_unread_lines(unread), *failure_lines(every)]
    for line in lines[:_MOST_FAILURES]:
        echo(f"perdure: not replayed: {line}", err=True)
    more = len(lines) - _MOST_FAILURES
    if more > 0:
        echo(f"perdure: and {more:,} more", err=True)
    if all(isinstance(r, FailedReplay) for r in every):
        raise SystemExit(1)
