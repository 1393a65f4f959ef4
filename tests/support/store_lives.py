"""Processes that live on a store until they are killed, and what must hold afterwards."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from pathlib import Path

from perdure.core.rules import Pairs
from perdure.store import SessionStore
from support import store_worker
from support.forked import ForkedProcess, fork

WORKER = Path(store_worker.__file__)


def worker(where: Path | str, *arguments: str) -> ForkedProcess:
    command = [str(WORKER), str(where), *arguments]
    return fork(command, env=os.environ, cwd=Path.cwd(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def live_and_die(where: Path | str, seed: int, seconds: float, *, deeds: int = 0) -> tuple[list[list[str]], str]:
    """What a worker told before it was killed, some time after so many deeds, and what it complained of."""
    process = worker(where, str(seed), "live")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    first = "".join(process.stdout.readline() for _ in range(deeds))
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    rest, err = process.communicate()
    out = first + rest
    # The last line may be cut; everything before it was told whole.
    whole = out[: out.rfind("\n") + 1]
    return [line.split() for line in whole.splitlines()], err


def check_whole(store: SessionStore, acknowledged: list[list[str]]) -> None:
    """Every acknowledged word is there, every view obeys the rules, no compaction is torn."""
    said = {c.id: store.log.originals(c.id) for c in store.conversations.list(limit=99).conversations}
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
