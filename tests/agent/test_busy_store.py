"""Where others share the loop, an agent stores in threads: a database that takes long holds up nobody else."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

import perdure
from perdure.agent.agent import ConversationAgent
from perdure.config.settings import Settings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, EngineServices, Reason, RunInThread, Steps
from perdure.core import concurrency
from perdure.core.concurrency import SystemClock
from perdure.core.events import CallStarted
from perdure.gateway.executor import run_store_write
from perdure.store.db.database import Dialect, Row, Transaction, Value
from perdure.store.db.sqlite import open_sqlite
from perdure.store.encoding import TimeIds
from perdure.store.leases import holder_id
from perdure.store.outputs import FileBlobStore
from perdure.store.queries import StoreContext
from perdure.store.search.index import FtsIndex
from perdure.store.store import SessionStore
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator
from support.agents import Bench, bench
from support.long_histories import working_session
from support.summarisers import GOOD

T = TypeVar("T")


class WatchedDatabase:
    """A database that notes what is asked of it in a thread where an event loop runs."""

    def __init__(self, path: Path) -> None:
        self._database = open_sqlite(path, clock=SystemClock())
        self.on_loop: list[str] = []

    @property
    def dialect(self) -> Dialect:
        return self._database.dialect

    @property
    def is_usable(self) -> bool:
        return self._database.is_usable

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._note("read", work)
        return self._database.read(work)

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        return self._database.row(sql, values)

    def write(self, work: Callable[[Transaction], T]) -> T:
        self._note("write", work)
        return self._database.write(work)

    def write_unsynced(self, work: Callable[[Transaction], T]) -> T:
        self._note("write", work)
        return self._database.write_unsynced(work)

    def erase(self, work: Callable[[Transaction], T]) -> T:
        return self._database.erase(work)

    def backup(self, path: Path) -> None:
        self._database.backup(path)

    def close(self) -> None:
        self._database.close()

    def _note(self, what: str, work: object) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self.on_loop.append(f"{what} {getattr(work, '__qualname__', work)}")


@contextmanager
def sharing(
    b: Bench, path: Path, settings: Settings | None = None, run: RunInThread = run_store_write
) -> Iterator[tuple[ConversationAgent, WatchedDatabase]]:
    """An agent as in a gateway: it stores in threads, and whoever runs its turns holds the lease already."""
    database, clock = WatchedDatabase(path), SystemClock()
    with SessionStore(StoreContext(database, FtsIndex(), clock, TimeIds(clock)), FileBlobStore(path)) as store:
        deps = replace(b.deps, store=store, run_blocking=run, settings=settings or b.deps.settings)
        agent = ConversationAgent(
            deps, b.loop_thread, services=lambda live: EngineServices(settings=deps.settings.compression)
        )
        yield agent, database


def with_history(agent: ConversationAgent) -> str:
    agent.run_conversation("And now?", conversation_history=working_session(24))
    assert agent.session_id is not None
    return agent.session_id


@pytest.mark.spec("D9")
def test_a_compaction_is_stored_and_read_back_in_a_thread(tmp_path: Path) -> None:
    with bench(tmp_path, "Fine.", window=200_000) as b, sharing(b, tmp_path / "perdure.db") as (agent, database):
        lease = b.store.leases.acquire(with_history(agent), holder_id())
        with agent.use_lease(lease):
            database.on_loop.clear()
            assert agent.compress().outcome == "digest"
        assert database.on_loop == []


def reply(asked: ScriptRequest) -> Say | str:
    return Say(calls=(Call("nothing", {}),)) if "tools" in asked.body else "Half of it is done."


def nothing() -> str:
    """Does nothing."""
    return "done"


@pytest.mark.spec("J9")
def test_a_turn_that_ends_at_its_step_limit_writes_nothing_on_the_loop(tmp_path: Path) -> None:
    settings = Settings.model_validate({"agent": {"max_turns": 2}})
    with (
        bench(tmp_path, reply, tools=[nothing]) as b,
        sharing(b, tmp_path / "perdure.db", settings) as (agent, database),
    ):
        agent.open()
        lease = b.store.leases.acquire(agent.session_id or "", holder_id())
        with agent.use_lease(lease):
            database.on_loop.clear()
            assert agent.chat("go") == "Half of it is done."
        events = [e.kind for e in b.store.ledger.all_events(agent.session_id or "")]
        assert [what for what in database.on_loop if what.startswith("write")] == []
        assert "notice" in events, "what was told of the limit is stored when the turn is over"


REFUSED = Fail(status=401, body={"error": {"message": "wrong key", "type": "authentication_error"}})
TOO_LONG = Fail(
    status=400,
    body={"error": {"message": "maximum context length is 16000 tokens", "code": "context_length_exceeded"}},
)


def interrupted(agent: ConversationAgent) -> None:
    agent.events.tap(lambda event: agent.interrupt() if isinstance(event, CallStarted) else None)
    assert agent.run_conversation("go").outcome == "interrupted"


SITUATIONS: dict[str, tuple[list[Any], Callable[[ConversationAgent], object]]] = {
    "a chat with a tool call": (
        [Say(calls=(Call("nothing", {}),)), "Done."],
        lambda agent: agent.chat("go"),
    ),
    "a turn that fails": ([REFUSED], lambda agent: agent.run_conversation("go")),
    "a turn that is interrupted": (["Never heard."], interrupted),
    "a prompt that is too long": (
        [TOO_LONG, "Fine."],
        lambda agent: agent.run_conversation("go", conversation_history=working_session(24)),
    ),
    "a compaction and its undoing": (
        ["Fine."],
        lambda agent: (with_history(agent), agent.compress(), agent.undo()),
    ),
}


@pytest.mark.spec("D9", "I1")
@pytest.mark.parametrize("name", SITUATIONS)
def test_nothing_is_written_on_the_event_loop(tmp_path: Path, name: str) -> None:
    script, act = SITUATIONS[name]
    with (
        bench(tmp_path, *script, tools=[nothing], window=200_000) as b,
        sharing(b, tmp_path / "perdure.db", run=b.deps.run_blocking) as (agent, database),
    ):
        act(agent)
        calls = b.store.ledger.calls(agent.session_id or "")
        assert len(calls) == max(1, len(b.sim.requests)), "every call is in the ledger when the turn is over"
    assert [what for what in database.on_loop if what.startswith("write")] == []


@pytest.mark.spec("D9", "A4")
def test_a_summary_and_a_delegated_task_write_nothing_on_the_event_loop(tmp_path: Path) -> None:
    def reply(asked: ScriptRequest) -> Say | str:
        texts = [str(m.get("content")) for m in asked.body["messages"]]
        if "hand-over notes" in texts[-1]:
            return GOOD
        is_parent, has_report = any("have it surveyed" in t for t in texts), any("Surveyed." in t for t in texts)
        return (
            Say(calls=(Call("delegate_task", {"tasks": ["survey it"]}),))
            if is_parent and not has_report
            else ("All done." if is_parent else "Surveyed.")
        )

    database, clock, path = WatchedDatabase(tmp_path / "perdure.db"), SystemClock(), tmp_path / "perdure.db"
    with (
        Simulator(script=reply) as sim,
        SessionStore(StoreContext(database, FtsIndex(), clock, TimeIds(clock)), FileBlobStore(path)) as store,
        perdure.Agent(
            model="m-1",
            provider="custom",
            base_url=sim.base_url,
            api_key="k",
            store=store,
            home=tmp_path,
            settings={"model": {"context_length": 64_000}},
        ) as agent,
    ):
        agent.run_conversation("have it surveyed", conversation_history=working_session(8))
        assert agent.compress().outcome == "compacted"
        calls = [c.task for c in store.ledger.calls(agent.session_id or "")]
        assert calls == ["main", "main", "compression"]
    assert [what for what in database.on_loop if what.startswith("write")] == []


class Named(ContextCompressor):
    """Notes the names of the threads in which its compactions run."""

    names: ClassVar[set[str]] = set()

    def steps(self, messages: Sequence[Any], *, focus_topic: str | None, reason: Reason) -> Steps[Compaction]:
        self.names.add(threading.current_thread().name)
        return (yield from super().steps(messages, focus_topic=focus_topic, reason=reason))


@pytest.mark.spec("D9")
def test_a_compaction_leaves_the_threads_for_store_writes_to_other_conversations(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1, "store") as pool, bench(tmp_path, "Fine.", window=200_000, engine=Named) as b:
        run: Any = partial(concurrency.run_shielded, executor=pool)
        with sharing(b, tmp_path / "perdure.db", run=run) as (agent, _):
            with_history(agent)
            assert agent.compress().outcome == "digest"
    assert len(Named.names) == 1
    assert not any(name.startswith("store") for name in Named.names)


@contextmanager
def busy_database(path: Path) -> Iterator[None]:
    """Another process writes most of the time."""
    is_over = threading.Event()

    def write() -> None:
        connection = sqlite3.connect(path, isolation_level=None, timeout=10)
        while not is_over.is_set():
            connection.execute("BEGIN IMMEDIATE")
            is_over.wait(0.1)
            connection.execute("COMMIT")
            is_over.wait(0.02)
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(0.02)
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_interrupts_while_a_compaction_is_stored_leave_one_that_is_whole(tmp_path: Path) -> None:
    with bench(tmp_path, "Fine.", "Fine.", window=200_000) as b, sharing(b, tmp_path / "perdure.db") as (agent, _):
        lease = b.store.leases.acquire(with_history(agent), holder_id())
        outcomes: list[str] = []

        async def interrupted() -> None:
            compaction = asyncio.ensure_future(agent.acompress())
            for _ in range(4):
                await asyncio.sleep(0.05)
                agent.interrupt()
            try:
                outcomes.append((await compaction).outcome)
            except asyncio.CancelledError:
                outcomes.append("cancelled")

        with agent.use_lease(lease), busy_database(tmp_path / "perdure.db"):
            b.loop_thread.run(interrupted())
        b.store.leases.release(lease)
        assert agent.session_id == b.store.get_compression_tip(agent.session_id or ""), "at hand is what is stored"
        assert agent.chat("go on") == "Fine."
        assert len(outcomes) == 1
        assert b.sim.violations == []
