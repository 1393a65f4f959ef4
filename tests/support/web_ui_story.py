"""Conversations for the page, really held on the simulator: compactions, spills, recoveries, a model switch, an image,
a branch, a delegate, an undone compaction; Chinese and Japanese; and markup in every field that takes text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.app.agent import Agent
from perdure.core.messages import Message, assistant, user
from perdure.providers.routes import EndpointChain as RouteToModel
from perdure.store.records import RouteRecord
from perdure.store.store import SessionStore
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator

WINDOW = 8_000
# What must never become markup, wherever it is put.
EVIL = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
# What the summary has from the conversation.
FILES = "src/payments/lease.py, config/leases.yaml (LEASE_TTL_MS, 30000)"
SUMMARY = """## Active Task
User asked: "Why do workers lose their lease?"
## Goal
Find why workers lose their lease in src/payments/lease.py.
## Constraints & Preferences
Never touch production; 部署之前先跑测试。
## Completed Actions
1. READ logs/worker-3.log — 60 lines, worker-3 stalls at step 41
2. READ logs/worker-6.log — 60 lines, worker-6 step 1 took 3 ms
3. READ logs/worker-3.log — worker-3 step 2 took 6 ms
## Active State
The database listens on port 54321; LEASE_TTL_MS is 30000.
## Key Decisions
Renew at a third of LEASE_TTL_MS, kept in config/leases.yaml; the database stays on port 54321.
## Relevant Files
- src/payments/lease.py
- logs/worker-3.log
## Remaining Work
Ticket OPS-48213 and commit 9f8e7d6c5b are still open.
## Critical Context
<b onmouseover="window.pwned=1">LEASE_TTL_MS=30000</b>
"""


@dataclass(frozen=True, slots=True)
class Story:
    """Ids of what was told."""

    long: str
    branch: str
    delegate: str
    others: str
    undone: str


def read_log(path: str) -> str:
    """Reads a log file."""
    number = int("".join(c for c in path if c.isdigit()) or 1)
    return "\n".join(f"{path}:{i} worker-{number % 9} step {i} took {i * number % 97} ms" for i in range(60)) + EVIL


def dump_table(query: str) -> str:
    """Runs a query; says far too much."""
    return f"{query}\n" + "\n".join(
        f"row {i:05} invoice {i * 31 + 1000} {EVIL if i == 7 else ''}" for i in range(2_000)
    )


class Script:
    """Answers by what was asked last; the summariser gets a summary with two things nobody said."""

    def __init__(self) -> None:
        self.faults: list[Fail] = []

    def __call__(self, asked: ScriptRequest) -> Say | Fail:
        messages = asked.body["messages"]
        newest = str([m for m in messages if m["role"] == "user"][-1]["content"])
        if "Completed Actions" in newest and "token" in newest:
            return Say(SUMMARY)
        if self.faults:
            return self.faults.pop(0)
        if messages[-1]["role"] == "tool":
            return Say(f"Seen. {EVIL} The value is 54321. {FILES}", thinking="It must be the lease. " * 20 + EVIL)
        if "read" in newest:
            number = sum(m["role"] == "user" for m in messages)
            calls = tuple(Call("read_log", {"path": f"logs/worker-{n}.log"}) for n in (number, number + 3))
            return Say("Let me look.", thinking="Which log?", calls=calls)
        if "dump" in newest:
            return Say("", calls=(Call("dump_table", {"query": f"SELECT * FROM invoices -- {EVIL}"}),))
        return Say(f"**Noted.** `{EVIL}` 明白了，端口是 54321。{FILES}")


def tell(store: SessionStore, home: Path, *, turns: int = 24, others: int = 60) -> Story:
    """Fills a store; the conversations belong to "ann", but for `others`."""
    home.mkdir(parents=True, exist_ok=True)
    script = Script()
    with Simulator(script=script, window=WINDOW, chat_thinking_key="reasoning_content") as sim:
        agent = _agent(store, home, sim)
        long = _long(store, agent, script, sim, turns)
        agent.close()
        branch = store.conversations.branch(long, title=f"A branch {EVIL}").conversation_id
        other_way = _agent(store, home, sim, session_id=branch)
        other_way.chat("Let us try it another way: what if the lease is never renewed?")
        other_way.close()
        delegate = _delegated(store, long)
        undone = _undone(store, _agent(store, home, sim))
    for n in range(others):
        _small(store, n)
    stranger = store.create(source="telegram", user_key="bob", route=RouteRecord("custom", "m-9"), title="Bob's own")
    store.append(stranger.id, [user("bob's secret is swordfish"), assistant("I will keep it.")])
    return Story(long, branch, delegate, stranger.conversation_id, undone)


def _agent(store: SessionStore, home: Path, sim: Simulator, **options: Any) -> Agent:
    settings = {
        "model": {"name": "gpt-5-mini", "base_url": sim.base_url, "context_length": WINDOW, "provider": "openai"},
        "fallback_providers": [{"provider": "openai", "model": "gpt-5-nano", "base_url": sim.base_url}],
    }
    return Agent(
        settings=settings, store=store, home=home, api_key="k", source="terminal", user_key="ann",
        tools=[read_log, dump_table], **options,
    )  # fmt: skip


def _long(store: SessionStore, agent: Agent, script: Script, sim: Simulator, turns: int) -> str:
    agent.run_conversation(
        {"role": "user", "content": [
            {"type": "text", "text": f"Why do workers lose their lease? {EVIL} 请看这张图。ポートは 54321 です。"},
            {"type": "image_url", "image_url": {"url": PIXEL}},
        ]}
    )  # fmt: skip
    assert agent.session_id is not None
    store.conversations.set_title(agent.session_id, f"Leases, 租约 {EVIL}")
    for turn in range(turns):
        if turn == turns // 3:
            script.faults = [Fail(status=429, body={"error": {"message": f"Rate limit reached {EVIL}"}})] * 4
        if turn == turns // 2:
            smaller = replace(agent.endpoint, model="gpt-5")
            agent.switch_model(RouteToModel((smaller,)))
        verb = "dump" if turn % 7 == 3 else "read" if turn % 2 else "think about"
        agent.chat(
            f"Turn {turn}: {verb} logs/worker-{turn}.log, ticket OPS-4821{turn % 10}. " + "Details follow. " * 12
        )
    return store.conversations.get(agent.session_id).id


def _undone(store: SessionStore, agent: Agent) -> str:
    for turn in range(6):
        agent.chat(f"Turn {turn}: think about src/payments/lease.py line {turn * 100}. " + "More words. " * 60)
    agent.compress("the lease")
    agent.undo()
    agent.chat("Go on from there.")
    assert agent.session_id is not None
    told = store.conversations.get(agent.session_id).id
    agent.close()
    return told


def _delegated(store: SessionStore, parent: str) -> str:
    session = store.conversations.delegate(parent, route=RouteRecord("custom", "gpt-5-nano"))
    words: list[Message] = [user(f"Count the log lines. {EVIL}"), assistant("There are 60.")]
    store.append(session.id, words)
    return session.conversation_id


def _small(store: SessionStore, n: int) -> None:
    source = ("terminal", "telegram", "library", "page")[n % 4]
    route = RouteRecord("custom", ("gpt-5-mini", "claude-sonnet-4-5", "smollm2")[n % 3])
    title = "" if n % 3 else f"Talk {n} {EVIL if n % 9 == 0 else ''}"
    session = store.create(source=source, user_key="ann", route=route, title=title)
    store.append(
        session.id,
        [
            user(f"Number {n}: how do I rename branch feature-{n}? {EVIL}"),
            assistant(f"git branch -m feature-{n} main-{n}"),
        ],
    )
