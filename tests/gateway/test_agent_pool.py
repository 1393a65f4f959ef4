"""What is kept, and for whom: memory by user, agents as long as they are used, leases while a turn lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.core.errors import LeaseLost
from perdure.core.visibility import User
from perdure.store.records import Lease
from perdure.testing.simulator import Call, Say, Simulator
from perdure.testing.simulator.script import ScriptRequest, Step
from support.gateway_process import last_user_text, obedient
from support.gateway_server import Running, running_gateway

USERS = {"ann": ("chat", "read"), "bob": ("chat", "read")}


def script(asked: ScriptRequest) -> Step:
    text = last_user_text(asked.body)
    if asked.body["messages"][-1]["role"] != "tool" and text.startswith("note "):
        return Say(calls=(Call("memory", {"action": "add", "text": text.removeprefix("note ")}),))
    if asked.body["messages"][-1]["role"] != "tool" and text.startswith("find "):
        return Say(calls=(Call("session_search", {"query": text.removeprefix("find ")}),))
    if asked.body["messages"][-1]["role"] == "tool":
        return Say(str(asked.body["messages"][-1]["content"]))
    return obedient(asked)


def ask(gateway: Running, user: str, chat: str, content: str) -> dict[str, Any]:
    answer = httpx.post(
        f"{gateway.url}/api/messages?wait=true",
        json={"chat": chat, "content": content},
        headers=gateway.headers(user),
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def _until(holds: Callable[[], bool]) -> None:
    """An answer is told a moment before everything about its turn is put away."""
    for _ in range(200):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to pass")


@pytest.fixture
def sim() -> Any:
    with Simulator(script=script, window=64_000) as made:
        yield made


def test_memory_is_isolated_by_user(tmp_path: Path, sim: Simulator) -> None:
    with running_gateway(tmp_path, sim, users=USERS) as gateway:
        ask(gateway, "ann", "first", "note likes marmalade")
        ask(gateway, "ann", "second", "say hi")
        ask(gateway, "bob", "first", "say hi")
        prompts = [str(r.body["messages"][0]["content"]) for r in sim.requests if "say hi" in str(r.body["messages"])]
        assert ["marmalade" in p for p in prompts] == [True, False]
        assert (tmp_path / "memory" / "ann" / "MEMORY.md").read_text() == "likes marmalade"
        assert not (tmp_path / "memory" / "MEMORY.md").exists()


def test_session_search_is_isolated_by_user(tmp_path: Path, sim: Simulator) -> None:
    with running_gateway(tmp_path, sim, users=USERS) as gateway:
        ask(gateway, "ann", "one", "say the treasure is under the elm")
        assert "elm" in ask(gateway, "ann", "two", "find treasure")["text"]
        assert "elm" not in ask(gateway, "bob", "two", "find treasure")["text"].replace("find treasure", "")


@pytest.mark.spec("I4")
def test_an_evicted_agent_resumes_its_conversation(tmp_path: Path, sim: Simulator) -> None:
    with running_gateway(tmp_path, sim, users=USERS, gateway={"max_live_agents": 1}) as gateway:
        for turn in range(3):
            for chat in ("red", "green", "blue"):
                assert ask(gateway, "ann", chat, f"{chat} {turn}")["text"] == f"{turn + 1}: {chat} {turn}"
                _until(lambda: len(gateway.hub.pool) <= 1)
        assert sim.violations == []


@pytest.mark.spec("I7")
def test_the_lease_is_released_after_the_turn(tmp_path: Path, sim: Simulator) -> None:
    with running_gateway(tmp_path, sim, users=USERS) as gateway:
        done = ask(gateway, "ann", "main", "say hi")
        _until(lambda: gateway.store.leases.holder_of(done["conversation_id"]) is None)
        assert len(gateway.hub.leases) == 0
        # Somebody goes on with it elsewhere, at a terminal say; the gateway's agent must notice.
        gateway.store.append(done["conversation_id"], [{"role": "user", "content": "from elsewhere"}])
        gateway.store.append(done["conversation_id"], [{"role": "assistant", "content": "answered there"}])
        assert ask(gateway, "ann", "main", "and here")["text"] == "3: and here"


def taken_elsewhere(gateway: Running, conversation_id: str) -> Lease:
    """Another machine's lease, as soon as the gateway has given back its own: an answer is told a moment before."""
    give_up = time.monotonic() + 20
    while True:
        try:
            return gateway.store.leases.acquire(conversation_id, "another-machine:1", ttl_ms=700)
        except LeaseLost:
            assert time.monotonic() < give_up
            time.sleep(0.01)


@pytest.mark.spec("I7")
def test_a_message_waits_for_the_lease_of_another_process(tmp_path: Path, sim: Simulator) -> None:
    with running_gateway(tmp_path, sim, users=USERS) as gateway:
        done = ask(gateway, "ann", "main", "say hi")
        lease = taken_elsewhere(gateway, done["conversation_id"])
        assert ask(gateway, "ann", "main", "still here?")["text"] == "2: still here?"
        assert gateway.store.leases.holder_of(done["conversation_id"]) != lease


@pytest.mark.spec("A4", "A7")
def test_calls_are_billed_to_their_user(tmp_path: Path, sim: Simulator) -> None:
    with running_gateway(tmp_path, sim, users=USERS) as gateway:
        for chat in ("one", "two"):
            ask(gateway, "ann", chat, "say hi")
        ask(gateway, "bob", "one", "say hi")
        by_user = {u: gateway.store.ledger.usage("source", since_ms=0, visibility=User(u)) for u in USERS}
        assert {u: [(r.group, r.totals.calls) for r in rows] for u, rows in by_user.items()} == {
            "ann": [("http", 2)],
            "bob": [("http", 1)],
        }
        billed = sum(u.total_tokens for u in sim.billed)
        assert sum(r.totals.usage.total_tokens for rows in by_user.values() for r in rows) == billed
