"""The page's API against its bars: ten thousand conversations with a million messages, one of them ten thousand long.

Every figure is a whole request through the routes, in process, the best of a few tries; the answer is written as JSON
but sent nowhere.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import httpx
from fastapi import FastAPI

from benchmarks.store_corpus import Corpus
from benchmarks.table import Row
from perdure.context.exact_values import scan
from perdure.context.handoff import Handoff, render
from perdure.core.messages import Message, assistant, user
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import User
from perdure.store import CallRecord, NewHandoff, RouteRecord, SessionStore, Span, StoredEvent, open_store
from perdure.web.api import web_ui_router

TITLE = "The page (API)"

_CONVERSATIONS = 10_000
_MESSAGES = 10_000
_MILLION = 1_000_000
_BATCH = 500
_TRIES = 9
_SHARED_MEMORY = Path("/dev/shm")


def rows() -> Iterator[Row]:
    # Twenty thousand commits are no part of what is measured here: where there is memory to write to, it is used.
    place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="perdure-page-", dir=place) as folder,
        open_store(Path(folder) / "page.db") as store,
    ):
        long = _long(store)
        _many(store)
        _fill(Path(folder) / "page.db")
        with _client(store) as get:
            yield from _lists(get)
            yield from _conversation(get, long)


def _lists(get: Get) -> Iterator[Row]:
    yield _row("conversations, first page of 10,000 with 1M messages", get("/conversations"), "< 50")
    yield _row("conversations, first page, one source and model", get("/conversations?source=page&model=m-2"))
    yield _row("conversations, found by a word all of them hold", get("/conversations?q=rename"))
    yield _row("conversations, found by a word one of them holds", get("/conversations?q=feature-4711"))
    yield _row("filters over 10,000", get("/filters"))
    yield _row("usage of a month", get("/usage?days=30"))


def _conversation(get: Get, long: str) -> Iterator[Row]:
    one = f"/conversations/{long}"
    yield _row("head of a conversation of 10,000 messages", get(one))
    newest, oldest = get(f"{one}/timeline"), get(f"{one}/timeline?after=0")
    yield _row("timeline, newest page of 10,000 messages", newest, "< 50")
    yield Row("timeline, oldest page against the newest", oldest.cpu_ms / newest.cpu_ms, "times", "< 2")
    yield _row("timeline, around the middle", get(f"{one}/timeline?around=5000"), "< 50")
    yield _row("chart of 2,500 calls", get(f"{one}/context"), "< 300")
    yield _row("a handoff over 10,000 messages, 600 facts linked", get(f"{one}/handoffs/{_MESSAGES + 1}"), "< 300")


@dataclass(frozen=True, slots=True)
class Took:
    """The best of a few tries: by the clock, and in processor time, which a busy machine stretches less."""

    wall_ms: float
    cpu_ms: float


Get = Callable[[str], Took]


def _row(name: str, took: Took, bar: str | None = None) -> Row:
    return Row(name, took.wall_ms, "ms", bar, f"{took.cpu_ms:.1f} ms of processor time")


@contextmanager
def _client(store: SessionStore) -> Iterator[Get]:
    app = FastAPI()
    app.include_router(web_ui_router(store, visibility_of=lambda request: User("ann")))

    async def best(path: str) -> Took:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://page/api/page") as client:
            walls, cpus = [], []
            for _ in range(_TRIES):
                began, began_cpu = time.perf_counter(), time.process_time()
                answer = await client.get(path.removeprefix("/"), headers={"accept-encoding": "identity"})
                walls.append(1_000 * (time.perf_counter() - began))
                cpus.append(1_000 * (time.process_time() - began_cpu))
                answer.raise_for_status()
        return Took(min(walls), min(cpus))

    yield lambda path: asyncio.run(best(path))


def _many(store: SessionStore) -> None:
    for n in range(_CONVERSATIONS):
        route = RouteRecord("custom", f"m-{n % 5}")
        source = ("terminal", "telegram", "library", "page")[n % 4]
        session = store.create(
            source=source,
            user_key="ann",
            route=route,
            title="" if n % 2 else f"talk {n}",
            system_prompt="Be kind. " * 99,
        )
        store.append(session.id, [user(f"How do I rename branch feature-{n}?"), assistant(f"git branch -m main-{n}")])


def _long(store: SessionStore) -> str:
    """Ten thousand messages with their calls and events, compacted once at the end."""
    session = store.create(source="terminal", user_key="ann", route=RouteRecord("custom", "m-1"), title="a long one")
    corpus = Corpus()
    messages = list(islice(corpus.messages(words=60), _MESSAGES))
    for at in range(0, _MESSAGES, 4):
        store.append(session.id, messages[at : at + 4])
        _account(store, session.id, at)
    digest = Handoff({"Goal": corpus.text(40), "Critical Context": _facts(messages)}, model="m-1")
    handoff = Message("user", render(digest), kind="handoff")
    child = store.compact(
        session.id,
        (NewHandoff(handoff, covers=(Span(1, _MESSAGES - 20),), model="m-1"), Span(_MESSAGES - 19, _MESSAGES)),
    )
    payload = {"outcome": "compacted", "reason": "preflight", "before": 101_200, "after": 31_000, "threshold": 100_000}
    store.ledger.record_event(StoredEvent(child.id, "compaction", payload))
    return session.conversation_id


def _account(store: SessionStore, session_id: str, at: int) -> None:
    """One call a turn, and a spill now and then."""
    parts = {"system": 900, "tools": 700, "memory": 100, "head": 0, "handoff": 0, "tail": at * 3, "outputs": at * 7}
    usage = CanonicalUsage(input_tokens=200, cache_read_tokens=at * 10, output_tokens=50)
    store.ledger.record_call(
        CallRecord(
            session_id, route=RouteRecord("custom", "m-1"), usage=usage, cost_usd=0.001,
            estimate_tokens=sum(parts.values()), window_tokens=200_000, threshold_tokens=100_000, composition=parts,
        )
    )  # fmt: skip
    if at % 40 == 0:
        spill = {"tool": "terminal", "call": f"call_{at}", "address": "output:o_1", "chars": 250_000}
        store.ledger.record_event(StoredEvent(session_id, "spill", spill))


def _facts(messages: list[Message]) -> str:
    """What a full handoff holds: six hundred paths and names, each from somewhere in the story."""
    found = [fact for m in messages[:: _MESSAGES // 400] for fact in sorted(scan(m.text))[:3]]
    return "\n".join(f"- {', '.join(found[at : at + 4])}" for at in range(0, min(600, len(found)), 4))


def _fill(path: Path) -> None:
    """A million messages, written straight into the table: neither lists nor stories read the search index."""
    with sqlite3.connect(path) as database:
        database.execute(
            "WITH RECURSIVE number (n) AS (SELECT 3 UNION ALL SELECT n + 1 FROM number WHERE n < ?)"
            " INSERT INTO message"
            " (conversation, seq, session, role, kind, body, encoding, chars, key, chained, created_at)"
            " SELECT c.id, n, c.tip, 'user', 'user', ?, 0, 30, x'00', 0, c.updated_at FROM conversation c, number"
            " WHERE c.last_seq = 2",
            (_MILLION // _CONVERSATIONS, b'{"content":"What came next was said here.","role":"user"}'),
        )
        database.execute("UPDATE conversation SET last_seq = ? WHERE last_seq = 2", (_MILLION // _CONVERSATIONS,))
    database.close()
