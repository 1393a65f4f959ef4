"""Who opens a store closes it: many agents in one process leave no thread, no descriptor and no WAL behind."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from perdure import Agent, open_store
from perdure.app.runtime import SharedStores
from perdure.core.concurrency import DaemonThreads
from perdure.core.errors import StoreError
from perdure.core.messages import user
from perdure.store.store import SessionStore
from perdure.testing.simulator import Simulator


def agent_at(path: Path, *, base_url: str = "http://127.0.0.1:9/v1", store: SessionStore | None = None) -> Agent:
    return Agent(
        model="m-1", provider="custom", base_url=base_url, api_key="k", store=store or path, home=path.parent, tools=(),
        settings={"model": {"context_length": 64_000}}, system_prompt="Be brief.",
    )  # fmt: skip


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def writers() -> int:
    return sum(t.name.startswith("store-writer") for t in threading.enumerate())


def jobs() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "perdure-job"}


def connections_to(port: int) -> int:
    """How many sockets of this process are connected to the port."""
    inodes = {fields[9] for fields in map(str.split, Path("/proc/self/net/tcp").read_text().splitlines()[1:])
              if fields[2].endswith(f":{port:04X}") and fields[3] != "06"}  # fmt: skip
    return sum(f"socket:[{inode}]" in open_files() for inode in inodes)


def open_files() -> set[str]:
    names = set()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            names.add(os.readlink(f"/proc/self/fd/{entry}"))
    return names


def stored_messages(path: Path) -> int:
    """What the database file holds by itself."""
    connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM message").fetchone()[0])
    finally:
        connection.close()


def test_many_agents_that_are_closed_leave_no_descriptor_and_no_thread(tmp_path: Path) -> None:
    agent_at(tmp_path / "p.db").close()
    gc.collect()
    before = descriptors(), writers()
    for _ in range(20):
        agent = agent_at(tmp_path / "p.db")
        agent.open()
        agent.close()
    # Fewer is no leak: what an earlier test left behind may have been closed meanwhile.
    assert descriptors() <= before[0]
    assert writers() <= before[1]


def test_closed_agents_that_are_still_referenced_have_no_connection(tmp_path: Path) -> None:
    with Simulator(script=lambda asked: "Fine.") as sim, open_store(tmp_path / "p.db") as store:
        first = agent_at(tmp_path / "p.db", base_url=sim.base_url, store=store)
        first.run_conversation("hello")
        first.close()
        port = int(sim.base_url.rsplit(":", 1)[1].split("/")[0])
        agents = [agent_at(tmp_path / "p.db", base_url=sim.base_url, store=store) for _ in range(8)]
        for agent in agents:
            assert agent.run_conversation("hello").outcome == "completed"
        assert connections_to(port) == 8
        for agent in agents:
            agent.close()
        assert connections_to(port) == 0


def test_the_threads_of_many_simultaneous_jobs_end_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DaemonThreads, "_IDLE_S", 0.2)
    executor, together = DaemonThreads(), threading.Barrier(30)
    before = jobs()
    for done in [executor.submit(together.wait, 10) for _ in range(30)]:
        done.result(10)
    deadline = time.monotonic() + 10
    while jobs() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not jobs() - before


def test_agents_that_nobody_closes_are_collected_with_their_store(tmp_path: Path) -> None:
    agent_at(tmp_path / "p.db").close()
    gc.collect()
    before = descriptors(), writers()
    for n in range(5):
        agent_at(tmp_path / f"p{n}.db").open()
    gc.collect()
    # Fewer is no leak: what an earlier test left behind may have been closed meanwhile.
    assert descriptors() <= before[0]
    assert writers() <= before[1]


def test_agents_at_one_path_share_a_store_until_the_last_is_closed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    first, second = agent_at(tmp_path / "p.db"), agent_at(tmp_path / "sub" / ".." / "p.db")
    assert first.deps.store is second.deps.store
    first.close()
    first.close()  # twice counts once
    session = second.deps.store.create()
    second.close()
    with pytest.raises(StoreError, match="has been closed"):
        second.deps.store.history(session.id)
    with agent_at(tmp_path / "p.db") as third:
        assert third.deps.store.history(session.id).entries == ()


def test_a_store_handed_in_stays_open(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        with Agent(model="m-1", provider="custom", base_url="http://127.0.0.1:9/v1", api_key="k", store=store):
            pass
        session = store.create()
        assert store.history(session.id).entries == ()


def test_closing_an_agent_moves_the_wal_into_the_file(tmp_path: Path) -> None:
    with Simulator(script=lambda asked: "Noted.") as sim:
        agent = agent_at(tmp_path / "p.db", base_url=sim.base_url)
        agent.chat("hello")
        agent.close()
    assert stored_messages(tmp_path / "p.db") == 2
    assert not (tmp_path / "p.db-wal").exists()


@pytest.mark.parametrize("keeps", ["agent = ", "global_list.append(agent) or ", "del agent; "])
def test_a_process_that_ends_without_closing_leaves_everything_in_the_file(tmp_path: Path, keeps: str) -> None:
    code = f"""
        import sys
        from pathlib import Path
        from perdure import Agent
        path, global_list = Path(sys.argv[1]), []
        agent = Agent(model="m", provider="custom", base_url="http://127.0.0.1:9/v1", api_key="k", store=path,
                      home=path.parent, tools=(), settings={{}})
        agent.deps.store.append(agent.deps.store.create().id, ["one", "two", "three"])
        {keeps}None
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "p.db")], check=True)
    assert stored_messages(tmp_path / "p.db") == 3
    assert not (tmp_path / "p.db-wal").exists()


def test_a_forked_child_that_ends_leaves_its_parents_store_alone(tmp_path: Path) -> None:
    code = """
        import os, sys
        from perdure import open_store
        store = open_store(sys.argv[1])
        session = store.create()
        if os.fork() == 0:
            sys.exit(0)  # runs what is registered for exit
        os.wait()
        store.append(session.id, ["after the child"])
        print(len(store.log.originals(session.id)))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "p.db")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "1"


def test_closing_during_a_turn_interrupts_it_and_keeps_what_was_said(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(asked: object) -> str:
        begun.set()
        go_on.wait(10)
        return "Late."

    with Simulator(script=slow) as sim:
        agent = agent_at(tmp_path / "p.db", base_url=sim.base_url)
        outcomes: list[str] = []
        turn = threading.Thread(target=lambda: outcomes.append(agent.run_conversation("hello").outcome))
        turn.start()
        begun.wait(10)
        agent.close()
        turn.join(10)
        go_on.set()
    assert outcomes == ["interrupted"]
    assert stored_messages(tmp_path / "p.db") >= 1


def test_a_store_whose_file_is_gone_is_opened_anew_for_the_next_user(tmp_path: Path) -> None:
    stores = SharedStores()
    first = stores.acquire(tmp_path / "p.db")
    for file in tmp_path.glob("p.db*"):
        file.unlink()
    second = stores.acquire(tmp_path / "p.db")
    assert second.store is not first.store
    second.store.append(second.store.create().id, user("kept"))
    first.release()
    second.release()
    assert stored_messages(tmp_path / "p.db") == 1


def test_users_that_come_and_go_in_many_threads_never_meet_a_closed_store(tmp_path: Path) -> None:
    stores, failures = SharedStores(), []
    open_store(tmp_path / "p.db").close()

    def come_and_go() -> None:
        for _ in range(15):
            handle = stores.acquire(tmp_path / "p.db")
            try:
                handle.store.conversations.list(limit=1)
            except StoreError as error:
                failures.append(error)
            handle.release()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert writers() == 0 or not any("p.db" in t.name for t in threading.enumerate())
