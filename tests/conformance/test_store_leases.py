"""Leases, on every database: one writer at a time, and a writer that was overtaken is refused."""

from __future__ import annotations

import threading

import pytest

from perdure.core.errors import LeaseLost, NotFound, StoreError
from perdure.core.messages import user
from perdure.store import SessionStore, Span
from support.store import Backend, FakeClock, conversation, handoff


@pytest.mark.spec("I7")
def test_the_error_names_the_holder(backend: Backend, clock: FakeClock) -> None:
    mine, theirs = backend.open(clock), backend.open(clock)
    session = conversation(mine)
    mine.leases.acquire(session, "gateway-1 pid 77", ttl_ms=5_000)
    with pytest.raises(LeaseLost, match="gateway-1 pid 77"):
        theirs.leases.acquire(session, "gateway-2")
    with pytest.raises(LeaseLost, match="gateway-1 pid 77"):
        theirs.append(session, user("without asking"))
    with pytest.raises(LeaseLost):
        theirs.compact(session, (handoff(),))
    holder = theirs.leases.holder_of(session)
    assert holder is not None
    assert holder.holder == "gateway-1 pid 77"


@pytest.mark.spec("I7")
def test_an_expired_lease_is_taken_over_and_its_writer_is_rejected(backend: Backend, clock: FakeClock) -> None:
    sleeper, other = backend.open(clock), backend.open(clock)
    session = conversation(sleeper)
    stale = sleeper.leases.acquire(session, "sleeper", ttl_ms=1_000)
    clock.pass_ms(1_001)
    fresh = other.leases.acquire(session, "other", ttl_ms=1_000)
    assert fresh.token > stale.token
    before = sleeper.log.originals(session)
    for write in (
        lambda: sleeper.append(session, user("late"), lease=stale),
        lambda: sleeper.log.ingest(session, [user("late")], lease=stale),
        lambda: sleeper.compact(session, (Span(1, 2), handoff()), lease=stale),
        lambda: sleeper.undo(session, lease=stale),
        lambda: sleeper.delete(session, lease=stale),
        lambda: sleeper.scrub(session, str.upper, lease=stale),
        lambda: sleeper.conversations.end(session, "left", lease=stale),
        lambda: sleeper.leases.renew(stale),
    ):
        with pytest.raises(LeaseLost, match="other"):
            write()
    sleeper.leases.release(stale)
    assert len(sleeper.log.originals(session)) == len(before)
    other.append(session, user("mine"), lease=fresh)


@pytest.mark.spec("I7")
def test_renewing_extends_a_lease_and_releasing_frees_it(store: SessionStore, clock: FakeClock) -> None:
    session = conversation(store)
    lease = store.leases.acquire(session, "a", ttl_ms=1_000)
    for _ in range(5):
        clock.pass_ms(900)
        lease = store.leases.renew(lease, ttl_ms=1_000)
    with pytest.raises(LeaseLost):
        store.leases.acquire(session, "b")
    store.leases.release(lease)
    assert store.leases.holder_of(session) is None
    store.leases.acquire(session, "b")


def test_an_expired_lease_that_was_not_taken_over_still_writes(store: SessionStore, clock: FakeClock) -> None:
    session = conversation(store)
    lease = store.leases.acquire(session, "a", ttl_ms=10)
    clock.pass_ms(60_000)
    store.append(session, user("slow but alone"), lease=lease)


@pytest.mark.spec("I7")
def test_exactly_one_of_many_concurrent_acquires_succeeds(backend: Backend) -> None:
    stores = [backend.open() for _ in range(4)]
    session = conversation(stores[0])
    won: list[str] = []
    start = threading.Barrier(8)

    def try_it(number: int) -> None:
        start.wait()
        try:
            won.append(stores[number % 4].leases.acquire(session, f"w{number}").holder)
        except LeaseLost:
            return

    threads = [threading.Thread(target=try_it, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(won) == 1


def test_a_held_lease_is_renewed_and_released_with_its_block(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    with store.leases.hold(session, "block", ttl_ms=300) as lease:
        threading.Event().wait(0.7)
        assert store.leases.holder_of(session) is not None
        store.append(session, user("inside"), lease=lease)
    assert store.leases.holder_of(session) is None


def test_a_lease_is_for_one_conversation_and_one_that_exists(store: SessionStore) -> None:
    one, two = conversation(store), conversation(store)
    lease = store.leases.acquire(one, "a")
    with pytest.raises(StoreError, match="not for"):
        store.append(two, user("x"), lease=lease)
    store.append(two, user("others are free"))
    with pytest.raises(NotFound):
        store.leases.acquire("c_nowhere", "a")


@pytest.mark.spec("I7")
def test_an_empty_append_checks_the_lease(store: SessionStore) -> None:
    session = conversation(store)
    lease = store.leases.acquire(session, "one")
    assert store.append(session, [], lease=lease).added == 0
    with pytest.raises(LeaseLost, match="one"):
        store.append(session, [])


LOST_ANSWER = "INSERT INTO lease (conversation, holder, token, expires_at) VALUES (?, ?, ?, ?)"


@pytest.mark.spec("I7")
def test_a_lease_whose_response_was_lost_can_be_acquired_again(backend: Backend, clock: FakeClock) -> None:
    store = backend.open(clock)
    session = conversation(store)
    # An acquire whose response was lost with the connection: the row exists, but this process does not know it.
    row = (store.conversations.get(session).id, "this process", 7, clock.now_ms() + 30_000)
    backend.execute(LOST_ANSWER, row)
    with pytest.raises(LeaseLost, match="this process"):
        store.leases.acquire(session, "another process")
    lease = store.leases.acquire(session, "this process")
    assert lease.token == 8
    with pytest.raises(LeaseLost, match="this process"):
        backend.open(clock).leases.acquire(session, "this process")
    store.leases.release(lease)
    backend.open(clock).leases.acquire(session, "this process")


@pytest.mark.spec("I7")
def test_a_release_that_fails_frees_the_lease_for_its_own_process(backend: Backend, clock: FakeClock) -> None:
    store, other = backend.open(clock), backend.open(clock)
    session = conversation(store)
    with store.leases.hold(session, "this process"):
        store.close()  # as where the database cannot be reached any more
    with pytest.raises(LeaseLost, match="this process"):
        other.leases.acquire(session, "another process")
    other.leases.acquire(session, "this process")


def test_the_error_shows_a_holder_without_its_id_suffix(store: SessionStore) -> None:
    session = conversation(store)
    store.leases.acquire(session, "web-1:1@0f3a5be2c1d4-4026531836-81236")
    with pytest.raises(LeaseLost, match=r"written by web-1:1 \(until"):
        store.leases.acquire(session, "another")
