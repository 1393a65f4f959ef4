"""`perdure schedule`: add, list, run and remove prompts that run by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure.cli.main import cli
from perdure.config.env import local_timezone
from perdure.core.visibility import OWNER
from perdure.store import open_store
from perdure.store.inbox import InboundMessage
from perdure.store.schedules import MissedRuns, RunStart, Schedule
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _answer(asked: ScriptRequest) -> Step | str:
    text = str([m for m in asked.body["messages"] if m["role"] == "user"][-1]["content"])
    if "break" in text:
        return Fail(status=400, body={"error": {"message": "this was not to be", "type": "invalid_request_error"}})
    if "edit" in text and asked.body["messages"][-1]["role"] != "tool":
        return Say("", calls=(Call("write_file", {"path": "new.txt", "content": "x"}),))
    return "All is well."


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(script=_answer) as service:
        yield service


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["schedule", *arguments])


def run_on(sim: Simulator, *arguments: str, mode: str = "ask") -> Result:
    settings = {"model.provider": "custom", "model.base_url": sim.base_url, "model.name": "m", "permissions.mode": mode}
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return CliRunner().invoke(cli, [*flags, "schedule", *arguments])


def stored(home: Path) -> list[Schedule]:
    with open_store(home / "perdure.db") as store:
        return store.schedules.all()


@pytest.mark.spec("P2")
def test_an_added_schedule_is_stored_listed_and_removed(home: Path) -> None:
    added = run("add", "Check the build.", "--every", "90m", "--model", "openai/gpt-5.5", "--allow", "terminal")
    assert added.output.startswith("Added check-the-build: every 90m, first at ")
    assert "perdure gateway" in added.output
    assert run("add", "Report.", "--cron", "@daily", "--timezone", "Europe/Berlin", "--name", "daily").exit_code == 0
    daily = next(s for s in stored(home) if s.name == "daily")
    assert (daily.cron, daily.timezone) == ("0 0 * * *", "Europe/Berlin")
    listed = run("list").output
    assert "daily  cron '0 0 * * *' in Europe/Berlin, next " in listed
    assert "00:00 CE" in listed
    assert "check-the-build  every 90m, next " in listed
    assert f"  folder   {home}\n  model    openai/gpt-5.5\n  allowed  terminal\n" in listed
    assert run("list", "daily").output == "daily has not run yet.\n"
    assert run("remove", "daily").output == "Removed daily.\n"
    assert [s.name for s in stored(home)] == ["check-the-build"]


def test_without_schedules_the_list_says_how_to_add_one(home: Path) -> None:
    assert "perdure schedule add" in run("list").output


def test_cron_times_are_in_the_time_zone_of_this_machine_by_default(home: Path) -> None:
    assert run("add", "Report.", "--cron", "0 9 * * *").exit_code == 0
    assert stored(home)[0].timezone == "America/New_York"


def test_the_time_zone_of_the_machine(tmp_path: Path) -> None:
    zone = tmp_path / "zoneinfo" / "Asia" / "Tokyo"
    zone.parent.mkdir(parents=True)
    zone.touch()
    link = tmp_path / "localtime"
    link.symlink_to(zone)
    assert local_timezone({}, link=link) == "Asia/Tokyo"
    assert local_timezone({"TZ": ":Europe/Paris"}, link=link) == "Europe/Paris"
    assert local_timezone({"TZ": "CET-1CEST"}, link=link) == "UTC"
    assert local_timezone({}, link=tmp_path / "missing") == "UTC"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["x"], "either --every or --cron"),
        (["x", "--every", "1h", "--cron", "@daily"], "either --every or --cron"),
        (["x", "--every", "30s"], "should look like"),
        (["x", "--every", "400d"], "366 days"),
        (["x", "--cron", "* * * *"], "five fields"),
        (["x", "--cron", "99 * * * *"], "Bad minute"),
        (["x", "--cron", "@daily", "--timezone", "Mars/Olympus"], "Europe/Berlin"),
        (["  ", "--every", "1h"], "empty"),
        (["x", "--every", "1h", "--name", ""], "1 to 60"),
        (["x", "--every", "1h", "--allow", "(rm)"], "--allow"),
        (["x", "--every", "1h", "--allow", "terminl(git *)"], "no tool is called 'terminl'; did you mean terminal"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(home: Path, arguments: list[str], reason: str) -> None:
    result = run("add", *arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())
    assert stored(home) == []


def test_a_taken_or_unknown_name_is_an_error(home: Path) -> None:
    assert run("add", "x", "--every", "1h", "--name", "mine").exit_code == 0
    again = run("add", "y", "--every", "1h", "--name", "mine")
    assert (again.exit_code, "already" in again.output) == (1, True)
    for command in ("remove", "run", "list"):
        missing = run(command, "yours")
        assert (missing.exit_code, "perdure schedule list" in missing.output) == (1, True)


@pytest.mark.spec("P2", "A4")
def test_a_run_by_hand_prints_the_answer_and_is_listed(home: Path, sim: Simulator) -> None:
    run("add", "Look around.", "--every", "1h", "--name", "look")
    result = run_on(sim, "run", "look")
    assert (result.exit_code, result.stdout) == (0, "All is well.\n")
    assert "completed, by hand" in run("list").output
    with open_store(home / "perdure.db") as store:
        (conversation,) = store.conversations.list(source="schedule").conversations
        assert store.ledger.totals(conversation.id).calls == 1
        assert store.inbox.count_pending() == 0
    assert conversation.id in run("list", "look").output


def test_a_failed_run_has_its_reason_and_a_status(home: Path, sim: Simulator) -> None:
    run("add", "Please break.", "--every", "1h", "--name", "broken")
    result = run_on(sim, "run", "broken")
    assert (result.exit_code, "not to be" in result.stderr) == (1, True)
    assert "not to be" in run("list").output


def test_a_refused_call_is_named_until_it_is_allowed(home: Path, sim: Simulator) -> None:
    run("add", "edit it", "--every", "1h", "--name", "strict")
    run("add", "edit it", "--every", "1h", "--name", "free", "--allow", "write_file")
    assert "write_file was not run, no one is available" in run_on(sim, "run", "strict").stderr
    assert not (home / "new.txt").exists()
    assert "not run" not in run_on(sim, "run", "free").stderr
    assert (home / "new.txt").exists()


def test_tools_that_exist_can_be_allowed_also_by_pattern(home: Path) -> None:
    for number, rule in enumerate(("terminal(git *)", "write_*", "notes__add")):
        assert run("add", "x", "--every", "1h", "--name", f"n{number}", "--allow", rule).exit_code == 0


def test_naming_the_tools_needs_no_model_service(home: Path) -> None:
    flags = ["--set", "model.provider=custom", "--set", "model.base_url=http://127.0.0.1:9"]
    result = CliRunner().invoke(cli, [*flags, "schedule", "add", "x", "--every", "1h", "--allow", "terminal"])
    assert result.exit_code == 0, result.output


def test_the_rule_for_a_refused_call_is_named_and_allows_it(home: Path, sim: Simulator) -> None:
    run("add", "edit it", "--every", "1h", "--name", "strict")
    result = run_on(sim, "run", "strict")
    assert (result.exit_code, "completed, 1 call refused, by hand" in result.stderr) == (0, True)
    assert "add the schedule again with: --allow 'write_file(new.txt)'" in result.stderr
    assert "--allow 'write_file(new.txt)'" in run("list").output
    run("add", "edit it", "--every", "1h", "--name", "free", "--allow", "write_file(new.txt)")
    assert "refused" not in run_on(sim, "run", "free").stderr
    assert (home / "new.txt").exists()


def test_the_advice_for_a_failed_run_fits_a_schedule(home: Path, sim: Simulator) -> None:
    run("add", "Please break.", "--every", "1h", "--name", "broken")
    reason = run_on(sim, "run", "broken").stderr
    assert ("--model" in reason, "/model" in reason) == (True, False)


def test_a_schedule_removed_while_it_runs_reports_how_the_run_ended(home: Path) -> None:
    def script(asked: ScriptRequest) -> Step | str:
        assert run("remove", "brief").exit_code == 0
        return "All is well."

    run("add", "Look around.", "--every", "1h", "--name", "brief")
    with Simulator(script=script) as sim:
        result = run_on(sim, "run", "brief")
    assert (result.exit_code, result.stdout) == (0, "All is well.\n")
    assert "completed, by hand" in result.stderr


def test_a_run_without_an_outcome_is_listed_with_its_conversation(home: Path) -> None:
    """The store as a killed process leaves it: the run has begun, and nothing of its end is stored."""
    run("add", "Look around.", "--every", "1h", "--name", "look")
    with open_store(home / "perdure.db") as store:
        schedule = store.schedules.get("look")
        inbound = InboundMessage("t_1", "q", "schedule", OWNER, "chat", "Look around.", ("chat",), "chat")
        queued = store.schedules.start_run(schedule, RunStart(1), inbound, owner="gone", ttl_ms=1)
        assert queued is not None
        session = store.create(source="schedule")
        conversation_id = store.conversations.get(session.id).id
        message = {"role": "user", "content": "Look around."}
        assert store.inbox.begin(queued, conversation_id=conversation_id, seq=0, content=message)
    for listed in (run("list"), run("list", "look")):
        assert f"by hand  {conversation_id}" in listed.output


def test_missed_runs_are_listed(home: Path) -> None:
    run("add", "x", "--every", "1h", "--name", "mine")
    with open_store(home / "perdure.db") as store:
        schedule = store.schedules.get("mine")
        store.schedules.skip(schedule, next_at_ms=schedule.next_at_ms, missed=MissedRuns(2, 1_800_000_000_000))
    assert "missed   2 earlier runs were missed, since 2027-01-15 03:00 EST" in run("list").output
