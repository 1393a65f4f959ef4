"""A conversation as one story, on every database: page by page across its chain, with its calls and events."""

from __future__ import annotations

import pytest

from perdure.core.errors import NotFound
from perdure.core.messages import user
from perdure.store import CallRecord, SessionStore
from support.store import compacted, conversation


def whole(store: SessionStore, any_id: str, limit: int) -> list[int]:
    """Every seq, read from the newest page to the oldest."""
    seqs: list[int] = []
    page = store.timeline.page(any_id, limit=limit)
    while True:
        seqs = [t.seq for t in page.entries] + seqs
        if page.before_seq is None:
            return seqs
        page = store.timeline.page(any_id, before_seq=page.before_seq, limit=limit)


@pytest.mark.spec("A7", "I4", "I5")
@pytest.mark.parametrize("limit", [1, 3, 7, 1_000])
def test_pages_cover_all_messages_of_every_session(store: SessionStore, limit: int) -> None:
    first = conversation(store)
    second = compacted(store, first)
    store.append(second, [user("more"), user("and more")])
    third = compacted(store, second)
    store.append(third, user("last"))
    for any_id in (first, third, store.conversations.get(first).id):
        assert whole(store, any_id, limit) == list(range(1, store.conversations.get(first).last_seq + 1))
    entries = store.timeline.page(third, limit=1_000).entries
    assert [t.seq for t in entries if not t.is_original] == sorted(store.log.handoffs(third))
    assert list(dict.fromkeys(t.session_id for t in entries)) == [first, second, third]
    chain = store.conversations.chain(third)
    assert [(s.id, s.first_seq, s.end_reason, s.system_prompt) for s in chain] == [
        (s.id, s.first_seq, s.end_reason, "") for s in store.conversations.sessions(third)
    ]


@pytest.mark.spec("A7")
def test_a_client_reads_on_after_its_last_message(store: SessionStore) -> None:
    session = conversation(store)
    last = store.timeline.page(session, limit=4).entries[-1].seq
    assert store.timeline.after(session, last).entries == ()
    store.append(session, [user(f"more {n}") for n in range(5)])
    page = store.timeline.after(session, last, limit=3)
    assert [t.entry.message.text for t in page.entries] == ["more 0", "more 1", "more 2"]
    assert page.has_newer
    assert not store.timeline.after(session, page.entries[-1].seq).has_newer


@pytest.mark.spec("I5")
def test_a_branchs_timeline_includes_shared_messages(store: SessionStore) -> None:
    session = conversation(store)
    branch = store.conversations.branch(session, at_seq=6).id
    store.append(branch, user("another way"))
    store.append(session, user("not in the branch"))
    entries = store.timeline.page(branch, limit=100).entries
    assert [t.seq for t in entries] == list(range(1, 8))
    assert entries[-1].entry.message.text == "another way"


def test_out_of_range_positions_are_empty_and_unknown_ids_not_found(store: SessionStore) -> None:
    session = conversation(store)
    empty = store.create().id
    assert store.timeline.page(empty).entries == ()
    assert store.timeline.page(session, before_seq=1).entries == ()
    assert store.timeline.page(session, before_seq=-5).entries == ()
    assert len(store.timeline.page(session, before_seq=10**9, limit=-3).entries) == 1
    assert store.timeline.after(session, 10**9).entries == ()
    with pytest.raises(NotFound):
        store.timeline.page("c_nowhere")


@pytest.mark.spec("A7", "C1")
def test_calls_are_read_between_known_ones(store: SessionStore) -> None:
    session, other = conversation(store), conversation(store)
    for n in range(10):
        store.ledger.record_call(CallRecord(session, turn_id=f"t_{n}"))
        store.ledger.record_call(CallRecord(other))
    calls = store.ledger.calls(session)
    assert [c.turn_id for c in calls] == [f"t_{n}" for n in range(10)]
    newest = store.ledger.calls(session, limit=3)
    assert newest == calls[-3:]
    assert store.ledger.calls(session, before_id=newest[0].id, limit=3) == calls[4:7]
    assert store.ledger.calls(session, after_id=calls[7].id) == calls[8:]
