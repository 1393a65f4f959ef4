"""Inbox on every database: idempotent, ordered per queue, one owner, taken over after expiry."""

from __future__ import annotations

import contextlib
import threading

import pytest

from perdure.core.errors import LeaseLost, NotFound
from perdure.core.messages import user
from perdure.core.visibility import User
from perdure.store.inbox import (
    ConversationBusy,
    ConversationPosition,
    InboundMessage,
    InboxFull,
    QueuedMessage,
    conversation_queue_key,
)
from perdure.store.store import SessionStore
from support.store import Backend, FakeClock, conversation

TTL_MS = 10_000


def inbound(
    number: int, *, queue_key: str = "chat:a", key: str | None = None, user_key: str = "ann", text: str = "hello"
) -> InboundMessage:
    named = queue_key.removeprefix("conversation:") if queue_key.startswith("conversation:") else None
    return InboundMessage(
        f"t_{number}", queue_key, "http", User(user_key), "main", text, ("chat",), key, conversation_id=named
    )


def enqueue(store: SessionStore, what: InboundMessage, owner: str = "one") -> QueuedMessage:
    return store.inbox.enqueue(what, owner=owner, ttl_ms=TTL_MS).queued


def test_a_queued_message_survives_its_process_unchanged(backend: Backend, clock: FakeClock) -> None:
    content = {"role": "user", "content": [{"type": "text", "text": "héllo \ud800 \x00 “ok”"}]}
    sent = InboundMessage("t_1", "chat:a", "http", User("ann"), "main", content, ("chat", "shell"), "k")
    enqueue(backend.open(clock), sent)
    stored = backend.open(clock).inbox.get("t_1")
    assert stored.inbound == sent
    assert stored.state == "waiting"


def test_a_repeated_idempotency_key_returns_the_same_message(store: SessionStore) -> None:
    first = store.inbox.enqueue(inbound(1, key="k"), owner="one", ttl_ms=TTL_MS)
    again = store.inbox.enqueue(inbound(2, key="k", text="other words"), owner="two", ttl_ms=TTL_MS)
    theirs = store.inbox.enqueue(inbound(3, key="k", user_key="bob"), owner="two", ttl_ms=TTL_MS)
    keyless = [store.inbox.enqueue(inbound(n), owner="one", ttl_ms=TTL_MS) for n in (4, 5)]
    assert (first.is_new, again.is_new, theirs.is_new) == (True, False, True)
    assert again.queued == first.queued
    assert [r.is_new for r in keyless] == [True, True]


def test_concurrent_requests_with_one_key_are_one_message(backend: Backend, clock: FakeClock) -> None:
    stores = [backend.open(clock) for _ in range(4)]
    start, got = threading.Barrier(len(stores)), []

    def send(number: int) -> None:
        start.wait()
        got.append(stores[number].inbox.enqueue(inbound(number, key="k"), owner=f"p{number}", ttl_ms=TTL_MS))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(r.is_new for r in got) == 1
    assert len({r.queued.id for r in got}) == 1


def test_a_queue_runs_oldest_first_across_owners(store: SessionStore) -> None:
    one, two = enqueue(store, inbound(1), "one"), enqueue(store, inbound(2), "two")
    enqueue(store, inbound(3, queue_key="chat:b"), "one")
    assert store.inbox.first("chat:a") == one
    assert store.inbox.finish(one, {"kind": "turn"}, conversation_id=None)
    assert store.inbox.first("chat:a") == two
    assert store.inbox.finish(two, {"kind": "turn"}, conversation_id=None)
    assert store.inbox.first("chat:a") is None


@pytest.mark.spec("I8")
def test_a_message_joins_the_queue_in_which_its_conversation_is_pending(store: SessionStore) -> None:
    here = conversation(store)
    running = enqueue(store, inbound(1))
    assert store.inbox.begin(running, conversation_id=here, seq=0)
    named = conversation_queue_key(here)
    result = store.inbox.enqueue(inbound(2, queue_key=named), owner="one", ttl_ms=TTL_MS, max_pending=1)
    joined = result.queued
    assert (joined.inbound.queue_key, joined.conversation_id, result.is_first) == ("chat:a", here, False)
    assert store.inbox.get("t_2") == joined
    with pytest.raises(InboxFull):
        store.inbox.enqueue(inbound(3, queue_key=named), owner="one", ttl_ms=TTL_MS, max_pending=1)
    assert store.inbox.stop_queue("chat:a")
    assert store.inbox.renew("one", ttl_ms=TTL_MS) == ["t_1"]
    assert store.inbox.finish(running, {}, conversation_id=here)
    assert store.inbox.first("chat:a") == store.inbox.get("t_2")
    assert enqueue(store, inbound(4, queue_key=named)).inbound.queue_key == "chat:a"
    for number in (2, 4):
        assert store.inbox.finish(store.inbox.get(f"t_{number}"), {}, conversation_id=here)
    assert enqueue(store, inbound(5, queue_key=named)).inbound.queue_key == named


def test_a_message_joins_the_queue_of_the_newest_pending_one(store: SessionStore) -> None:
    here = conversation(store)
    of_chat = enqueue(store, inbound(1))
    named = enqueue(store, inbound(2, queue_key=conversation_queue_key(here)))
    assert store.inbox.begin(of_chat, conversation_id=here, seq=0)
    assert (
        enqueue(store, inbound(3, queue_key=conversation_queue_key(here))).inbound.queue_key == named.inbound.queue_key
    )


def test_pending_messages_of_a_conversation_include_those_of_its_chats(store: SessionStore) -> None:
    here, there = conversation(store), conversation(store)
    running = enqueue(store, inbound(1))
    assert store.inbox.begin(running, conversation_id=here, seq=0)
    enqueue(store, inbound(2))  # behind it, in the same chat
    enqueue(store, inbound(3, queue_key=conversation_queue_key(here)))
    enqueue(store, inbound(4, queue_key=conversation_queue_key(there)))
    enqueue(store, inbound(5, queue_key="chat:b"))
    assert [(t.id, t.state) for t in store.inbox.pending(here)] == [
        ("t_1", "running"),
        ("t_2", "waiting"),
        ("t_3", "waiting"),
    ]
    assert store.inbox.finish(running, {"kind": "turn"}, conversation_id=here)
    assert [t.id for t in store.inbox.pending(here)] == ["t_3"]


def test_a_running_message_can_be_stopped(store: SessionStore) -> None:
    first, second = enqueue(store, inbound(1)), enqueue(store, inbound(2, queue_key="chat:b"))
    assert not store.inbox.stop_message(first.id)
    for queued in (first, second):
        assert store.inbox.begin(queued, conversation_id=conversation(store), seq=0)
    assert store.inbox.stop_message(first.id)
    assert store.inbox.renew("one", ttl_ms=TTL_MS) == [first.id]


def test_enqueue_reports_whether_the_queue_was_empty(store: SessionStore) -> None:
    first = store.inbox.enqueue(inbound(1), owner="one", ttl_ms=TTL_MS)
    second = store.inbox.enqueue(inbound(2), owner="one", ttl_ms=TTL_MS)
    elsewhere = store.inbox.enqueue(inbound(3, queue_key="chat:b"), owner="one", ttl_ms=TTL_MS)
    assert [r.is_first for r in (first, second, elsewhere)] == [True, False, True]


def test_a_full_queue_rejects_messages(store: SessionStore) -> None:
    for number in range(3):
        store.inbox.enqueue(inbound(number), owner="one", ttl_ms=TTL_MS, max_pending=2)
    with pytest.raises(InboxFull, match="2 messages are already pending"):
        store.inbox.enqueue(inbound(9), owner="one", ttl_ms=TTL_MS, max_pending=2)
    with pytest.raises(NotFound):
        store.inbox.get("t_9")


def test_a_message_bound_to_a_position_is_accepted_only_as_the_next_one(store: SessionStore) -> None:
    here = conversation(store)
    position = ConversationPosition(here, store.conversations.get(here).last_seq)
    queue_key = conversation_queue_key(here)

    def send(message: InboundMessage) -> QueuedMessage:
        return store.inbox.enqueue(message, owner="one", ttl_ms=TTL_MS, only_at=position).queued

    first = send(inbound(1, queue_key=queue_key, key="k"))
    assert send(inbound(2, queue_key=queue_key, key="k")) == first
    with pytest.raises(ConversationBusy):
        send(inbound(3, queue_key=queue_key))
    assert store.inbox.finish(first, {"kind": "turn"}, conversation_id=here)
    of_chat = enqueue(store, inbound(4))
    assert store.inbox.begin(of_chat, conversation_id=here, seq=position.seq)
    with pytest.raises(ConversationBusy):
        send(inbound(5, queue_key=queue_key))
    assert store.inbox.finish(of_chat, {"kind": "turn"}, conversation_id=here)
    second = send(inbound(6, queue_key=queue_key))
    assert store.inbox.finish(second, {"kind": "turn"}, conversation_id=here)
    store.append(here, [user("more")])
    with pytest.raises(ConversationBusy):
        send(inbound(7, queue_key=queue_key))


def test_only_one_of_several_processes_gets_a_position(backend: Backend, clock: FakeClock) -> None:
    stores = [backend.open(clock) for _ in range(4)]
    here = conversation(stores[0])
    position = ConversationPosition(here, stores[0].conversations.get(here).last_seq)
    start, accepted = threading.Barrier(len(stores)), []

    def send(number: int) -> None:
        message = inbound(number, queue_key=conversation_queue_key(here))
        start.wait()
        with contextlib.suppress(ConversationBusy):
            accepted.append(stores[number].inbox.enqueue(message, owner=f"p{number}", ttl_ms=TTL_MS, only_at=position))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.is_first for r in accepted] == [True]


def test_the_result_is_stored_and_the_content_cleared(store: SessionStore) -> None:
    queued = enqueue(store, inbound(1, key="k"))
    store.inbox.finish(queued, {"kind": "turn", "text": "answer"}, conversation_id="c_1")
    stored = store.inbox.get("t_1")
    assert (stored.state, stored.result, stored.conversation_id) == ("done", {"kind": "turn", "text": "answer"}, "c_1")
    assert stored.inbound.content == ""
    assert store.inbox.enqueue(inbound(2, key="k"), owner="two", ttl_ms=TTL_MS).queued.result == stored.result


def test_only_the_owner_can_begin_and_finish_a_message(backend: Backend, clock: FakeClock) -> None:
    store = backend.open(clock)
    mine = enqueue(store, inbound(1), "one")
    clock.pass_ms(TTL_MS + 1)
    theirs = store.inbox.claim(mine, owner="two", ttl_ms=TTL_MS)
    assert theirs is not None
    assert not store.inbox.begin(mine, conversation_id="c_1", seq=3)
    assert not store.inbox.finish(mine, {"kind": "turn"}, conversation_id="c_1")
    assert store.inbox.begin(theirs, conversation_id="c_1", seq=3)
    assert store.inbox.get("t_1").begin_seq == 3
    assert store.inbox.finish(theirs, {"kind": "turn"}, conversation_id="c_1")
    assert not store.inbox.finish(theirs, {"kind": "turn", "text": "twice"}, conversation_id="c_1")


def test_only_one_of_several_claims_succeeds(backend: Backend, clock: FakeClock) -> None:
    stores = [backend.open(clock) for _ in range(3)]
    orphan = enqueue(stores[0], inbound(1), "dead")
    clock.pass_ms(TTL_MS + 1)
    start, won = threading.Barrier(3), []

    def claim(number: int) -> None:
        start.wait()
        won.append(stores[number].inbox.claim(orphan, owner=f"p{number}", ttl_ms=TTL_MS))

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(w is not None for w in won) == 1


def test_orphans_are_messages_of_expired_or_dead_owners(backend: Backend, clock: FakeClock) -> None:
    store = backend.open(clock)
    enqueue(store, inbound(1, queue_key="chat:1"), "silent")
    enqueue(store, inbound(2, queue_key="chat:2"), "dead")
    enqueue(store, inbound(3, queue_key="chat:3"), "alive")
    done = enqueue(store, inbound(4, queue_key="chat:4"), "silent")
    store.inbox.finish(done, {}, conversation_id=None)
    clock.pass_ms(TTL_MS - 1)
    store.inbox.renew("dead", ttl_ms=TTL_MS)
    store.inbox.renew("alive", ttl_ms=TTL_MS)
    clock.pass_ms(2)
    assert [o.id for o in store.inbox.orphans()] == ["t_1"]
    assert [o.id for o in store.inbox.orphans(is_dead=lambda owner: owner == "dead")] == ["t_1", "t_2"]


def test_released_messages_can_be_claimed_at_once(store: SessionStore) -> None:
    enqueue(store, inbound(1), "one")
    enqueue(store, inbound(2), "two")
    assert store.inbox.release_all("one") == 1
    assert [o.id for o in store.inbox.orphans()] == ["t_1"]


def test_a_stop_request_reaches_the_owner_of_the_running_message(store: SessionStore) -> None:
    queued = enqueue(store, inbound(1), "one")
    assert not store.inbox.stop_queue("chat:a")  # nothing runs yet
    store.inbox.begin(queued, conversation_id="c_1", seq=0)
    assert not store.inbox.stop_queue("chat:b")
    assert not store.inbox.stop_chat("http", User("bob"), "main")
    assert store.inbox.renew("one", ttl_ms=TTL_MS) == []
    assert store.inbox.stop_queue("chat:a")
    assert store.inbox.stop_chat("http", User("ann"), "main")
    assert store.inbox.renew("two", ttl_ms=TTL_MS) == []
    assert store.inbox.renew("one", ttl_ms=TTL_MS) == ["t_1"]


def test_old_completed_messages_are_purged(backend: Backend, clock: FakeClock) -> None:
    store = backend.open(clock)
    done = enqueue(store, inbound(1))
    store.inbox.finish(done, {}, conversation_id=None)
    enqueue(store, inbound(2, queue_key="chat:b"))
    clock.pass_ms(1_000)
    assert store.inbox.purge(before_ms=clock.ms) == 1
    assert store.inbox.get("t_2").state == "waiting"


def test_messages_completed_by_other_processes_are_listed(store: SessionStore) -> None:
    for number, owner in ((1, "one"), (2, "two")):
        done = enqueue(store, inbound(number, queue_key=f"chat:{number}"), owner)
        store.inbox.finish(done, {"text": owner}, conversation_id=None)
    assert [t.result for t in store.inbox.completed_elsewhere("one", since_ms=0)] == [{"text": "two"}]


@pytest.mark.spec("I1")
def test_deleting_a_conversation_deletes_its_queued_messages(store: SessionStore) -> None:
    session = conversation(store)
    owner = store.conversations.get(session).id
    queued = enqueue(store, inbound(1))
    store.inbox.begin(queued, conversation_id=owner, seq=0)
    store.delete(session)
    with pytest.raises(NotFound):
        store.inbox.get("t_1")


def test_scrubbing_includes_pending_and_completed_messages(store: SessionStore) -> None:
    session = conversation(store)
    owner = store.conversations.get(session).id
    waiting, done = enqueue(store, inbound(1, text="the key is s3cret")), enqueue(store, inbound(2, queue_key="chat:b"))
    store.inbox.begin(waiting, conversation_id=owner, seq=0)
    store.inbox.finish(done, {"kind": "turn", "text": "s3cret, noted"}, conversation_id=owner)
    store.scrub(session, lambda text: text.replace("s3cret", "***"))
    assert store.inbox.get("t_1").inbound.content == "the key is ***"
    assert store.inbox.get("t_2").result == {"kind": "turn", "text": "***, noted"}


def test_a_damaged_message_is_named_and_does_not_hold_up_the_queue(store: SessionStore, backend: Backend) -> None:
    enqueue(store, inbound(1, text="hello"))
    done = enqueue(store, inbound(2, queue_key="chat:b"))
    store.inbox.finish(done, {"kind": "turn", "text": "hi"}, conversation_id=None)
    backend.execute("UPDATE inbox SET content = '{', scopes = 'no list' WHERE id = 't_1'")
    backend.execute("UPDATE inbox SET result = '[' WHERE id = 't_2'")
    damaged = store.inbox.get("t_1").inbound
    assert "is damaged" in str(damaged.content)
    assert damaged.scopes == ()
    assert store.inbox.get("t_2").result == {}
    problems = store.verifier.database().problems
    assert [problem.partition(":")[0] for problem in problems] == [
        "table inbox, row t_1",
        "table inbox, row t_1",
        "table inbox, row t_2",
    ]


def test_a_late_heartbeat_does_not_revive_a_released_lease(store: SessionStore) -> None:
    lease = store.leases.acquire(conversation(store), "one")
    store.leases.release(lease)
    with pytest.raises(LeaseLost, match="released"):
        store.leases.renew(lease)
    assert store.leases.holder_of(lease.conversation_id) is None
