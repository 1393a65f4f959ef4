"""Commits that the server carried out and could not acknowledge: everything is in the log, and once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from perdure.core.errors import StoreUnavailable
from perdure.core.events import Event, Notice
from perdure.core.messages import user
from perdure.store.db import postgres
from perdure.store.db.postgres import PostgresDatabase, PostgresTransaction
from perdure.testing.simulator import Call, Say
from perdure.tools.tool import Tool
from support.agents import Bench, bench
from support.long_histories import working_session
from support.postgres import PostgresBackend

pytestmark = pytest.mark.spec("I1", "I8")


_BEGIN, _COMMIT = PostgresTransaction.begin, PostgresTransaction.commit


class Network:
    """Loses the acknowledgement of chosen commits, and may then be down for a while."""

    def __init__(self) -> None:
        # Of writes.
        self.commits = 0
        self._writing: set[int] = set()
        # The commits that are lost, counted from 1, and whether the server carries them out.
        self.lost: set[int] = set()
        self.carries_out = True
        self.goes_down = False
        # Whether it is back by the time that the write has given up asking what became of the commit.
        self.is_brief = False
        self.is_down = False

    def begin(self, transaction: PostgresTransaction, sql: str) -> int | None:
        number = _BEGIN(transaction, sql)
        if number is not None:
            self._writing.add(id(transaction))
        return number

    def commit(self, transaction: PostgresTransaction) -> str | None:
        is_write = id(transaction) in self._writing
        self._writing.discard(id(transaction))
        self.commits += is_write
        if not is_write or self.commits not in self.lost:
            return _COMMIT(transaction)
        if self.carries_out:
            _COMMIT(transaction)
        transaction._cursor.connection.close()
        self.is_down = self.goes_down
        raise psycopg.OperationalError("server closed the connection unexpectedly")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    net = Network()
    connection, wait = postgres.ConnectionPool.connection, PostgresDatabase._wait_for_outcome

    def borrow(pool: postgres.ConnectionPool) -> object:
        if net.is_down:
            raise StoreUnavailable("no server is listening there")
        return connection(pool)

    def wait_for_outcome(database: PostgresDatabase, lost: postgres._LostCommit) -> bool:
        try:
            return wait(database, lost)
        finally:
            net.is_down = net.is_down and not net.is_brief

    monkeypatch.setattr(PostgresDatabase, "_wait_for_outcome", wait_for_outcome)
    monkeypatch.setattr(PostgresTransaction, "begin", lambda tx, sql: net.begin(tx, sql))
    monkeypatch.setattr(PostgresTransaction, "commit", lambda tx: net.commit(tx))
    monkeypatch.setattr(postgres.ConnectionPool, "connection", borrow)
    monkeypatch.setattr(postgres, "_OUTCOME_TIMEOUT_S", 0.05)
    return net


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresBackend]:
    backend = PostgresBackend(tmp_path)
    yield backend
    backend.close()


LOOK = Tool("look", "Look.", {"type": "object", "properties": {}}, lambda: "seen", is_read_only=True)
SCRIPT = (Say(calls=(Call("look", {}), Call("look", {}))), "Done.", "And on.", "Further.")


def heard_by(b: Bench) -> list[str]:
    """What is said to the user from now on."""
    notices: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event.text)

    b.agent.events.tap(hear)
    return notices


def check_log(b: Bench) -> None:
    """Every message once, every call one result, every answered request one record in the ledger."""
    session = b.agent.session_id
    assert session is not None
    stored = b.store.log.originals(session)
    results = Counter(e.message.tool_call_id for e in stored if e.message.role == "tool")
    calls = [call.id for e in stored for call in e.message.tool_calls]
    assert results == Counter(calls)
    said = [e.message.text for e in stored if e.message.role != "tool"]
    assert len([t for t in said if t]) == len({t for t in said if t}), said
    assert [e.message for e in b.agent.open().live.entries if e.message.kind != "handoff"][-3:] == [
        e.message for e in stored
    ][-3:], "what the agent has is what the log has"
    assert len(b.store.ledger.calls(session)) == len(b.sim.requests)
    assert b.sim.violations == []


@pytest.mark.parametrize("carries_out", [True, False])
@pytest.mark.parametrize("lost", range(1, 8))
def test_a_turn_goes_on_after_a_lost_acknowledgement(
    tmp_path: Path, server: PostgresBackend, network: Network, lost: int, carries_out: bool
) -> None:
    with bench(tmp_path, *SCRIPT, tools=[LOOK], database=server.url) as b:
        b.agent.open()
        network.lost, network.carries_out = {network.commits + lost}, carries_out
        assert b.agent.chat("look around") == "Done."
        assert b.agent.chat("go on") == "And on."
        assert network.commits >= max(network.lost), "it was met"
        check_log(b)
        assert "[Interrupted" not in " ".join(e.message.text for e in b.store.log.originals(b.agent.session_id or ""))


@pytest.mark.parametrize("carries_out", [True, False])
@pytest.mark.parametrize("is_brief", [True, False])
@pytest.mark.parametrize("lost", range(1, 7))
def test_nothing_is_doubled_where_the_server_is_down_after_the_commit(
    tmp_path: Path, server: PostgresBackend, network: Network, lost: int, is_brief: bool, carries_out: bool
) -> None:
    with bench(tmp_path, *SCRIPT, tools=[LOOK], database=server.url) as b:
        notices = heard_by(b)
        b.agent.open()
        network.lost, network.carries_out = {network.commits + lost}, carries_out
        network.goes_down, network.is_brief = True, is_brief
        with suppress(StoreUnavailable):
            b.agent.chat("look around")
        assert network.commits >= max(network.lost), "it was met"
        network.is_down = False
        b.agent.chat("go on")
        check_log(b)
        assert notices == [], "its own messages did not come from elsewhere"


@pytest.mark.parametrize("goes_down", [False, True])
@pytest.mark.parametrize("lost", range(1, 6))
def test_a_compaction_is_stored_once(
    tmp_path: Path, server: PostgresBackend, network: Network, lost: int, goes_down: bool
) -> None:
    with bench(tmp_path, "One.", "Two.", "Three.", window=200_000, database=server.url) as b:
        b.agent.run_conversation("And now?", conversation_history=working_session(24))
        before, notices = b.agent.session_id, heard_by(b)
        network.lost, network.goes_down = {network.commits + lost}, goes_down
        try:
            assert b.agent.compress().outcome == "digest" or goes_down
        except StoreUnavailable:
            assert goes_down
        network.is_down = False
        b.agent.chat("go on")
        assert network.commits >= max(network.lost), "it was met"
        stored = b.store.conversations.get(b.agent.session_id or "")
        is_compacted = b.agent.session_id != before
        assert stored.tip_session_id == b.agent.session_id
        assert len(b.store.log.handoffs(stored.id)) == is_compacted
        assert is_compacted or goes_down
        assert len(b.store.ledger.events(stored.id, kind="compaction")) <= 1
        assert not any("elsewhere" in n for n in notices)


def test_a_write_is_answered_by_the_server_that_lost_it(server: PostgresBackend, network: Network) -> None:
    store = server.open()
    session = store.create().id
    network.lost = {network.commits + 1, network.commits + 2}
    network.carries_out = False
    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        store.append(session, user("lost twice"))
    assert store.history(session).entries == ()
    network.carries_out = True
    network.lost = {network.commits + 1}
    assert store.append(session, user("kept")).added == 1
    assert [e.message.text for e in store.history(session).entries] == ["kept"]
