"""A store that the first Perdure wrote, on every database: brought up to date with everything in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.messages import user
from perdure.store import CallRecord, SessionStore, StoredEvent, schema
from perdure.store.db import postgres, sqlite
from perdure.store.db.postgres import open_postgres
from perdure.store.db.postgres_blobs import PostgresBlobStore
from perdure.store.db.sqlite import open_sqlite
from perdure.store.encoding import TimeIds
from perdure.store.outputs import FileBlobStore
from perdure.store.queries import HistoryPosition, StoreContext
from perdure.store.search.index import FtsIndex, TsvectorIndex
from support.postgres import PostgresBackend
from support.store import Backend, SqliteBackend, compacted, conversation


def first_release(backend: Backend) -> SessionStore:
    """A store with the first schema alone, and the column that this version writes into every message."""
    clock = SystemClock()
    if backend.name == "sqlite":
        path = Path(backend.where)
        old = open_sqlite(path, clock=clock, migrations=schema.load_migrations(sqlite.DIALECT)[:1])
        backend.execute("ALTER TABLE message ADD COLUMN tool_state TEXT")
        return SessionStore(StoreContext(old, FtsIndex(), clock, TimeIds(clock)), FileBlobStore(path))
    database = open_postgres(backend.where, clock=clock, migrations=schema.load_migrations(postgres.DIALECT)[:1])
    backend.execute("ALTER TABLE message ADD COLUMN tool_state TEXT")
    return SessionStore(StoreContext(database, TsvectorIndex(), clock, TimeIds(clock)), PostgresBlobStore(database))


@pytest.mark.spec("I1", "I8")
@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_a_database_of_the_first_release_is_migrated_completely(name: str, tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path) if name == "sqlite" else PostgresBackend(tmp_path, is_new=True)
    with first_release(backend) as old:
        session = conversation(old)
        child = compacted(old, session)
        old.ledger.record_call(CallRecord(child, cost_usd=0.5))
        old.ledger.record_event(StoredEvent(child, "notice", {"text": "hm"}))
        # Where fingerprints were kept before they had a table of their own.
        old.state("gateway:openai threads").set("p", {"conversation": session, "seq": 7})
        old.state("gateway:openai threads").set("q", {"conversation": None, "seq": 0})
        messages = [m.to_dict() for m in old.history(child).messages]
    backend.execute("ALTER TABLE message DROP COLUMN tool_state")
    store = backend.open()
    assert backend.execute("SELECT MAX(version) FROM migration") == [
        (schema.load_migrations(sqlite.DIALECT)[-1].version,)
    ]
    assert [m.to_dict() for m in store.history(child).messages] == messages
    assert {e.message.tool_state for e in store.log.originals(session)} == {None}, "unknown, as nothing recorded it"
    assert store.verifier.conversation(session) == []
    store.rebuild.wait()
    assert store.search("question 1")
    assert [c.cost_usd for c in store.ledger.calls(session)] == [0.5]
    assert [store.client_histories.get(p) for p in "pq"] == [HistoryPosition(session, 7), HistoryPosition(None, 0)]
    assert store.state("gateway:openai threads").items() == {}
    assert store.client_histories.purge(before_ms=SystemClock().now_ms() - 60_000, limit=100) == 0, (
        "they age from now on"
    )
    cursor = store.changes.now()
    assert store.changes.since(cursor).changed == (), "what was there before is nothing new"
    store.append(session, user("and on it goes"))
    assert [c.conversation.tip_session_id for c in store.changes.since(cursor).changed] == [child]
    store.undo(session)
    assert store.delete(session).messages == 22
    backend.close()


def test_an_index_with_prefixes_is_rebuilt_without_them_after_an_upgrade(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path)
    clock = SystemClock()
    before = tuple(m for m in schema.load_migrations(sqlite.DIALECT) if m.version < 9)
    old = open_sqlite(Path(backend.where), clock=clock, migrations=before)
    with SessionStore(
        StoreContext(old, FtsIndex(), clock, TimeIds(clock)), FileBlobStore(Path(backend.where))
    ) as first:
        session = first.create()
        first.append(session.id, [user(f"the migration number {n}") for n in range(400)])
    store = backend.open()
    store.append(session.id, user("the migration after the upgrade"))
    store.rebuild.wait()
    assert len(store.search("migrat*", limit=200)) == 200
    assert store.search("number 399")[0].address == "m:400"
    assert store.search("migration upgrade")[0].address == "m:401"
    (definition,) = backend.execute("SELECT sql FROM sqlite_master WHERE name = 'message_index'")[0]
    assert "prefix" not in definition
    backend.close()
