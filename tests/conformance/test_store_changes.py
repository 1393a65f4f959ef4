"""Change feed on every database: each change is reported once to every reader."""

from __future__ import annotations

import threading

import pytest

from perdure.core.errors import StoreError
from perdure.core.messages import user
from perdure.core.visibility import User
from perdure.store import CallRecord, SessionStore, StoredEvent
from perdure.store.records import ChangeSet
from support.store import Backend, compacted, conversation


def what(changes: ChangeSet) -> dict[str, tuple[bool, bool, bool]]:
    assert not changes.is_reload_needed
    return {c.conversation.tip_session_id: (c.has_messages, c.has_calls, c.has_events) for c in changes.changed}


@pytest.mark.spec("A7", "I8")
def test_messages_calls_and_events_of_another_process_are_reported_once(backend: Backend) -> None:
    here, elsewhere = backend.open(), backend.open()
    first, second = conversation(elsewhere), conversation(elsewhere)
    start = here.changes.now()
    # Not the same cursor always: on PostgreSQL other databases of the server move it.
    assert what(here.changes.since(start)) == {}
    elsewhere.append(first, user("hello"))
    elsewhere.ledger.record_call(CallRecord(first))
    elsewhere.ledger.record_event(StoredEvent(second, "notice", {"text": "hm"}))
    news = here.changes.since(start)
    assert what(news) == {first: (True, True, False), second: (False, False, True)}
    assert next(c for c in news.changed if c.has_messages).conversation.last_seq == 21
    assert what(here.changes.since(news.cursor)) == {}
    # Reading does not consume: the same cursor returns the same changes.
    assert what(here.changes.since(start)) == what(news)


@pytest.mark.spec("A7", "I4")
def test_titles_compactions_and_undos_are_changes_too(store: SessionStore) -> None:
    session = conversation(store)
    cursor = store.changes.now()
    store.conversations.set_title(session, "Renamed")
    news = store.changes.since(cursor)
    assert [c.conversation.title for c in news.changed] == ["Renamed"]
    child = compacted(store, session)
    news = store.changes.since(news.cursor)
    assert what(news) == {child: (True, False, False)}
    undone = store.undo(child).id
    assert what(store.changes.since(news.cursor)) == {undone: (False, False, True)}


@pytest.mark.spec("A4", "A7")
def test_a_user_sees_only_their_own_changes(store: SessionStore) -> None:
    cursor = store.changes.now()
    sessions = {name: store.create(user_key=name).id for name in ("anna", "boris")}
    for session in sessions.values():
        store.append(session, user("hello"))
    assert set(what(store.changes.since(cursor, visibility=User("anna")))) == {sessions["anna"]}
    assert what(store.changes.since(cursor, visibility=User("nobody"))) == {}
    assert set(what(store.changes.since(cursor))) == set(sessions.values())


@pytest.mark.spec("A7")
def test_a_deletion_requires_a_reload_and_later_changes_are_reported(store: SessionStore) -> None:
    remaining, doomed = conversation(store), conversation(store)
    cursor = store.changes.now()
    store.delete(doomed)
    store.append(remaining, user("said while nobody looked"))
    news = store.changes.since(cursor)
    assert news.is_reload_needed
    store.append(remaining, user("and later"))
    assert what(store.changes.since(news.cursor)) == {remaining: (True, False, False)}


@pytest.mark.spec("A7", "I8")
def test_no_change_is_missed_or_repeated_with_concurrent_writers(backend: Backend) -> None:
    reader, stores = backend.open(), [backend.open() for _ in range(3)]
    sessions = [s.create().id for s in stores]
    cursor = reader.changes.now()
    last_seqs = dict.fromkeys(sessions, 0)
    writers = [
        threading.Thread(target=lambda s=s, i=i: [s.append(i, user(str(n))) for n in range(40)])
        for s, i in zip(stores, sessions, strict=True)
    ]
    for thread in writers:
        thread.start()
    is_over = False
    while not is_over:
        is_over = not any(t.is_alive() for t in writers)
        news = reader.changes.since(cursor)
        cursor = news.cursor
        for change in news.changed:
            ident, last = change.conversation.tip_session_id, change.conversation.last_seq
            assert last > last_seqs[ident], "told without anything new"
            last_seqs[ident] = last
    assert set(last_seqs.values()) == {40}


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "0~",
        "0~1",
        "0~1.2",
        "1~2.3.4.5",
        "0~5:3:",
        "0~0:1:",
        "0~1:9:7,5",
        "0~1:4:9",
        "0~::",
        "-1~1.2.3",
        "0~9" * 99,
    ],
)
def test_an_invalid_cursor_raises_a_clear_error(store: SessionStore, cursor: str) -> None:
    with pytest.raises(StoreError, match="not a valid change cursor"):
        store.changes.since(cursor)


def test_a_cursor_ahead_of_the_database_requires_a_reload(backend: Backend) -> None:
    store = backend.open()
    conversation(store)
    ahead = "0~999999.0.0" if backend.name == "sqlite" else "0~99999999:99999999:"
    assert store.changes.since(ahead).is_reload_needed
