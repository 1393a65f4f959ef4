"""What can go wrong with a server: each time a plain message, never the password, and the data untouched."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.errors import NewerSchema, StoreError, StoreUnavailable
from perdure.core.messages import user
from perdure.store import SessionStore, open_store, schema
from perdure.store.db.database import Transaction
from perdure.store.db.postgres import DIALECT, open_postgres
from perdure.store.schema import Migration
from support.postgres import PostgresBackend, create_locked_role, url_of
from support.store import conversation, exchange

pytestmark = pytest.mark.spec("I8")
SECRET = "hunter2-unmistakable"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[PostgresBackend]:
    backend = PostgresBackend(tmp_path, is_new=True)
    yield backend
    backend.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresBackend]:
    backend = PostgresBackend(tmp_path)
    yield backend
    backend.close()


@pytest.mark.parametrize(
    ("url", "word"),
    [
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db", "no server is listening"),
        (f"postgresql://me:{SECRET}@/db?host=/nowhere/at/all", "no server is listening"),
        (f"postgresql://me:{SECRET}@no-such-host.invalid/db", "no such host"),
        (f"postgres://me:{SECRET}@127.0.0.1:1/db", "no server is listening"),
        (f"postgresql://me:{SECRET}/x@host/db", "URL is invalid"),
        (f"postgresql://me:@{SECRET}@host/db", "URL is invalid"),
        (f"postgresql://me:{SECRET}%zz@host/db", "URL is invalid"),
        (f"postgresql://me:x@host:{SECRET}/db", "URL is invalid"),
        (f"postgresql://host/db?{SECRET}=1", "URL is invalid"),
        (f"postgresql://[::1/{SECRET}", "URL is invalid"),
    ],
)
def test_a_wrong_url_raises_a_clear_error_without_the_password(url: str, word: str) -> None:
    with pytest.raises(StoreUnavailable, match=word) as caught:
        open_store(url)
    current: BaseException | None = caught.value
    while current is not None:
        assert SECRET not in str(current)
        current = None if current.__suppress_context__ else current.__cause__ or current.__context__


def test_a_wrong_password_user_or_database_raises_a_clear_error() -> None:
    role = create_locked_role("right")
    for url, word in (
        (url_of(user=role, password=SECRET), "refused the user name or the password"),
        (url_of(user=role), "requires a password"),
        (url_of(user="nobody_here"), "no such user"),
        (url_of().replace("/postgres?", "/not_there?"), "does not exist"),
    ):
        with pytest.raises(StoreUnavailable, match=word) as caught:
            open_store(url)
        assert SECRET not in str(caught.value)


def test_a_read_only_or_missing_schema_raises_a_clear_error(fresh: PostgresBackend) -> None:
    role = create_locked_role("right")
    with pytest.raises(StoreUnavailable, match=r"no permission|schema in search_path"):
        open_store(url_of(schema=fresh.schema, user=role, password="right"))
    with pytest.raises(StoreUnavailable, match="schema in search_path does not exist"):
        open_store(url_of(schema="not_there"))


def test_a_missing_driver_raises_an_error_that_names_the_extra() -> None:
    code = """
        import sys
        sys.modules["psycopg"] = None
        from perdure.core.errors import StoreUnavailable
        from perdure.store import open_store
        try:
            open_store("postgresql://localhost/x")
        except StoreUnavailable as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert "pip install 'perdure[postgres]'" in done.stdout


def test_opening_a_file_does_not_import_the_driver(tmp_path: Path) -> None:
    code = "import sys; from perdure.store import open_store; open_store(sys.argv[1]); print('psycopg' in sys.modules)"
    command = [sys.executable, "-c", code, str(tmp_path / "s.db")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("table", ["CREATE TABLE session (name TEXT)", "CREATE TABLE migration (name TEXT)"])
def test_tables_of_another_program_are_rejected(fresh: PostgresBackend, table: str) -> None:
    fresh.execute(table)
    with pytest.raises(StoreUnavailable, match="another program"):
        fresh.open()
    tables = fresh.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    assert len(tables) == 1


def test_a_newer_schema_is_rejected_unchanged(fresh: PostgresBackend) -> None:
    conversation(fresh.open())
    fresh.execute("INSERT INTO migration VALUES (99, 'from the future', 0)")
    with pytest.raises(NewerSchema, match=r"schema 99.*upgrade"):
        fresh.open()
    assert fresh.execute("SELECT COUNT(*) FROM message") == [(20,)]


def test_an_older_schema_is_migrated_once_and_its_tables_are_copied(fresh: PostgresBackend) -> None:
    conversation(fresh.open())
    released = schema.load_migrations(DIALECT)
    newest = released[-1].version
    steps = (*released, Migration(newest + 1, "mood", ("ALTER TABLE conversation ADD COLUMN mood TEXT",)))
    results: list[StoreError | None] = []

    def start() -> None:
        try:
            open_postgres(fresh.url, clock=SystemClock(), migrations=steps).close()
            results.append(None)
        except StoreError as error:
            results.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [None] * 4, "of several that start at once one migrates and none fails"
    assert fresh.execute("SELECT version FROM migration ORDER BY version") == [(s.version,) for s in steps]
    assert fresh.execute(f"SELECT COUNT(*) FROM message_schema_{newest}") == [(20,)]
    assert fresh.execute("SELECT mood FROM conversation") == [(None,)]


def test_a_failed_migration_leaves_the_old_schema_intact(fresh: PostgresBackend) -> None:
    session = conversation(fresh.open())
    released = schema.load_migrations(DIALECT)
    newest = released[-1].version
    broken = Migration(newest + 1, "broken", ("ALTER TABLE conversation ADD COLUMN mood TEXT", "THIS IS NO SQL"))
    with pytest.raises(StoreError):
        open_postgres(fresh.url, clock=SystemClock(), migrations=(*released, broken))
    assert len(fresh.open().history(session).entries) == 20
    assert fresh.execute("SELECT to_regclass(?)", (f"message_schema_{newest}",)) == [(None,)]


@pytest.mark.parametrize("table", ["message", "span", "handoff", "call", "event", "tombstone"])
def test_tables_cannot_be_truncated_and_permits_cannot_be_kept_or_forged(server: PostgresBackend, table: str) -> None:
    conversation(server.open())
    with pytest.raises(Exception, match=r"never|cannot truncate"):
        server.execute(f"TRUNCATE {table} CASCADE")
    with pytest.raises(Exception, match="nowhere_is_empty"):
        server.execute("INSERT INTO nowhere VALUES (1)")
    fake = "CREATE TEMP TABLE permit AS SELECT id AS conversation, 'scrub' AS deed FROM conversation"
    with pytest.raises(Exception, match="never"):
        server.execute(f"{fake}; UPDATE message SET body = 'x'")


def drop_connections(server: PostgresBackend) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = ? AND pid <> pg_backend_pid()",
        (server.schema,),
    )


@pytest.mark.spec("I1")
def test_idle_connections_that_were_dropped_are_replaced(server: PostgresBackend) -> None:
    store = server.open()
    session = conversation(store)
    drop_connections(server)
    store.append(session, user("on"))
    drop_connections(server)
    assert store.history(session).messages[-1].text == "on"


@pytest.mark.spec("I1", "I7")
def test_a_blocked_writer_times_out_and_can_retry(server: PostgresBackend) -> None:
    session = conversation(server.open())
    patient = open_postgres(server.url, clock=SystemClock())
    impatient = open_postgres(server.url, clock=SystemClock(), timeout_s=0.3)
    entered, leave = threading.Event(), threading.Event()

    def lock(tx: Transaction) -> int:
        return len(tx.rows("SELECT id FROM conversation FOR UPDATE"))

    def hold(tx: Transaction) -> None:
        lock(tx)
        entered.set()
        leave.wait(10)

    holder = threading.Thread(target=patient.write, args=(hold,))
    holder.start()
    entered.wait(10)
    with pytest.raises(StoreUnavailable, match="kept it busy"):
        impatient.write(lock)
    leave.set()
    holder.join()
    assert impatient.write(lock) == 1
    for database in (patient, impatient):
        database.close()
    server.open().append(session, user("on"))


def test_an_ignored_statement_failure_fails_the_commit(server: PostgresBackend) -> None:
    server.open()
    database = open_postgres(server.url, clock=SystemClock())

    def work(tx: Transaction) -> None:
        tx.run("INSERT INTO state (scope, key, value) VALUES ('a', 'b', '1')")
        with suppress(Exception):
            tx.run("INSERT INTO state (scope) VALUES ('a')")

    with pytest.raises(StoreError, match="nothing was written"):
        database.write(work)
    assert database.read(lambda tx: tx.rows("SELECT * FROM state")) == []
    database.close()


def test_a_postgres_backup_raises_an_error_that_names_pg_dump(server: PostgresBackend, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="pg_dump"):
        server.open().backup(tmp_path / "copy")


def busy(store: SessionStore, session_id: str, until: float, errors: list[str]) -> None:
    while time.monotonic() < until:
        try:
            store.append(session_id, exchange(1))
        except StoreUnavailable as error:
            errors.append(str(error))


@pytest.mark.spec("I1")
def test_connections_dropped_under_load_lose_nothing_acknowledged(server: PostgresBackend) -> None:
    stores = [server.open() for _ in range(3)]
    sessions = [s.create().id for s in stores]
    errors: list[str] = []
    until = time.monotonic() + 1.5
    pairs = zip(stores, sessions, strict=True)
    threads = [threading.Thread(target=busy, args=(store, session, until, errors)) for store, session in pairs]
    for thread in threads:
        thread.start()
    while time.monotonic() < until - 0.2:
        drop_connections(server)
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    for session in sessions:
        seqs = [e.seq for e in stores[0].history(session).entries]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) % 4 == 0, "an append is there wholly or not at all"
        assert seqs
    assert all("connection" in t or "shutting down" in t for t in errors), errors
