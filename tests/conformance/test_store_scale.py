"""What must not grow with a conversation, counted rather than timed: rows touched, not milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.store import SessionStore, Span
from support.store import Backend, conversation, exchange, handoff


def row_counts(backend: Backend) -> dict[str, int]:
    tables = ("message", "session", "span", "handoff", "conversation")
    return {t: backend.execute(f"SELECT COUNT(*) FROM {t}")[0][0] for t in tables}


@pytest.mark.spec("I2")
def test_a_compaction_writes_a_handful_of_rows_whatever_the_length(backend: Backend) -> None:
    store = backend.open()
    for exchanges in (5, 500):
        session = conversation(store, exchanges)
        before = row_counts(backend)
        last = exchanges * 4
        store.compact(session, (Span(1, 3), handoff(), Span(last - 7, last)))
        after = row_counts(backend)
        grown = {t: after[t] - before[t] for t in after if after[t] != before[t]}
        assert grown == {"message": 1, "session": 1, "span": 3, "handoff": 1}


def test_an_undo_and_a_branch_copy_nothing(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store, 100)
    store.compact(session, (Span(1, 3), handoff(), Span(393, 400)))
    before = row_counts(backend)
    store.undo(session)
    store.conversations.branch(session, at_seq=200)
    after = row_counts(backend)
    assert after["message"] == before["message"]
    assert after["handoff"] == before["handoff"]
    assert after["span"] - before["span"] <= 4


def stored_bytes(store: SessionStore, path: Path) -> int:
    store.backup(path)
    return path.stat().st_size


def test_the_database_stays_within_twice_its_content(backend: Backend, tmp_path: Path) -> None:
    if backend.name != "sqlite":
        pytest.skip("a file's size is measured for SQLite; the benchmark measures the rest")
    store = backend.open()
    session = store.create()
    line = "The quick brown fox number {n} jumps over src/module_{n}/file_{n}.py and returns {n}{n}. "
    texts = [line.format(n=n) * 12 for n in range(600)]
    store.append(session.id, texts)
    content = sum(len(t.encode()) for t in texts)
    assert stored_bytes(store, tmp_path / "copy.db") < 2 * content


def test_many_small_exchanges_stay_readable_after_many_compactions(backend: Backend) -> None:
    store = backend.open()
    session = store.create()
    for n in range(40):
        store.append(session.id, exchange(n))
        entries = store.history(store.get_compression_tip(session.id)).entries
        store.compact(session.id, (handoff(f"after {n}"), Span(entries[-1].seq, entries[-1].seq)))
    tip = store.get_compression_tip(session.id)
    assert len(store.history(tip).entries) == 2
    assert [e.message for e in store.log.expand(tip)] == [m for n in range(40) for m in exchange(n)]
