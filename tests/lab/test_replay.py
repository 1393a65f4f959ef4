"""A recorded session goes through the real agent under any policy, and what it cost and forgot is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.cli.main import cli
from perdure.core.errors import ConfigError
from perdure.lab.replay.batch import ResultsFile, job_key, run_job, total_results
from perdure.lab.replay.facts import Need, extract_facts, find_needs
from perdure.lab.replay.measures import SessionMeasures
from perdure.lab.replay.policies import parse_policy
from perdure.lab.replay.run import ReplayJob, replay
from perdure.lab.replay.sessions import RecordedMessage, RecordedSession, read_turns
from support.recorded import PORT, as_json, recorded_session

WINDOW = 16_000
POLICIES = ("none", "truncate", "mask", "hermes", "digest", "compressor", "windows")


def measured(policy: str, session: RecordedSession | None = None, window: int = WINDOW) -> SessionMeasures:
    return replay(ReplayJob(session or recorded_session(), parse_policy(policy), window))


@pytest.mark.spec("O8", "K1", "K2")
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_replays_all_recorded_replies_without_breaking_a_rule(policy: str) -> None:
    session = recorded_session()
    measures = measured(policy, session)
    assert measures.calls == sum(m.body["role"] == "assistant" for m in session.messages)
    assert measures.violations == 0
    assert measures.rewrites_avoidable == 0
    assert (measures.compactions > 0) == (policy != "none")
    if policy != "none":
        assert measures.peak_tokens <= WINDOW


@pytest.mark.spec("O8")
def test_what_was_said_first_and_needed_last_is_remembered_or_not() -> None:
    assert measured("none").needs == measured("none").in_view > 0
    forgetful, digest = measured("truncate"), measured("digest")
    assert forgetful.needs == digest.needs
    assert forgetful.in_view < digest.in_view == digest.needs
    assert digest.instructions_kept == digest.instructions > 0


@pytest.mark.spec("O8")
def test_two_replays_give_identical_numbers() -> None:
    first, second = (replace(measured("compressor"), own_s=0) for _ in range(2))
    assert first == second


def totals_as_json(policies: Sequence[str]) -> str:
    """Two sessions under some policies, as `--json` prints them, apart from the time they took."""
    sessions = (recorded_session(4, name="brisk"), recorded_session(4, name="slow", seconds=400.0))
    results = [run_job(ReplayJob(s, parse_policy(p), WINDOW)) for s in sessions for p in policies]
    return json.dumps([asdict(replace(t, own_s=0)) for t in total_results(results)])


@pytest.mark.spec("O8")
@pytest.mark.slow
def test_two_runs_with_different_hash_seeds_give_the_same_bytes() -> None:
    policies = ("hermes", "digest:cost_rule=both,cost_floor=0.3", "windows")
    script = f"from lab.test_replay import totals_as_json; print(totals_as_json({policies!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert other.stdout.strip() == totals_as_json(policies)


@pytest.mark.spec("O8")
def test_a_summary_is_billed_in_the_other_ways_it_could_have_been_requested() -> None:
    asked, digest = measured("compressor"), measured("digest")
    assert (digest.summary_small_usd, digest.summary_prefix_usd) == (0.0, 0.0)
    assert 0 < asked.summary_small_usd < asked.summary_cost_usd["anthropic-5m"]
    brisk, slow = (measured("compressor", recorded_session(seconds=s)).summary_prefix_usd for s in (10.0, 400.0))
    assert 0 < brisk < slow, "a prefix that has expired is read at the full price"


@pytest.mark.spec("O8")
def test_outputs_too_large_for_the_window_do_not_make_two_replays_differ() -> None:
    session = recorded_session()
    rows = [
        replace(m, body={**m.body, "content": f"{m.body['content']}\n" * 8}) if m.body["role"] == "tool" else m
        for m in session.messages
    ]
    large = replace(session, messages=tuple(rows))
    first, second = (replace(measured("hermes", large), own_s=0) for _ in range(2))
    assert any("persisted-output" in d.excerpt for detail in first.details for d in detail.dropped)
    assert first == second


@pytest.mark.spec("O8", "L4")
def test_a_pause_longer_than_the_cache_lives_is_paid_for() -> None:
    brisk, slow = (measured("none", recorded_session(3, seconds=s)) for s in (10.0, 400.0))
    assert brisk.usage["openai"]["cache_read_tokens"] > 0
    assert slow.usage["anthropic-5m"]["cache_read_tokens"] == 0
    assert slow.usage["anthropic-1h"]["cache_read_tokens"] > 0
    assert slow.cost_usd["anthropic-5m"] > brisk.cost_usd["anthropic-5m"]
    assert slow.rewrites_expired > 0
    assert slow.rewrites_avoidable == 0


def test_the_recorded_policy_compacts_where_the_recording_agent_did() -> None:
    session = recorded_session(4)
    summary = {
        "role": "user",
        "content": "This session is being continued from a previous conversation. Summary: none.",
    }
    messages = (*session.messages[:12], RecordedMessage(summary, session.messages[12].at_s), *session.messages[12:])
    measures = measured("recorded", replace(session, messages=messages))
    assert measures.compactions == 1
    assert measures.details[0].call == 6
    assert measured("none", replace(session, messages=messages)).compactions == 0


def test_a_compaction_lists_what_left_the_view_and_its_address() -> None:
    detail = measured("truncate").details[0]
    assert detail.removed > 0
    assert detail.after_tokens < detail.before_tokens
    assert all(d.address.startswith("m:") for d in detail.dropped)


def test_a_session_without_times_gets_the_same_pauses_every_time() -> None:
    session = recorded_session(3, seconds=None)
    sent = [[s.sent_s for t in read_turns(session) for s in t.steps] for _ in range(2)]
    assert sent[0] == sent[1] == sorted(sent[0])
    assert sent[0][-1] > sent[0][0]


def test_odd_logs_become_turns_an_agent_can_go_through() -> None:
    rows = [
        {"role": "assistant", "content": "A log may begin here."},
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "function": {"name": "x.y", "arguments": "[1"}}],
        },
        {"role": "user", "content": "stop"},
        {"role": "assistant", "content": "three"},
        {"role": "assistant", "content": "four"},
        {"role": "tool", "tool_call_id": "gone", "content": "nobody asked"},
    ]
    session = RecordedSession("odd", tuple(RecordedMessage(row) for row in rows))
    turns = read_turns(session)
    assert [t.text for t in turns] == ["(the log begins with a reply)", "one\n\ntwo", "stop"]
    assert turns[1].steps[0].calls[0].name == "x_y"
    assert not turns[1].steps[-1].calls
    assert turns[2].steps[0].text == "three\n\nfour"
    assert measured("digest", session).violations == 0


def test_a_reply_behind_a_final_reply_begins_a_turn_of_its_own() -> None:
    rows = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": " "},
        {"role": "assistant", "content": "more"},
    ]
    session = RecordedSession("two", tuple(RecordedMessage(row) for row in rows))
    assert [[s.text for s in t.steps] for t in read_turns(session)] == [["done"], ["more"]]
    assert measured("digest", session).calls == 2


def test_facts_are_exact_strings_and_far_ones_are_measured_in_tokens() -> None:
    text = "See src/app/main.py, https://example.org/a?b=1, 4f2a9c1d, maxRetries_total, HTTPServer in 2024 or 54817."
    assert {"src/app/main.py", "https://example.org/a?b=1", "4f2a9c1d", "maxRetries_total", "54817"} <= extract_facts(
        text
    )
    assert "2024" not in extract_facts(text)
    needs = find_needs(read_turns(recorded_session()))
    port = next(n for n in needs[-2] if n.fact == PORT)
    assert port.is_far
    assert PORT not in port.question
    assert not Need("x", 10).is_far


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("forget", "no policy 'forget'"),
        ("truncate:hold=1", "no 'hold'"),
        ("truncate:keep", "key=value"),
        ("compressor:threshold=7", "threshold"),
        ("recorded:x=1", "no parameters"),
        ("none:threshold=0.5", "no parameters"),
        ("hermes:threshold=-1", "threshold = -1 is not allowed"),
        ("hermes:threshold=nan", "threshold = nan is not allowed"),
        ("truncate:keep=much", "above 0, at most 1"),
        ("mask:keep_results=2.5", "a whole number from 0"),
        ("hermes:protect_first=-1", "a whole number from 0"),
        ("digest:threshold=0.5,threshold=0.9", "given twice"),
        ("digest:summarize=true", "never asks a model"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_policy(text)


def test_a_results_file_is_taken_up_again(tmp_path: Path) -> None:
    job = ReplayJob(recorded_session(2), parse_policy("none"), WINDOW)
    path = tmp_path / "results.jsonl"
    result = run_job(job)
    assert isinstance(result, SessionMeasures)
    ResultsFile(path).add(job_key(job), result)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key": "cut o')
    assert ResultsFile(path).get(job_key(job)) == result
    assert ResultsFile(path).get(job_key(replace(job, window=20_000))) is None


def test_a_broken_session_is_a_result_of_its_own() -> None:
    totals = total_results([run_job(ReplayJob(RecordedSession("empty", ()), parse_policy("none"), WINDOW))])
    assert (totals[0].sessions, totals[0].failed) == (0, 1)


WORKER = """
import sys, tempfile, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from perdure.lab.replay.batch import end_with_parent
from perdure.lab.replay.run import scratch_folder, scratch_prefix

def make_folder():
    return tempfile.mkdtemp(prefix=scratch_prefix(), dir=scratch_folder())

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=end_with_parent)
    print(pool.submit(make_folder).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


@pytest.mark.slow
def test_a_worker_ends_with_a_replay_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "started.py"
    script.write_text(WORKER, encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder = Path(parent.stdout.readline().strip())
        assert folder.is_dir()
        parent.kill()
        # The worker has the other end of the pipe, too.
        assert parent.communicate(timeout=60)[0] == ""
    assert not folder.exists()


@pytest.mark.spec("O8")
@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_a_report_without_links(tmp_path: Path) -> None:
    log, report, results = (tmp_path / name for name in ("talk.json", "report.html", "results.jsonl"))
    log.write_text(as_json(recorded_session()), encoding="utf-8")
    arguments = ["replay", str(log), "--window", str(WINDOW), "--processes", "1", "--results", str(results)]
    arguments += ["--policy", "truncate", "--policy", "digest:threshold=0.6", "--report", str(report)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "digest:threshold=0.6" in result.output
    page = report.read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page
    again = CliRunner().invoke(cli, [*arguments, "--json"])
    assert json.loads(again.output)["totals"][0]["violations"] == 0
    assert len(results.read_text(encoding="utf-8").splitlines()) == 2


def test_a_file_in_no_known_format_is_named_and_nothing_replayed(tmp_path: Path) -> None:
    log = tmp_path / "notes.jsonl"
    log.write_text('{"hello": 1}\n', encoding="utf-8")
    result = CliRunner().invoke(cli, ["replay", str(log)])
    assert result.exit_code == 1
    assert "no format that is known" in result.output
