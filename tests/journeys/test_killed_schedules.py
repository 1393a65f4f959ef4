"""Processes that run schedules, killed at random moments: every due time is run once, and every run is answered."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from perdure.core.concurrency import SystemClock
from perdure.store.schedules import NewSchedule, Schedule
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.forked import fork
from support.store import BACKENDS, backend_of

CHILD = Path(__file__).parents[1] / "support" / "scheduling_child.py"
WAIT_S = 240.0
DAY_MS = 86_400_000


def _answer(asked: ScriptRequest) -> Step | str:
    """A tool first, then a slow answer, so that a kill often falls into the middle of a turn."""
    if asked.body["messages"][-1]["role"] == "user":
        return Say("Looking.", calls=(Call("plan", {"steps": [{"text": "look", "state": "done"}]}),))
    return Say("Done with it. " + "word " * 60, chunk_chars=8, chunk_delay_s=0.02)


@contextmanager
def process(folder: Path, database: str, sim: Simulator) -> Iterator[None]:
    """A process that is killed when the block ends."""
    command = [str(CHILD), str(folder), database, sim.base_url]
    environ = {**os.environ, "PERDURE_HOME": str(folder)}
    child = fork(command, stdout=subprocess.PIPE, env=environ, cwd=folder)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "up\n"
        yield
    finally:
        child.kill()
        child.wait()


def _add_due(store: SessionStore, number: int) -> Schedule:
    now_ms = SystemClock().now_ms()
    return store.schedules.add(NewSchedule(f"task {number}", "UTC", now_ms - 1_000, every_ms=DAY_MS))


def _kill_and_check(folder: Path, database: str, *, kills: int, survivors: int = 0) -> None:
    """Kill a process again and again, while `survivors` others go on."""
    dice, added = random.Random(kills), []
    with Simulator(script=_answer) as sim, open_store(database) as store, ExitStack() as others:
        for _ in range(survivors):
            others.enter_context(process(folder, database, sim))
        for number in range(kills):
            added += [_add_due(store, 2 * number), _add_due(store, 2 * number + 1)]
            with process(folder, database, sim):
                time.sleep(dice.uniform(0.9, 2.6))
        with process(folder, database, sim):
            deadline = time.monotonic() + WAIT_S
            while not all(store.schedules.runs(s) and store.schedules.runs(s)[0].outcome for s in added):
                assert time.monotonic() < deadline, "a run was never finished"
                time.sleep(0.05)
        _check(store, added)


def _check(store: SessionStore, added: list[Schedule]) -> None:
    prompts = []
    for schedule in added:
        (run,) = store.schedules.runs(schedule)
        assert (run.outcome, run.due_at_ms) == ("completed", schedule.next_at_ms)
        assert run.conversation_id is not None
        log = [e.message for e in store.log.originals(run.conversation_id)]
        assert [m.text for m in log if m.is_real_user] == [schedule.prompt]
        assert [m.text.startswith("Done with it.") for m in log if m.role == "assistant"][-1]
        prompts.append(schedule.prompt)
    listed = store.conversations.list(source="schedule", limit=1_000).conversations
    assert sorted(c.title for c in listed) == sorted(prompts), "a run was started twice"


@pytest.mark.slow
@pytest.mark.spec("P2", "I7")
def test_a_few_kills_lose_and_repeat_no_run(tmp_path: Path) -> None:
    _kill_and_check(tmp_path, str(tmp_path / "perdure.db"), kills=3)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.spec("P2", "I7")
@pytest.mark.parametrize("name", BACKENDS)
def test_twenty_kills_lose_and_repeat_no_run(tmp_path: Path, name: str) -> None:
    backend = backend_of(name, tmp_path)
    _kill_and_check(tmp_path, backend.where, kills=20)
    backend.close()


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.spec("P2", "I7", "I8")
@pytest.mark.parametrize("name", BACKENDS)
def test_several_processes_run_each_due_time_once_while_one_is_killed(tmp_path: Path, name: str) -> None:
    backend = backend_of(name, tmp_path)
    _kill_and_check(tmp_path, backend.where, kills=10, survivors=2)
    backend.close()
