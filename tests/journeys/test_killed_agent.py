"""An agent killed with SIGKILL at random moments and resumed each time: nothing acknowledged is lost or sent broken."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from perdure.store.store import open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.forked import fork

CHILD = Path(__file__).parents[1] / "support" / "talking_child.py"


def _answer(asked: ScriptRequest) -> Step | str:
    """Every other question needs two tools first."""
    last = asked.body["messages"][-1]
    if last["role"] == "user" and asked.number % 2:
        return Say("Looking.", calls=(Call("look", {"n": 1}), Call("look", {"n": 2})), chunk_delay_s=0.002)
    return Say("Found it. " + "word " * 80, chunk_delay_s=0.002)


def _run_and_kill(folder: Path, base_url: str, session_id: str, first: int, *, after_s: float) -> list[list[str]]:
    """What the child acknowledged before it was killed."""
    command = [str(CHILD), str(folder), base_url, session_id, str(first)]
    environ = {**os.environ, "PERDURE_HOME": str(folder)}
    child = fork(command, stdout=subprocess.PIPE, env=environ, cwd=folder)
    assert child.stdout is not None
    line = child.stdout.readline()  # up and talking
    time.sleep(after_s)
    child.kill()
    rest = child.stdout.read()
    child.wait()
    return [row.split() for row in (line + rest).splitlines() if len(row.split()) == 3]


def _story(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    session_id, acknowledged, next_number = "", [], 0
    with Simulator(script=_answer, window=8_000) as service:
        for _ in range(kills):
            rows = _run_and_kill(folder, service.base_url, session_id, next_number, after_s=chance.uniform(0.05, 1.2))
            assert all(outcome == "completed" for _, _, outcome in rows)
            acknowledged += [int(n) for n, _, _ in rows]
            session_id, next_number = rows[-1][1], acknowledged[-1] + 1000
            time.sleep(0)
        assert service.violations == []
    with open_store(folder / "perdure.db") as store:
        said = [e.message for e in store.log.originals(session_id)]
        asked = [int(m.text.split()[1]) for m in said if m.is_real_user]
        assert [n for n in asked if n in set(acknowledged)] == acknowledged
        assert store.get_compression_tip(session_id) == store.conversations.get(session_id).tip_session_id
        totals = store.ledger.totals(session_id)
        assert totals.calls >= len(acknowledged)


@pytest.mark.spec("I1", "I7", "J4", "K3")
def test_a_few_kills_lose_nothing(tmp_path: Path) -> None:
    _story(tmp_path, kills=4, seed=7)


@pytest.mark.soak
@pytest.mark.spec("I1", "I7", "J4", "K3")
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    _story(tmp_path, kills=200, seed=11)
