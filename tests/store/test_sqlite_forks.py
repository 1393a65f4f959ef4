"""A process that forks while other threads write: the child can open the database, and the parent goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Three writers, ten forks; a child that hangs is ended by its alarm.
SCRIPT = """
import os, signal, sys, threading, time
from perdure.core.errors import StoreError
from perdure.store import open_store

path = sys.argv[1]
store = open_store(path)
session = store.create().id
is_done = threading.Event()

def write():
    while not is_done.is_set():
        store.append(session, ["from a thread"])

threads = [threading.Thread(target=write) for _ in range(3)]
for thread in threads:
    thread.start()
statuses = []
for n in range(10):
    time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            store.append(session, ["through the parent's store"])
        except StoreError:
            store.close()
        with open_store(path) as own:
            own.append(session, [f"from child {n}"])
        os._exit(0)
    statuses.append(os.waitpid(pid, 0)[1])
is_done.set()
for thread in threads:
    thread.join()
texts = [e.message.text for e in store.log.originals(session)]
print(statuses, sum(text.startswith("from child") for text in texts), "through the parent's store" in texts)
print(store.verifier.database().problems, [d for b in store.verifier.everything() for d in b.damage])
store.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_during_a_commit_can_open_the_database(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path / "perdure.db")],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.splitlines() == [f"{[0] * 10} 10 False", "() []"], done.stderr
