"""Killed at any moment, shared by many processes: what was acknowledged is there, whole, and obeys the rules."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.core.rules import Pairs
from perdure.store import SessionStore, open_store
from support import store_worker

WORKER = Path(store_worker.__file__)


def worker(where: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), str(where), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def live_and_die(where: Path, seed: int, seconds: float) -> tuple[list[list[str]], str]:
    """What a worker told before it was killed, and what it complained of."""
    process = worker(where, str(seed), "live")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    out, err = process.communicate()
    # The last line may be cut; everything before it was told whole.
    whole = out[: out.rfind("\n") + 1]
    return [line.split() for line in whole.splitlines()], err


def check_whole(store: SessionStore, acknowledged: list[list[str]]) -> None:
    """Every acknowledged word is there, every view obeys the rules, no compaction is torn."""
    said = {c.id: store.log.said(c.id) for c in store.conversations.list(limit=99).conversations}
    names = {c: {e.message.text.split(" ")[0] for e in entries} for c, entries in said.items()}
    for deed, conversation, name in acknowledged:
        if deed == "said":
            assert name in names[conversation]
        else:
            assert store.conversations.get(name).id == conversation
    for conversation, entries in said.items():
        tip = store.get_compression_tip(conversation)
        assert [e.seq for e in store.log.expand(tip)] == [e.seq for e in entries]
        sessions = store.conversations.sessions(conversation)
        assert sessions[-1].id == tip
        for before, after in itertools.pairwise(sessions):
            assert after.parent_id == before.id
            assert before.end_reason == after.began_by
            assert before.last_seq is not None
        for session in sessions[-3:]:
            assert Pairs().violations(store.history(session.id).messages) == []
        assert store.log.ingest(conversation, [e.message for e in entries]).added == 0


def kill_often(folder: Path, *, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    acknowledged: list[list[str]] = []
    total = 0
    for number in range(kills):
        if number % 40 == 0:
            where, acknowledged = folder / f"{number}.db", []
        told, complaint = live_and_die(where, seed * 100_000 + number, chance.uniform(0.0, 0.35))
        assert complaint == ""
        acknowledged += told
        total += len(told)
        with open_store(where) as store:
            check_whole(store, acknowledged)
    return total


@pytest.mark.spec("I1", "I2")
def test_killed_at_random_moments_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    assert kill_often(tmp_path, kills=15, seed=1) > 40


@pytest.mark.soak
@pytest.mark.spec("I1", "I2")
def test_a_thousand_kills(tmp_path: Path) -> None:
    assert kill_often(tmp_path, kills=1_000, seed=2) > 10_000


@pytest.mark.spec("I1", "I8")
def test_eight_processes_append_at_once_and_none_is_told_it_is_locked(tmp_path: Path) -> None:
    where = tmp_path / "shared.db"
    with open_store(where) as store:
        conversation = store.create().conversation_id
        processes = [worker(where, f"p{n}", "say", conversation, "60") for n in range(8)]
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert (process.returncode, err, out) == (0, "", "ready\n")
        texts = [e.message.text for e in store.log.said(conversation)]
    assert sorted(texts) == sorted(f"p{p}-{n}" for p in range(8) for n in range(60))
    for p in range(8):
        mine = [t for t in texts if t.startswith(f"p{p}-")]
        assert mine == [f"p{p}-{n}" for n in range(60)], "each process's own order is kept"


def test_eight_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    where = tmp_path / "new.db"
    processes = [worker(where, str(n), "say", "nothing", "0") for n in range(8)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err, out) == (0, "", "ready\n")
