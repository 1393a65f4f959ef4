"""The page over PostgreSQL: the same answers, and live changes of another connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.messages import user
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import User
from perdure.store import CallRecord, RouteRecord, SessionStore, StoredEvent, open_store
from perdure.web.live import LiveFeed
from support.postgres import PostgresBackend
from support.store import FakeClock, compacted, conversation, exchange
from support.web_ui_api import Asking

PATIENCE_S = 15.0


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[PostgresBackend]:
    made = PostgresBackend(tmp_path)
    yield made
    made.close()


def _tell(store: SessionStore, clock: FakeClock) -> str:
    session = conversation(store)
    usage = CanonicalUsage(input_tokens=900, cache_read_tokens=100, output_tokens=10)
    parts = {"system": 100, "tail": 900}
    for n in range(3):
        clock.pass_ms(50)
        store.ledger.record_call(
            CallRecord(
                session,
                route=RouteRecord("x", "m"),
                usage=usage,
                estimate_tokens=1_000,
                composition=parts,
                cost_usd=0.01,
            )
        )
        clock.pass_ms(50)
        store.append(session, exchange(n), events=[StoredEvent(session, "tools", {"seconds": {f"call_{n}": 0.5}})])
    clock.pass_ms(50)
    seeded = {"outcome": "digest", "reason": "user", "prompt_before": 900, "prompt_after": 300, "threshold": 800}
    store.ledger.record_event(StoredEvent(compacted(store, session), "compaction", seeded))
    return session


def _answers(store: SessionStore, clock: FakeClock, session: str) -> dict[str, Any]:
    api = Asking(store, clock=clock)
    head = api.get(f"/conversations/{session}", user=None)
    paths = ["", "/timeline?limit=7", "/timeline?around=9", "/context", f"/handoffs/{head['handoffs'][0]}",
             "/open?address=m:1-3"]  # fmt: skip
    found = {path: api.get(f"/conversations/{session}{path}", user=None) for path in paths}
    lists = ("/conversations", "/conversations?q=question", "/search?q=listing", "/filters", "/usage?days=2")
    orders = ("messages", "cost", "tokens", "context", "compactions", "failures")
    sorted_lists = [f"/conversations?sort={by}&direction={way}" for by in orders for way in ("asc", "desc")]
    narrowed = ("/conversations?only=compacted", "/conversations?only=failed")
    return found | {path: api.get(path, user=None) for path in (*lists, *sorted_lists, *narrowed)}


def _without_ids(answer: Any, names: dict[str, str]) -> Any:
    """Name each id by its order of appearance: two stores choose different ones, and PostgreSQL skips numbers."""
    if isinstance(answer, dict):
        events = {k: f"event {v}" for k, v in answer.items() if k in ("id", "event_id") and isinstance(v, int)}
        numbered = {k: names.setdefault(event, f"id {len(names)}") for k, event in events.items()}
        return {k: _without_ids(v, names) for k, v in answer.items()} | numbered
    if isinstance(answer, list):
        return [_without_ids(v, names) for v in answer]
    if isinstance(answer, str) and answer[:2] in ("c_", "s_"):
        return names.setdefault(answer, f"id {len(names)}")
    return answer


def test_both_databases_answer_every_route_alike(backend: PostgresBackend, tmp_path: Path) -> None:
    answers = []
    for opened in (backend.open, lambda clock: open_store(tmp_path / "p.db", clock=clock)):
        clock = FakeClock()
        store = opened(clock)
        answers.append(_without_ids(_answers(store, clock, _tell(store, clock)), {}))
        store.close()
    assert answers[0] == answers[1]
    assert answers[0]["/context"]["marks"][0]["text"].startswith("compacted: 900 → 300 tokens, because you asked")


def test_what_another_connection_writes_is_told(backend: PostgresBackend) -> None:
    async def scene(here: SessionStore, elsewhere: SessionStore) -> str:
        feed = LiveFeed(here.changes, poll_s=0.05)
        stream = feed.stream(User("ann"), None)
        await anext(stream)
        session = await asyncio.to_thread(elsewhere.create, user_key="ann")
        await asyncio.to_thread(elsewhere.append, session.id, user("hello"))
        heard: str = await asyncio.wait_for(anext(stream), PATIENCE_S)
        await stream.aclose()
        assert session.conversation_id in heard
        return heard

    heard = asyncio.run(scene(backend.open(), backend.open()))
    assert '"last_seq":1' in heard
