"""The tsvector index: windows never hide a match, texts beyond its limits are found too, marks cannot be forged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core.concurrency import SystemClock
from perdure.core.messages import ToolCall, assistant, tool_result, user
from perdure.core.visibility import User
from perdure.store import SessionStore
from perdure.store.db.database import Transaction
from perdure.store.db.postgres import PostgresDatabase, open_postgres
from perdure.store.db.postgres_blobs import PostgresBlobStore
from perdure.store.encoding import TimeIds
from perdure.store.queries import StoreContext
from perdure.store.search.index import IdRange, TsvectorIndex, index_text
from perdure.store.search.query import parse
from support.postgres import PostgresBackend

pytestmark = pytest.mark.spec("I6", "I8")
INDEX = TsvectorIndex()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresBackend]:
    backend = PostgresBackend(tmp_path)
    yield backend
    backend.close()


@pytest.fixture
def database(server: PostgresBackend) -> Iterator[PostgresDatabase]:
    postgres = open_postgres(server.url, clock=SystemClock())
    yield postgres
    postgres.close()


@pytest.fixture
def store(database: PostgresDatabase) -> Iterator[SessionStore]:
    # Closed, because a search starts a thread that writes vectors, which the emptying of the schema must not meet.
    with _store(database) as created:
        yield created


def _store(database: PostgresDatabase) -> SessionStore:
    clock = SystemClock()
    return SessionStore(StoreContext(database, INDEX, clock, TimeIds(clock)), PostgresBlobStore(database))


@pytest.fixture
def new_database(tmp_path: Path) -> Iterator[PostgresDatabase]:
    """Tables that no other test has filled: the server may have statistics of rows that are not there any more."""
    backend = PostgresBackend(tmp_path, is_new=True)
    postgres = open_postgres(backend.url, clock=SystemClock())
    yield postgres
    postgres.close()
    backend.close()


def newest(database: PostgresDatabase, query: str, *, below: int | None = None, limit: int = 5) -> list[int]:
    def work(tx: Transaction) -> list[int]:
        groups = [[clause] for clause in parse(query)]
        ids = IdRange(1, 4_000_000 if below is None else below - 1)
        return INDEX.newest(tx, "message", [groups], strategy="adjacent", scopes=(), ids=ids, limit=limit)[0]

    return database.read(work)


def put(database: PostgresDatabase, texts: Sequence[tuple[int, str]]) -> None:
    step = INDEX.insert_step("message", [(n, index_text(t, ["r:user"])) for n, t in texts])
    database.write(lambda tx: tx.run_many(*step))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    numbers=st.sets(st.integers(1, 4_000_000), min_size=1, max_size=40),
    limit=st.integers(1, 8),
    stride=st.integers(1, 5),
)
def test_the_newest_matches_are_found_in_any_window(
    database: PostgresDatabase, numbers: set[int], limit: int, stride: int
) -> None:
    database.write(lambda tx: tx.run("DELETE FROM message_index"))
    put(database, [(n, "heron by the lake" if n % stride == 0 else "nothing here") for n in sorted(numbers)])
    expected = sorted((n for n in numbers if n % stride == 0), reverse=True)
    ids: list[int] = []
    below: int | None = None
    while True:
        page = newest(database, '"the lake"', below=below, limit=limit)
        ids += page
        if len(page) < limit:
            break
        below = page[-1]
    assert ids == expected


def huge_text() -> str:
    """Far more different words than a tsvector can hold."""
    return " ".join(f"w{n:07x}q" for n in range(150_000)) + " green heron src/lakeSide/bird_watch.py 模型能力 end"


def test_a_text_with_more_words_than_a_tsvector_holds_is_found_by_scanning(server: PostgresBackend) -> None:
    store: SessionStore = server.open()
    session = store.create(user_key="ann")
    store.append(session.id, [user(huge_text()), user("a green parrot, no heron")])
    for query, addresses in (
        ("w0000001q", ["m:1"]),
        ("heron w000ffffq", ["m:1", "m:2"]),
        ('"green heron"', ["m:1"]),
        ('"heron green"', []),
        ("bird_watch", ["m:1"]),
        ("src/lakeSide/bird_watch.py", ["m:1"]),
        ("w00000*", ["m:1"]),
        ("模型", ["m:1"]),
        ("型模", []),
        ("green", ["m:2", "m:1"]),
    ):
        assert [h.address for h in store.search(query)] == addresses, query
    assert [h.address for h in store.search("w0000001q", visibility=User("ann"), scope={"role": "user"})] == ["m:1"]
    assert store.search("w0000001q", scope={"role": "assistant"}) == []


def test_a_text_never_matches_as_a_scope_term(server: PostgresBackend) -> None:
    store = server.open()
    session = store.create()
    store.append(session.id, [user("swan r:assistant #r:assistant #scanned #0 c:nowhere")])
    assert store.search("swan", scope={"role": "assistant"}) == []
    assert [h.address for h in store.search("swan", scope={"role": "user"})] == ["m:1"]
    assert [h.address for h in store.search("scanned swan")] == ["m:1"]
    assert store.search('"unheard of"') == []


@pytest.mark.parametrize("query", ["!swan", "swan:*", "(swan", "'swan'", "swan | heron", "!(swan & swan)"])
def test_a_query_is_never_parsed_as_a_tsquery_expression(server: PostgresBackend, query: str) -> None:
    store = server.open()
    store.append(store.create().id, user("swan"))
    assert [h.address for h in store.search(query)] == ["m:1"]


def test_joining_results_with_their_calls_reads_the_messages_around_them_only(
    new_database: PostgresDatabase,
) -> None:
    store = _store(new_database)
    session = store.create()
    for start in range(0, 1_500, 50):
        calls = [
            ToolCall(f"call_{n}", "terminal", f'{{"command":"measure the heron{n} of lake side bird watch"}}')
            for n in range(start, start + 50)
        ]
        store.append(
            session.id,
            [
                m
                for c in calls
                for m in (assistant("", (c,)), tool_result(c.id, f"depth of {c.id} in metres below the pier"))
            ],
        )

    def work(tx: Transaction) -> tuple[list[str], int]:
        hits = store.search("measure depth terminal", limit=5)
        counted = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'message'"
        (read,) = tx.row(counted) or (0,)
        return [h.excerpt.split()[0] for h in hits], read

    # A search within a transaction is a part of it, and the server counts what the transaction reads.
    with store:
        first_words, read = new_database.read(work)
    assert first_words == ["terminal"] * 5
    # Without statistics of the new table the planner once read the whole conversation for every result.
    assert read < 20_000
