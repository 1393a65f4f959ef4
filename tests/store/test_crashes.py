"""Killed at any moment, shared by many processes: what was acknowledged is there, whole, and obeys the rules."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perdure.store import open_store
from support.store_lives import check_whole, live_and_die, worker


def kill_often(folder: Path, *, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    acknowledged: list[list[str]] = []
    total = 0
    for number in range(kills):
        if number % 40 == 0:
            where, acknowledged = folder / f"{number}.db", []
        batch, complaint = live_and_die(where, seed * 100_000 + number, chance.uniform(0.0, 0.35))
        assert complaint == ""
        acknowledged += batch
        total += len(batch)
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
def test_eight_processes_append_concurrently_without_a_lock_error(tmp_path: Path) -> None:
    where = tmp_path / "shared.db"
    with open_store(where) as store:
        conversation = store.create().conversation_id
        processes = [worker(where, f"p{n}", "say", conversation, "60") for n in range(8)]
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert (process.returncode, err, out) == (0, "", "ready\n")
        texts = [e.message.text for e in store.log.originals(conversation)]
    assert sorted(texts) == sorted(f"p{p}-{n}" for p in range(8) for n in range(60))
    for p in range(8):
        mine = [t for t in texts if t.startswith(f"p{p}-")]
        assert mine == [f"p{p}-{n}" for n in range(60)], "each process's own order is kept"


def test_eight_processes_open_a_new_file_concurrently(tmp_path: Path) -> None:
    where = tmp_path / "new.db"
    processes = [worker(where, str(n), "say", "nothing", "0") for n in range(8)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err, out) == (0, "", "ready\n")
