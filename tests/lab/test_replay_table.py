"""The figures of `perdure replay`: rows that can be compared, nothing summed twice, and what is missing is named."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure.cli.main import cli
from perdure.cli.replay import table_lines
from perdure.core.errors import ConfigError
from perdure.lab.replay.batch import (
    FailedReplay,
    RecordedBill,
    ReplayResult,
    ResultsFile,
    job_key,
    make_jobs,
    total_results,
)
from perdure.lab.replay.importers import find_logs, read_sessions
from perdure.lab.replay.measures import CompactionDetail, DroppedMessage, MissedFact, SessionMeasures
from perdure.lab.replay.policies import parse_policy
from perdure.lab.replay.prices import PRICE_SYSTEMS
from perdure.lab.replay.report import failure_lines, render_report
from perdure.lab.replay.run import ReplayJob, replay
from perdure.testing.simulator import count_text
from support.recorded import as_json, recorded_session

WINDOW = 16_000
USED = dict.fromkeys(("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"), 100)


def measures(session: str, policy: str, *, usd: float = 2.0, window: int = WINDOW) -> SessionMeasures:
    costs = dict.fromkeys(PRICE_SYSTEMS, usd)
    return SessionMeasures(
        session,
        policy,
        window,
        calls=4,
        usage=dict.fromkeys(PRICE_SYSTEMS, USED),
        cost_usd=costs,
        summary_cost_usd=dict.fromkeys(PRICE_SYSTEMS, 0.0),
        peak_tokens=900,
        mean_tokens=500.0,
        needs=5,
        in_view=4,
        in_context=3,
        context=(700, 900, 300, 400),
    )


def cells(results: Sequence[ReplayResult], policy: str) -> dict[str, str]:
    """One row of the table, by the heads of its columns."""
    lines = list(table_lines(total_results(results), RecordedBill()))
    row = next(line for line in lines if line.strip().startswith(f"{policy} "))
    heads, values = (
        [text[:12].strip(), *(c.strip() for c in re.findall(".{10}", text[12:]))] for text in (lines[1], row)
    )
    return dict(zip(heads, values, strict=True))


def table(results: Sequence[ReplayResult]) -> str:
    return "\n".join(table_lines(total_results(results), RecordedBill()))


def run(tmp_path: Path, logs: Sequence[Path], *options: str) -> Result:
    """The command with the results of `digest` stored before, so that no process is started."""
    results = tmp_path / "results.jsonl"
    for log in logs:
        for session in read_sessions(log) if log.is_file() else ():
            job = ReplayJob(session, parse_policy("digest"), WINDOW)
            ResultsFile(results).add(job_key(job), measures(session.id, "digest"))
    command = ["replay", *map(str, logs), "--window", str(WINDOW), "--policy", "digest", "--results", str(results)]
    return CliRunner().invoke(cli, [*command, *options])


def test_every_value_of_a_row_has_the_head_of_its_own_column() -> None:
    row = cells([measures("a", "digest")], "digest")
    assert (row["in view"], row["context"], row["+ask"], row["rules"]) == ("80.0%", "60.0%", "80.0%", "0")


def test_totals_are_over_the_sessions_that_every_policy_completed() -> None:
    results: list[ReplayResult] = [measures(s, "digest", usd=usd) for s, usd in (("a", 2.0), ("b", 7.0))]
    results += [measures("a", "hermes"), FailedReplay("b", "hermes", WINDOW, "the turn failed")]
    digest, hermes = total_results(results)
    assert digest.cost_usd == hermes.cost_usd
    assert (digest.sessions, digest.failed, digest.left_out) == (1, 0, 1)
    assert (hermes.sessions, hermes.failed, hermes.left_out) == (1, 1, 0)
    assert "over the 1 of 2 sessions that every policy completed" in table(results)
    assert cells(results, "hermes")["failed"] == "1"


def test_a_row_without_a_completed_session_has_no_figures() -> None:
    results: list[ReplayResult] = [measures("a", "digest"), FailedReplay("a", "hermes", WINDOW, "the turn failed")]
    row = cells(results, "hermes")
    assert {head for head, value in row.items() if value != "–"} == {"policy", "sessions", "failed"}
    assert cells(results, "digest")["cost"] == "2.00", "a policy that completes nothing does not empty the others"
    report = render_report(total_results(results), results, RecordedBill())
    assert "$" not in report.split("<tr><td>hermes</td>")[1].split("</tr>")[0]
    assert "Failed" not in render_report(total_results(results[:1]), results[:1], RecordedBill())
    heads, row_cells = (len(re.findall(tag, report.split("</table>")[0])) for tag in ("<th>", "<td>"))
    assert row_cells == 2 * heads


def test_a_failure_names_session_policies_and_a_short_reason() -> None:
    reason = "the turn failed: " + "too long " * 100
    results: list[ReplayResult] = [FailedReplay("a", policy, WINDOW, reason) for policy in ("hermes", "mask")]
    (line,) = failure_lines(results)
    assert line.startswith("a under hermes (16,000), mask (16,000): the turn failed: too long")
    assert len(line) < 240
    assert "the turn failed" in render_report(total_results(results), results, RecordedBill())


def test_a_policy_or_a_log_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    log, copy = tmp_path / "talk.json", tmp_path / "talk.json.gz"
    log.write_text(as_json(recorded_session(2)), encoding="utf-8")
    copy.write_bytes(gzip.compress(log.read_bytes()))
    result = run(tmp_path, [log, log, copy, tmp_path], "--policy", "digest", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["totals"]
    assert (row["sessions"], row["calls"]) == (1, 4)
    assert "counted once" in result.stderr


def test_different_sessions_with_one_id_are_numbered() -> None:
    sessions = [recorded_session(turns, name="talk") for turns in (2, 3)]
    jobs = make_jobs(sessions, [parse_policy("none")], [WINDOW], on_session=lambda session: None)
    assert [job.session.id for job in jobs] == ["talk", "talk (2)"]


def test_a_file_that_holds_no_results_is_not_written_to(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# Notes\n", encoding="utf-8")
    log = tmp_path / "talk.json"
    log.write_text(as_json(recorded_session(1)), encoding="utf-8")
    result = CliRunner().invoke(cli, ["replay", str(log), "--policy", "none", "--results", str(notes)])
    assert result.exit_code != 0
    assert isinstance(result.exception, ConfigError) or "not a results file" in result.output
    assert notes.read_text(encoding="utf-8") == "# Notes\n"


def test_a_result_behind_a_line_that_was_cut_off_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"key": "cut o', encoding="utf-8")
    ResultsFile(path).add("k", measures("a", "digest"))
    assert ResultsFile(path).get("k") == measures("a", "digest")


def test_the_number_of_facts_behind_a_share_is_shown() -> None:
    results = [measures("a", "digest")]
    assert "shares of 5 later-needed facts" in table(results)
    report = render_report(total_results(results), results, RecordedBill())
    assert "Facts in view, of 5<" in report
    assert "(5 facts in these sessions)" in report
    assert "<p>1 recorded session went" in report


def test_costs_below_a_dollar_have_four_decimals() -> None:
    results = [measures("a", "digest", usd=0.01234), measures("a", "hermes", usd=1.5)]
    assert [cells(results, policy)["cost"] for policy in ("digest", "hermes")] == ["0.0123", "1.50"]
    assert "$0.0123" in render_report(total_results(results), results, RecordedBill())


def test_a_policy_without_a_window_is_explained() -> None:
    assert "Policy “none” has no window limit" in table([measures("a", "none"), measures("a", "digest")])
    assert "no window limit" not in table([measures("a", "digest")])


def test_compactions_are_measured_like_the_prompts_and_say_how_to_open_an_address() -> None:
    dropped = DroppedMessage("m:3", "tool", 40, "text", is_line=False)
    detail = CompactionDetail(2, 111, 99, 1, 0, 1, 20, (dropped,))
    results = [replace(measures("a", "digest"), compactions=1, details=(detail,))]
    report = render_report(total_results(results), results, RecordedBill())
    assert "prompts of 900 → 300 tokens. 1 message stayed" in report
    assert "perdure sessions import" in report


def test_the_report_names_the_facts_that_were_needed_and_not_in_view() -> None:
    missed = (MissedFact(3, "src/<b>.py", True), MissedFact(4, "54817", False))
    results: list[ReplayResult] = [replace(measures("a", "digest"), in_view=3, missed=missed)]
    report = render_report(total_results(results), results, RecordedBill())
    assert "0 compactions, 2 needed facts not in view" in report
    assert "call 3: <code>src/&lt;b&gt;.py</code> (one question away)</li><li>call 4: <code>54817</code></li>" in report


def test_what_a_policy_forgot_is_stored_with_its_result(tmp_path: Path) -> None:
    job = ReplayJob(recorded_session(), parse_policy("truncate:keep=0.1"), WINDOW)
    result = replay(job)
    assert result.needs > result.in_view
    assert "54817" in [row.fact for row in result.missed]
    ResultsFile(tmp_path / "r.jsonl").add("key", result)
    assert ResultsFile(tmp_path / "r.jsonl").get("key") == result


def test_a_report_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    log = tmp_path / "talk.json"
    log.write_text(as_json(recorded_session(1)), encoding="utf-8")
    result = CliRunner().invoke(cli, ["replay", str(log), "--report", str(tmp_path / "no" / "r.html")])
    assert (result.exit_code, "there is no folder" in result.output) == (1, True), result.output


def test_files_that_are_left_out_for_one_reason_share_a_line(tmp_path: Path) -> None:
    for name in "abc":
        row = {"isSidechain": True, "type": "user", "uuid": name, "message": {"role": "user", "content": name}}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row), encoding="utf-8")
    result = CliRunner().invoke(cli, ["replay", str(tmp_path), "--policy", "none"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"{tmp_path / 'a.jsonl'} and 2 more: the log holds only the work of a sub-agent" in result.stderr


def test_the_id_of_a_stored_conversation_leads_to_its_export() -> None:
    result = CliRunner().invoke(cli, ["replay", "c_1m7g"])
    assert "perdure sessions export c_1m7g -o talk.jsonl" in result.output


def test_the_tokens_of_a_dropped_message_are_those_of_the_simulator() -> None:
    session = recorded_session()
    sizes = {count_text(str(m.body["content"])) for m in session.messages if m.body["role"] == "tool"}
    result = replay(ReplayJob(session, parse_policy("truncate"), WINDOW))
    assert {d.tokens for d in result.details[0].dropped if d.role == "tool"} <= sizes


def test_an_empty_folder_and_skipped_lines_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(ConfigError, match="no logs found in"):
        list(find_logs([folder]))
    log = tmp_path / "talk.jsonl"
    rows = [json.dumps(m.body) for m in recorded_session(1).messages]
    log.write_text("\n".join([rows[0], "{broken", "", *rows[1:], "[1]"]), encoding="utf-8")
    result = run(tmp_path, [log])
    assert f"talk.jsonl: skipped 2 lines without a JSON object: 2, {len(rows) + 3}" in result.stderr


def test_labels_of_the_plot_cover_no_point_no_other_label_and_no_axis() -> None:
    prices = {"none": 9.0, "mask": 0.1, "truncate": 0.1, "hermes": 9.0, "digest": 8.9, "digest:threshold=0.35": 8.8}
    results: list[ReplayResult] = [measures("a", policy, usd=usd) for policy, usd in prices.items()]
    plot = render_report(total_results(results), results, RecordedBill()).split("<svg")[1]
    circles = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', plot)]
    boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in circles]
    for x, y, anchor, name in re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]+)<', plot):
        if name in prices:
            width = 6.5 * len(name)
            left = float(x) - (width if anchor == "end" else 0)
            boxes.append((left, float(y) - 9, left + width, float(y) + 2))
    assert len(boxes) == 2 * len(prices)
    labels = boxes[len(prices) :]
    assert all(left > 56 and bottom < 244 for left, _, _, bottom in labels)
    for i, (left, top, right, bottom) in enumerate(labels, len(prices)):
        for x0, y0, x1, y1 in boxes[:i]:
            assert right <= x0 or left >= x1 or bottom <= y0 or top >= y1
