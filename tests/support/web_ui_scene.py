"""The conversations in the page's pictures: a long hunt for a slow checkout, held on the simulator, and some others."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from perdure.app.agent import Agent
from perdure.core.messages import assistant, user
from perdure.core.usage import CanonicalUsage
from perdure.providers.routes import EndpointChain as RouteToModel
from perdure.store.records import CallRecord as MadeCall
from perdure.store.records import RouteRecord
from perdure.store.store import SessionStore
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator

WINDOW = 24_000
DAY_MS = 86_400_000
MODEL = "gpt-5"

SUMMARY = """## Active Task
User asked: "Checkout takes four seconds since Tuesday. Find out why, and do not touch production."
## Goal
Bring the p95 of POST /checkout below 800 ms again.
## Constraints & Preferences
Read only: nothing is changed in production. Every claim needs a log line or a query plan.
## Completed Actions
1. READ services/checkout/handler.py — calls price_cart() twice per request
2. READ services/pricing/rules.py — load_rules() has no cache since commit 4c1f9e2
3. SEARCHED logs/checkout.log — slow requests all wait in pricing.load_rules
## Active State
The pool on db-7.internal is limited to 12 connections; 40 workers share it.
## Key Decisions
Cache the rules for 300 seconds and price the cart once.
## Relevant Files
- services/checkout/handler.py
- services/pricing/rules.py
- config/pool.yaml
## Remaining Work
A test that counts the queries of one checkout. Ticket SHOP-2291 stays open.
## Critical Context
p95 was 612 ms on Monday and 4180 ms on Wednesday; the pool was never resized to 64.
"""

# What is asked, which tool answers it, and what the model makes of it.
TURNS = (
    ("Checkout takes four seconds since Tuesday. Find out why, and do not touch production.",
     ("search_logs", {"query": "POST /checkout", "since": "Tuesday"}),
     "Every slow request spends its time in `pricing.load_rules`. The p95 went from 612 ms on Monday to **4180 ms** on "
     "Wednesday.\n\nI will look at the code that calls it."),
    ("Go on. Where is it called from?", ("read_file", {"path": "services/checkout/handler.py"}),
     "`handler.py` prices the cart twice for each request:\n\n1. once to show the total,\n2. once to charge it.\n\n"
     "Both calls load all rules anew."),
    ("And the rules themselves?", ("read_file", {"path": "services/pricing/rules.py"}),
     "`load_rules()` lost its cache in commit `4c1f9e2`. Each call reads 2,400 rows."),
    ("How many connections does the pool have?", ("read_file", {"path": "config/pool.yaml"}),
     "Twelve, shared by 40 workers on `db-7.internal`. Requests queue for a connection."),
    ("Show me the slowest queries of yesterday.", ("run_query", {"sql": "SELECT * FROM slow_queries ORDER BY ms DESC"}),
     "The list is long, so it is kept apart; its first rows are all `SELECT … FROM price_rule`."),
    ("Is there an index on price_rule?", ("run_query", {"sql": "EXPLAIN SELECT * FROM price_rule WHERE shop = 7"}),
     "No: it is a sequential scan over 1.2 million rows."),
    ("What did commit 4c1f9e2 change?", ("read_file", {"path": "CHANGES/4c1f9e2.diff"}),
     "It replaced `@cached(ttl=300)` by a plain function, *“to make the tests simpler”*."),
    ("Look for other places that lost a cache.", ("search_logs", {"query": "cache miss", "since": "Monday"}),
     "Two more: `shipping.zones` and `tax.rates`. Neither is slow yet."),
)  # fmt: skip

OTHERS = (
    ("Rename the release branches", "terminal", "gpt-5-mini"),
    ("Which invoices are still open?", "telegram", "claude-sonnet-4-5"),
    ("Upgrade the parser to version 4", "terminal", "claude-sonnet-4-5"),
    ("Notes for the talk on Thursday", "page", "gpt-5-mini"),
    ("Why does the nightly backup skip Sundays?", "telegram", "gpt-5-mini"),
    ("Translate the help pages", "library", MODEL),
    ("Flaky test in the scheduler", "terminal", MODEL),
    ("A regular expression for order numbers", "page", "gpt-5-mini"),
)


class SceneClock:
    """The store's clock: a day of the past while one is set, else the time it is."""

    def __init__(self) -> None:
        self.past: int | None = None

    def now_ms(self) -> int:
        if self.past is None:
            return round(time.time() * 1_000)
        self.past += 1
        return self.past

    def monotonic_s(self) -> float:
        return time.monotonic()


def read_file(path: str) -> str:
    """Reads a file."""
    return "\n".join(f"{n:4} | {path.split('/')[-1]}: step {n} of the checkout, see SHOP-{2200 + n}" for n in range(70))


def search_logs(query: str, since: str = "") -> str:
    """Searches the logs."""
    if query == "cache miss":
        raise TimeoutError("the log server did not answer within 30 s")
    return "\n".join(
        f"2026-11-1{n % 5} 12:{n % 60:02}:07 web-{n % 8} {query} {380 + n * 37 % 4200} ms pricing.load_rules"
        for n in range(80)
    )


def run_query(sql: str) -> str:
    """Runs a query that only reads."""
    rows = 1_500 if "slow" in sql else 40
    return f"-- {sql}\n" + "\n".join(f"{n:5} | price_rule | shop {n % 90} | {4180 - n % 3000} ms" for n in range(rows))


class Investigator:
    """The model of the scene: looks with a tool, then says what it saw."""

    def __init__(self) -> None:
        self.faults: list[Say | Fail] = []

    def __call__(self, asked: ScriptRequest) -> Say | Fail:
        messages = asked.body["messages"]
        newest = str([m for m in messages if m["role"] == "user"][-1]["content"])
        if "Completed Actions" in newest and "token" in newest:
            return Say(SUMMARY)
        if self.faults:
            return self.faults.pop(0)
        for question, (tool, arguments), answer in TURNS:
            if question in newest:
                if messages[-1]["role"] == "tool":
                    return Say(answer, thinking="The log lines agree with the plan. " * 6, chunk_delay_s=0.01)
                return Say("Let me look.", thinking=f"{tool} should tell.", calls=(Call(tool, arguments),))
        return Say("Noted. Nothing in production was touched.")


def set_scene(store: SessionStore, clock: SceneClock, home: Path, *, rounds: int = 3) -> str:
    """Fills the store; the id of the long conversation."""
    home.mkdir(parents=True, exist_ok=True)
    now_ms = clock.now_ms()
    for n in range(54):
        clock.past = now_ms - (55 - n) * DAY_MS // 2 - n % 7 * 3_600_000
        _other(store, clock, n)
    clock.past = None
    script = Investigator()
    with Simulator(script=script, window=WINDOW, chat_thinking_key="reasoning_content") as sim:
        settings = {
            "model": {"name": MODEL, "base_url": sim.base_url, "context_length": WINDOW, "provider": "openai"},
            "fallback_providers": [{"provider": "openai", "model": "gpt-5-mini", "base_url": sim.base_url}],
        }
        tools = [read_file, search_logs, run_query]
        agent = Agent(settings=settings, store=store, home=home, api_key="k", source="terminal", tools=tools)
        for turn, (question, _, _) in enumerate(TURNS * rounds):
            if turn == 10:
                script.faults = [Fail(status=429, body={"error": {"message": "Rate limit reached"}})] * 4
            if turn == 12:
                wrong_key = {"error": {"message": "Incorrect API key provided", "type": "authentication_error"}}
                script.faults = [Fail(status=401, body=wrong_key)]
            if turn == 20:
                script.faults = [Say("I cannot help with that.", finish="content_filter")]
            if turn == 15:
                agent.switch_model(RouteToModel((replace(agent.endpoint, model="gpt-5-mini"),)))
            agent.run_conversation(question if turn < len(TURNS) else f"{question} (for SHOP-{2280 + turn})")
        assert agent.session_id is not None
        told = store.conversations.get(agent.session_id)
        store.conversations.set_title(told.id, "Checkout takes four seconds since Tuesday")
        agent.close()
    return told.id


def _other(store: SessionStore, clock: SceneClock, n: int) -> None:
    title, source, model = OTHERS[n % len(OTHERS)]
    session = store.create(source=source, route=RouteRecord("openai", model), title=title)
    store.append(session.id, [user(f"{title}, please."), assistant("Done; the details are above.")] * (1 + n % 4))
    for call in range(2 + n % 5):
        fresh, cached = 900 + 310 * (n % 6), 5_200 + 2_100 * (n % 5) + 700 * call
        usage = CanonicalUsage(fresh, 240 + 30 * call, cached, 1_400 * (call == 0))
        cost = (fresh * 3 + cached * 0.3 + usage.cache_write_tokens * 3.75 + usage.output_tokens * 15) / 1_000_000
        when = clock.now_ms()
        route = RouteRecord("openai", model)
        made = MadeCall(session.id, route=route, usage=usage, cost_usd=cost, started_at_ms=when, ended_at_ms=when + 900)
        store.ledger.record_call(made)
