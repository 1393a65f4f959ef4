"""Client histories on every database: positions are stored, purged and deleted with their conversation."""

from __future__ import annotations

import pytest

from perdure.gateway.workers.maintenance import HISTORY_TTL_MS, purge_expired
from perdure.store.queries import HistoryPosition
from perdure.store.store import SessionStore
from support.store import FakeClock, conversation


@pytest.mark.spec("I8")
def test_the_newest_position_of_a_fingerprint_wins(store: SessionStore) -> None:
    store.client_histories.put("p", HistoryPosition("c_1", 4))
    store.client_histories.put("p", HistoryPosition(None, 0))
    assert store.client_histories.get("p") == HistoryPosition(None, 0)
    assert store.client_histories.get("q") is None


@pytest.mark.spec("I8")
def test_old_positions_and_those_over_the_limit_are_purged(store: SessionStore, clock: FakeClock) -> None:
    for number in range(6):
        store.client_histories.put(f"p{number}", HistoryPosition("c_1", number))
        clock.pass_ms(10)
    assert store.client_histories.purge(before_ms=clock.ms - 50, limit=100) == 1
    assert store.client_histories.purge(before_ms=0, limit=5) == 0
    assert store.client_histories.purge(before_ms=0, limit=3) == 2
    assert [n for n in range(6) if store.client_histories.get(f"p{n}")] == [3, 4, 5]


@pytest.mark.spec("I8")
def test_a_gateway_purges_old_positions(store: SessionStore, clock: FakeClock) -> None:
    store.client_histories.put("old", HistoryPosition("c_1", 1))
    clock.pass_ms(HISTORY_TTL_MS + 1)
    store.client_histories.put("new", HistoryPosition("c_1", 2))
    purge_expired(store, clock)
    assert (store.client_histories.get("old"), store.client_histories.get("new")) == (None, HistoryPosition("c_1", 2))


@pytest.mark.spec("I8")
def test_positions_are_deleted_with_their_conversation(store: SessionStore) -> None:
    doomed, remaining = conversation(store), conversation(store)
    for name, any_id in (("doomed", doomed), ("kept", remaining)):
        store.client_histories.put(name, HistoryPosition(store.conversations.get(any_id).id, 1))
    store.delete(doomed)
    assert store.client_histories.get("doomed") is None
    assert store.client_histories.get("kept") is not None
