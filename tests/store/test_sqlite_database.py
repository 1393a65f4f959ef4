"""The SQLite side of the Database port: one writer, many readers, patience with other processes."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.errors import StoreError, StoreUnavailable
from perdure.store.db.database import Transaction
from perdure.store.db.sqlite import SqliteDatabase, open_sqlite


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    sqlite_database = open_sqlite(tmp_path / "sessions.db", clock=SystemClock(), timeout_s=0.3)
    yield sqlite_database
    sqlite_database.close()


def put(key: str) -> object:
    return lambda tx: tx.run("INSERT INTO state VALUES ('s', ?, '1')", (key,))


def keys(database: SqliteDatabase) -> list[str]:
    return [k for (k,) in database.read(lambda tx: tx.rows("SELECT key FROM state ORDER BY key"))]


@pytest.mark.spec("I1")
def test_every_commit_is_on_disk_when_it_returns(database: SqliteDatabase) -> None:
    settings = {
        name: database.write(lambda tx, name=name: tx.rows(f"PRAGMA {name}"))[0][0]
        for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


@pytest.mark.spec("I1")
def test_only_an_unsynced_write_waits_for_the_next_commit_to_be_on_disk(database: SqliteDatabase) -> None:
    def level(tx: Transaction) -> int:
        return int(tx.rows("PRAGMA synchronous")[0][0])

    def write_elsewhere() -> None:  # not in the main thread: in its own, and then in the writer's
        levels.extend((database.write_unsynced(level), database.write(level), database.write_unsynced(level)))

    levels: list[int] = []
    thread = threading.Thread(target=write_elsewhere)
    thread.start()
    thread.join(5)
    levels.extend((database.write_unsynced(level), database.write(level)))
    assert levels == [1, 2, 1, 1, 2]
    database.write_unsynced(put("seen at once"))
    assert keys(database) == ["seen at once"]


def test_a_write_that_raises_is_rolled_back_and_the_next_one_works(database: SqliteDatabase) -> None:
    def half(tx: Transaction) -> None:
        tx.run("INSERT INTO state VALUES ('s', 'half', '1')")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.write(half)
    database.write(put("whole"))
    assert keys(database) == ["whole"]


def test_a_reader_sees_a_consistent_snapshot(database: SqliteDatabase) -> None:
    def look(tx: Transaction) -> tuple[int, int]:
        before = tx.rows("SELECT COUNT(*) FROM state")[0][0]
        database.write(put("meanwhile"))
        return before, tx.rows("SELECT COUNT(*) FROM state")[0][0]

    assert database.read(look) == (0, 0)
    assert keys(database) == ["meanwhile"]


def test_readers_cannot_write(database: SqliteDatabase) -> None:
    with pytest.raises(StoreError, match="read-only"):
        database.read(put("sneaked in"))
    assert keys(database) == []


@pytest.mark.spec("I8")
def test_a_write_waits_for_a_busy_file(database: SqliteDatabase) -> None:
    other = sqlite3.connect(database.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.15, lambda: other.execute("COMMIT"))
    release.start()
    database.write(put("patient"))
    release.join()
    other.close()
    assert keys(database) == ["patient"]


def test_a_busy_file_times_out_with_a_clear_error_and_loses_nothing(database: SqliteDatabase) -> None:
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process kept it busy"):
        database.write(put("too late"))
    other.execute("COMMIT")
    other.close()
    database.write(put("in time"))
    assert keys(database) == ["in time"]


def test_closing_waits_for_running_writes(tmp_path: Path) -> None:
    database = open_sqlite(tmp_path / "sessions.db", clock=SystemClock())
    started, go = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        started.set()
        go.wait()
        tx.run("INSERT INTO state VALUES ('s', 'slow', '1')")

    writing = threading.Thread(target=database.write, args=(slow,))
    writing.start()
    started.wait()
    closing = threading.Thread(target=database.close)
    closing.start()
    go.set()
    writing.join()
    closing.join()
    again = open_sqlite(tmp_path / "sessions.db", clock=SystemClock())
    assert keys(again) == ["slow"]
    again.close()


def test_a_write_runs_in_its_own_thread_except_in_the_main_thread(database: SqliteDatabase) -> None:
    def where(tx: Transaction) -> threading.Thread:
        return threading.current_thread()

    ran: list[object] = []
    worker = threading.Thread(target=lambda: ran.append(database.write(where)))
    worker.start()
    worker.join()
    assert ran == [worker], "no hand-over while there is no other write"
    assert database.write(where) is not threading.main_thread(), "Ctrl-C must not interrupt a write"


def queued_behind_a_busy_writer(
    database: SqliteDatabase, works: list[object], methods: Sequence[Callable[..., object]] = ()
) -> list[object]:
    """What comes of writes that were all waiting when the writer came to them; errors as they were raised."""
    methods = methods or [database.write] * len(works)
    is_busy, may_go = threading.Event(), threading.Event()
    outcomes: list[object] = [None] * len(works)

    def hold(tx: Transaction) -> None:
        is_busy.set()
        may_go.wait(5)

    def write(number: int) -> None:
        try:
            outcomes[number] = methods[number](works[number])
        except Exception as error:
            outcomes[number] = error

    holding = threading.Thread(target=database.write, args=(hold,))
    holding.start()
    is_busy.wait(5)
    threads = [threading.Thread(target=write, args=(n,)) for n in range(len(works))]
    for thread in threads:
        thread.start()
        time.sleep(0.02)  # so that they queue in this order
    may_go.set()
    for thread in (holding, *threads):
        thread.join(5)
    return outcomes


def test_queued_writes_are_committed_together(database: SqliteDatabase) -> None:
    seen_outside: list[str] = []

    def look(tx: Transaction) -> int:
        seen_outside.extend(keys(database))
        return len(tx.rows("SELECT key FROM state"))

    outcomes = queued_behind_a_busy_writer(database, [put("a"), put("b"), look])

    assert outcomes == [1, 1, 2]
    assert seen_outside == [], "nobody else sees a write before its commit"
    assert keys(database) == ["a", "b"]


@pytest.mark.spec("I1")
def test_a_group_is_on_disk_when_one_of_its_writes_has_to_be(database: SqliteDatabase) -> None:
    levels: list[int] = []

    def note_level(tx: Transaction) -> None:
        levels.append(tx.rows("PRAGMA synchronous")[0][0])

    for durable in (False, True):
        methods = [database.write_unsynced, database.write if durable else database.write_unsynced]
        levels.clear()
        queued_behind_a_busy_writer(database, [note_level] * 2, methods)
        assert levels == [2 if durable else 1] * 2


def test_a_failing_write_does_not_affect_others_in_its_group(database: SqliteDatabase) -> None:
    def fail(tx: Transaction) -> None:
        tx.run("INSERT INTO state VALUES ('s', 'half', '1')")
        raise ZeroDivisionError

    outcomes = queued_behind_a_busy_writer(database, [put("a"), fail, put("b"), put("a")])

    assert outcomes[0] == outcomes[2] == 1
    assert isinstance(outcomes[1], ZeroDivisionError)
    assert isinstance(outcomes[3], StoreError), "the same key again is refused, and only that"
    assert keys(database) == ["a", "b"]


def test_closing_runs_queued_writes_first(database: SqliteDatabase) -> None:
    assert queued_behind_a_busy_writer(database, [put(f"k{n:02}") for n in range(40)]) == [1] * 40
    database.close()
    assert sqlite3.connect(database.path).execute("SELECT COUNT(*) FROM state").fetchone() == (40,)
