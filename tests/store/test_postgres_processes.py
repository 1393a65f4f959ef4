"""Several processes on one PostgreSQL: they share a conversation, and one that is killed leaves nothing torn."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.core.errors import LeaseLost
from perdure.core.messages import user
from perdure.store import schema
from perdure.store.db.postgres import DIALECT
from support.postgres import PostgresBackend
from support.store import FakeClock, conversation
from support.store_lives import check_whole, live_and_die, worker

pytestmark = pytest.mark.spec("I8")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresBackend]:
    backend = PostgresBackend(tmp_path)
    yield backend
    backend.close()


def kill_often(server: PostgresBackend, *, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    acknowledged: list[list[str]] = []
    for number in range(kills):
        batch, complaint = live_and_die(server.url, seed * 100_000 + number, chance.uniform(0.0, 0.05), deeds=8)
        assert complaint == ""
        acknowledged += batch
        with server.open() as store:  # two hundred left open would be all the connections a server has
            check_whole(store, acknowledged)
    return len(acknowledged)


@pytest.mark.spec("I1", "I2")
def test_killed_at_random_moments_nothing_acknowledged_is_lost_or_torn(server: PostgresBackend) -> None:
    assert kill_often(server, kills=5, seed=3) >= 40


@pytest.mark.soak
@pytest.mark.spec("I1", "I2")
def test_many_kills(server: PostgresBackend) -> None:
    assert kill_often(server, kills=200, seed=4) >= 1_600


@pytest.mark.spec("I1", "I7")
def test_processes_append_to_one_conversation_and_nothing_is_lost_or_doubled(server: PostgresBackend) -> None:
    store = server.open()
    shared = store.create().conversation_id
    processes = [worker(server.url, f"p{n}", "say", shared, "40") for n in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err, out) == (0, "", "ready\n")
    entries = store.log.originals(shared)
    assert [e.seq for e in entries] == list(range(1, 121))
    texts = [e.message.text for e in entries]
    for p in range(3):
        assert [t for t in texts if t.startswith(f"p{p}-")] == [f"p{p}-{n}" for n in range(40)]


def test_processes_starting_concurrently_create_the_tables_once(tmp_path: Path) -> None:
    server = PostgresBackend(tmp_path, is_new=True)
    processes = [worker(server.url, str(n), "say", "nothing", "0") for n in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err, out) == (0, "", "ready\n")
    assert server.execute("SELECT version FROM migration ORDER BY version") == [
        (s.version,) for s in schema.load_migrations(DIALECT)
    ]


HOLD_A_LEASE = """
    import sys
    from perdure.core.messages import user
    from perdure.store import open_store
    store = open_store(sys.argv[1])
    lease = store.leases.acquire(sys.argv[2], "the first process", ttl_ms=60_000)
    print("held", flush=True)
    sys.stdin.readline()
    try:
        store.append(sys.argv[2], user("late"), lease=lease)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""


@pytest.mark.spec("I7")
def test_a_process_whose_lease_was_taken_over_cannot_write(server: PostgresBackend) -> None:
    clock = FakeClock()
    store = server.open(clock)
    session = conversation(store)
    command = [sys.executable, "-c", textwrap.dedent(HOLD_A_LEASE), server.url, session]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    clock.ms = 1
    with pytest.raises(LeaseLost, match="the first process"):
        store.append(session, user("not mine"))
    clock.ms = 10**13
    mine = store.leases.acquire(session, "the second process")
    out, err = process.communicate("go\n", timeout=60)
    assert err == ""
    assert out.startswith("LeaseLost")
    assert "the second process" in out
    store.append(session, user("mine"), lease=mine)
    assert [m.text for m in store.history(session).messages[-1:]] == ["mine"]


WRITE_MUCH = """
    import resource, sys
    from perdure.store import open_store
    store = open_store(sys.argv[1])
    session = store.create()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sink = store.outputs.begin(session.id, "call_1")
    line = "".join(f"{n:07d} " for n in range(8_000)) + "\\n"
    for _ in range(int(sys.argv[2])):
        sink.write(line)
    output = sink.close()
    read = sum(len(chunk) for chunk in store.outputs.blobs.chunks(output.id))
    assert read == output.chars == len(line) * int(sys.argv[2])
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.spec("H4")
@pytest.mark.parametrize("lines", [400, pytest.param(3_200, marks=pytest.mark.soak)], ids=["25 MB", "200 MB"])
def test_a_large_output_streams_in_and_out_with_little_memory(server: PostgresBackend, lines: int) -> None:
    server.open().close()
    command = [sys.executable, "-c", textwrap.dedent(WRITE_MUCH), server.url, str(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr == ""
    assert int(done.stdout) < 16, "megabytes more than before, whatever the output's size"
