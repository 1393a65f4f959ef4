"""Precompaction (C8): what is nearly full is compacted before the agent sees the next message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import register_context_engine
from perdure.context.compressor import ContextCompressor
from perdure.context.registry import engines
from perdure.core.usage import CanonicalUsage
from perdure.gateway.workers.precompaction import last_prompt
from perdure.store.records import CallRecord
from perdure.testing.simulator import Say, Simulator
from perdure.testing.simulator.script import ScriptRequest
from support.gateway_server import Running, running_gateway

USERS = {"ann": ("chat", "read")}
WINDOW = 20_000
# One message of about so many tokens.
FILLER = "count these words again and again " * 330


class BrokenEngine(ContextCompressor):
    """Never compacts by itself, and cannot when it is asked to."""

    name = "broken"

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(self, messages: Any, **more: Any) -> Any:
        raise RuntimeError("out of order")


class LazyEngine(ContextCompressor):
    """Compacts well, and never thinks it time to."""

    name = "lazy"

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False


def reply(asked: ScriptRequest) -> Say:
    if "tools" not in asked.body:
        return Say("\n\n".join(f"## {h}\nThe user counts." for h in ("Goal", "Completed Actions", "Critical Context")))
    return Say("Noted.")


def gateway(home: Path, sim: Simulator, engine: str, *, is_enabled: bool = True) -> Any:
    return running_gateway(
        home,
        sim,
        users=USERS,
        model={"context_length": WINDOW},
        others={"context": {"engine": engine}, "compression": {"enabled": is_enabled}},
    )


def fill(running: Running, share: float) -> tuple[httpx.Client, str]:
    """A conversation whose last real prompt is at least this share of the window."""
    ann = httpx.Client(base_url=running.url, headers=running.headers("ann"), timeout=30, trust_env=False)
    while True:
        done = ann.post("/api/messages", params={"wait": "true"}, json={"content": FILLER}).json()
        calls = running.store.ledger.calls(done["conversation_id"])
        if calls[-1].usage.prompt_tokens >= share * WINDOW:
            return ann, done["conversation_id"]


def compactions(running: Running, conversation_id: str) -> list[tuple[str, str]]:
    found = running.store.ledger.events(conversation_id, kind="compaction")
    return [(e.payload["reason"], e.payload["outcome"]) for e in found]


@pytest.fixture(autouse=True)
def _engines() -> Iterator[None]:
    register_context_engine("lazy", LazyEngine)
    register_context_engine("broken", BrokenEngine)
    yield
    engines().forget("lazy")
    engines().forget("broken")


@pytest.mark.spec("C8")
def test_a_conversation_at_85_percent_is_compacted_before_the_agent_sees_the_message(tmp_path: Path) -> None:
    with Simulator(script=reply, window=2 * WINDOW) as sim, gateway(tmp_path, sim, "lazy") as running:
        ann, conversation = fill(running, 0.85)
        assert compactions(running, conversation) == []
        before = len(sim.requests)
        ann.post("/api/messages", params={"wait": "true"}, json={"content": "and now a short one"})
        (fired,) = compactions(running, conversation)
        assert fired[0] == "hygiene"
        assert fired[1] in ("compacted", "digest")
        main = [r for r in sim.requests[before:] if "tools" in r.body]
        assert all(sim.count(r.path, r.body) < 0.5 * WINDOW for r in main)
        assert running.hub.stats.precompactions == {fired[1]: 1}
        ann.post("/api/messages", params={"wait": "true"}, json={"content": "and another"})
        assert len(compactions(running, conversation)) == 1


@pytest.mark.spec("C8")
def test_below_85_percent_nothing_is_compacted(tmp_path: Path) -> None:
    with Simulator(script=reply, window=2 * WINDOW) as sim, gateway(tmp_path, sim, "lazy") as running:
        ann, conversation = fill(running, 0.60)
        ann.post("/api/messages", params={"wait": "true"}, json={"content": "and now a short one"})
        assert compactions(running, conversation) == []
        assert running.hub.stats.precompaction_checks >= 2
        assert running.hub.stats.precompactions == {}


@pytest.mark.spec("C8", "F1")
def test_the_digest_replaces_a_failing_engine(tmp_path: Path) -> None:
    with Simulator(script=reply, window=2 * WINDOW) as sim, gateway(tmp_path, sim, "broken") as running:
        ann, conversation = fill(running, 0.85)
        ann.post("/api/messages", params={"wait": "true"}, json={"content": "and now a short one"})
        assert compactions(running, conversation) == [("hygiene", "failed"), ("hygiene", "digest")]
        assert running.hub.stats.precompactions == {"digest": 1}


@pytest.mark.spec("C8", "C1")
def test_compression_switched_off_switches_hygiene_off(tmp_path: Path) -> None:
    with (
        Simulator(script=reply, window=2 * WINDOW) as sim,
        gateway(tmp_path, sim, "lazy", is_enabled=False) as running,
    ):
        ann, conversation = fill(running, 0.85)
        ann.post("/api/messages", params={"wait": "true"}, json={"content": "and now a short one"})
        assert compactions(running, conversation) == []


@pytest.mark.spec("C8")
def test_the_last_real_prompt_is_of_this_very_session() -> None:
    def call(session: str, tokens: int, *, task: str = "main", is_reported: bool = True) -> CallRecord:
        return CallRecord(session, task=task, usage=CanonicalUsage(input_tokens=tokens, reported=is_reported))

    calls = [call("s_2", 50), call("s_2", 60, task="compression"), call("s_2", 70, is_reported=False), call("s_1", 80)]
    assert last_prompt(calls, "s_2") == 50
    assert last_prompt(calls, "s_3") is None
