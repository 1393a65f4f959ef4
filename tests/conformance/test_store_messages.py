"""The log, on every database: durable, append-only, idempotent by key."""

from __future__ import annotations

import datetime
import decimal
import enum
import threading
import uuid
from pathlib import PurePosixPath

import pytest

from perdure.core.errors import InvalidMessage, NotFound, StoreError
from perdure.core.messages import Message, assistant, user
from perdure.store import SessionStore, Span
from support.store import Backend, FakeClock, compacted, conversation, exchange

BROKEN_CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{not json"}}
PARTS = [{"type": "text", "text": "x"}, {"type": "audio", "data": [1, 2.5, True]}]
ODD = [
    {"role": "user", "content": "nul \0 and \x07 bell"},
    {"role": "user", "content": "emoji 🦜 and 模型 and \u202e rtl"},
    {"role": "assistant", "content": None, "tool_calls": [BROKEN_CALL]},
    {"role": "tool", "tool_call_id": "a", "content": PARTS},
    {"role": "assistant", "content": "", "reasoning": "because", "refusal": None, "extra": {"nested": ["\ud800"]}},
    {"role": "user", "content": "x" * 100_000},
]


class Kind(enum.Enum):
    A = "a"


class Scalar:
    """A value of an array library."""

    def __init__(self, value: object) -> None:
        self._value = value

    def tolist(self) -> object:
        return self._value


def _nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.spec("I1")
def test_acknowledged_messages_survive_reopening(backend: Backend) -> None:
    first = backend.open()
    session = first.create(system_prompt="prompt ✓")
    first.append(session.id, exchange(1))
    second = backend.open()
    history = second.history(session.id)
    assert history.session.system_prompt == "prompt ✓"
    assert list(history.messages) == exchange(1)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"ab", Kind.A, [iter("a")], {1: "a", "b": 2}, _nested(100_000)])
def test_what_json_lacks_is_refused_and_nothing_is_stored(store: SessionStore, value: object) -> None:
    session = store.create()
    with pytest.raises(InvalidMessage, match="as JSON has"):
        store.append(session.id, [{"role": "user", "content": "x"}, {"role": "user", "content": "y", "key": value}])
    assert store.history(session.id).entries == ()


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime.datetime(2020, 1, 1), "2020-01-01 00:00:00"),
        (datetime.date(2020, 1, 1), "2020-01-01"),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=5), str(uuid.UUID(int=5))),
        (PurePosixPath("/a/b"), "/a/b"),
        (float("inf"), float("inf")),
        (Scalar(3), 3),
        ([Scalar(1.5)], [1.5]),
        (Scalar([1, 2]), [1, 2]),
        (Scalar(datetime.date(2020, 1, 1)), "2020-01-01"),
    ],
)
def test_a_value_with_an_obvious_json_form_is_stored_in_that_form(
    store: SessionStore, value: object, stored: object
) -> None:
    raw = {"role": "user", "content": "y", "key": value}
    session, replayed = store.create(), store.create()
    store.append(session.id, raw)
    assert store.transfer.export_messages(session.id) == [{"role": "user", "content": "y", "key": stored}]
    store.append(replayed.id, Message.from_dict(raw))  # as a turn stores the history that it is handed
    assert store.transfer.export_messages(replayed.id) == store.transfer.export_messages(session.id)
    assert store.log.ingest(session.id, [raw]).added == 0


def test_a_stored_nan_can_be_replayed_and_imported(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, Message.from_dict({"role": "user", "content": "y", "key": float("nan")}))
    assert store.log.ingest(session.id, store.transfer.export_messages(session.id)).added == 0
    copy = store.transfer.import_copy(store.transfer.export_jsonl(session.id))
    assert repr(store.transfer.export_messages(copy.id)) == repr(store.transfer.export_messages(session.id))


def test_messages_may_be_any_iterable(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, (m for m in exchange(1)))
    assert list(store.history(session.id).messages) == exchange(1)


@pytest.mark.spec("I1")
def test_messages_round_trip_whatever_they_contain(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, ODD)
    back = [m.to_dict() for m in store.history(session.id).messages]
    assert back[:4] == ODD[:4]
    assert back[5] == ODD[5]
    assert back[4]["extra"] == {"nested": ["\ufffd"]}  # no database takes a lone surrogate


@pytest.mark.spec("I1")
def test_a_kind_without_a_dict_field_round_trips(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, Message("user", "background", kind="note"))
    assert store.history(session.id).messages[0].kind == "note"


def test_two_equal_messages_stay_two(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, user("yes"))
    store.append(session.id, user("yes"))
    assert [e.seq for e in store.history(session.id).entries] == [1, 2]


def test_replaying_a_whole_conversation_adds_nothing(store: SessionStore) -> None:
    session = store.create()
    messages = [m for n in range(4) for m in exchange(n)]
    assert store.log.ingest(session.id, messages).added == len(messages)
    assert store.log.ingest(session.id, messages).added == 0
    assert store.log.ingest(session.id, messages[:5]).added == 0
    longer = store.log.ingest(session.id, [*messages, user("more")])
    assert longer.added == 1
    assert len(longer.entries) == len(messages) + 1


def test_replay_after_compactions_and_undo_adds_nothing(store: SessionStore) -> None:
    session = conversation(store, 6)
    messages = [e.message for e in store.log.originals(session)]
    compacted(store, session)
    store.append(session, user("between"))
    compacted(store, session)
    store.undo(session)
    assert store.log.ingest(session, [*messages, user("between")]).added == 0
    assert store.log.ingest(session, [*messages, user("between"), user("after")]).added == 1


def test_a_different_history_never_changes_the_log(store: SessionStore) -> None:
    session = store.create()
    store.log.ingest(session.id, [user("a"), assistant("b"), user("c")])
    with pytest.raises(StoreError, match="m:2"):
        store.log.ingest(session.id, [user("a"), assistant("other"), user("c")])
    assert [m.text for m in store.history(session.id).messages] == ["a", "b", "c"]


def test_an_append_whose_response_was_lost_can_be_retried(store: SessionStore) -> None:
    session = store.create()
    before = store.append(session.id, user("a")).entries[-1].seq
    first = store.append(session.id, [assistant("b"), user("c")], after_seq=before)
    again = store.append(session.id, [assistant("b"), user("c")], after_seq=before)
    assert (first.added, again.added) == (2, 0)
    assert [e.seq for e in again.entries] == [e.seq for e in first.entries]
    more = store.append(session.id, [assistant("b"), user("c"), assistant("d")], after_seq=before)
    assert more.added == 1
    with pytest.raises(StoreError):
        store.append(session.id, [assistant("not b")], after_seq=before)


@pytest.mark.spec("I4")
def test_any_id_of_a_chain_appends_to_its_tip(store: SessionStore) -> None:
    session = conversation(store)
    child = compacted(store, session)
    appended = store.append(session, user("typed against the old id"))
    assert appended.session_id == child
    assert store.history(child).messages[-1].text == "typed against the old id"


def test_time_and_order_come_from_the_clock_and_the_log(store: SessionStore, clock: FakeClock) -> None:
    session = store.create()
    first = store.append(session.id, user("a")).entries[0]
    clock.pass_ms(1500)
    second = store.append(session.id, user("b")).entries[0]
    assert second.created_at_ms - first.created_at_ms == 1500
    assert [e.created_at_ms for e in store.history(session.id).entries] == [first.created_at_ms, second.created_at_ms]


def test_an_interval_of_the_log_is_read_alone(store: SessionStore) -> None:
    session = conversation(store, 5)
    assert [e.seq for e in store.log.read(session, Span(7, 9))] == [7, 8, 9]
    assert [e.seq for e in store.log.reader(session).read(19, 99)] == [19, 20]


def test_threads_append_concurrently_without_losing_or_duplicating(store: SessionStore) -> None:
    session = store.create()

    def speak(who: int) -> None:
        for n in range(20):
            store.append(session.id, user(f"{who}-{n}"))

    threads = [threading.Thread(target=speak, args=(w,)) for w in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    entries = store.history(session.id).entries
    assert [e.seq for e in entries] == list(range(1, 121))
    assert sorted(e.message.text for e in entries) == sorted(f"{w}-{n}" for w in range(6) for n in range(20))


def test_an_unknown_session_is_named_in_the_error(store: SessionStore) -> None:
    with pytest.raises(NotFound, match="s_nowhere"):
        store.append("s_nowhere", user("hello"))
    with pytest.raises(NotFound):
        store.history("s_nowhere\0")
