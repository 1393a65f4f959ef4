"""Bytes that changed behind the store's back, on every database: named by their message, and the rest stays open."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from perdure.core.errors import CorruptStore
from perdure.core.messages import user
from perdure.core.visibility import EVERYONE
from perdure.store import SessionStore
from support.store import Backend, compacted, conversation

Change = Callable[[bytes], bytes]


def damage(backend: Backend, any_id: str, seq: int, change: Change, *, column: str = "body") -> None:
    """Changes a stored message past everything that keeps it from being changed."""
    if backend.name == "sqlite":
        ((trigger,),) = backend.execute("SELECT sql FROM sqlite_master WHERE name = 'message_never_changes'")
        backend.execute("DROP TRIGGER message_never_changes")
    else:
        backend.execute("ALTER TABLE message DISABLE TRIGGER USER")
    try:
        key = (any_id, seq)
        ((stored,),) = backend.execute(f"SELECT {column} FROM message WHERE conversation = ? AND seq = ?", key)
        backend.execute(
            f"UPDATE message SET {column} = ? WHERE conversation = ? AND seq = ?", (change(bytes(stored)), *key)
        )
    finally:
        backend.execute(trigger if backend.name == "sqlite" else "ALTER TABLE message ENABLE TRIGGER USER")


def cut_in_half(body: bytes) -> bytes:
    return body[: len(body) // 2]


CHANGES: dict[str, tuple[Change, str]] = {
    "a digit": (lambda body: body.replace(b"1", b"9"), "changed"),
    "a byte that is no text": (lambda body: body.replace(b"question", b"\xffuestion"), "unreadable"),
    "a brace": (lambda body: b"[" + body[1:], "unreadable"),
    "another shape": (lambda body: json.dumps({"role": "nobody"}).encode(), "unreadable"),
    "half of it": (cut_in_half, "unreadable"),
}


@pytest.mark.spec("I8")
@pytest.mark.parametrize("what", CHANGES)
def test_a_damaged_message_is_reported_and_the_others_are_readable(backend: Backend, what: str) -> None:
    change, problem = CHANGES[what]
    store = backend.open()
    session, other = conversation(store), conversation(store)
    owner = store.conversations.get(session).id
    before = [e.message.text for e in store.log.originals(session)]
    damage(backend, owner, 5, change)  # "question 1"

    history = store.history(session)
    assert [(d.conversation_id, d.seq, d.problem) for d in history.damage] == [(owner, 5, problem)]
    for entries in (
        history.entries,
        store.log.originals(session),
        [t.entry for t in store.timeline.page(session).entries],
    ):
        texts = [e.message.text for e in entries]
        assert (texts[:4], texts[5:]) == (before[:4], before[5:])
        assert ("m:5 is damaged" in texts[4]) is (problem == "unreadable")
        assert [e.message.role for e in entries] == ["user", "assistant", "tool", "assistant"] * 5
    assert [str(d) for d in store.verifier.conversation(session)] == [str(history.damage[0])]
    assert [d.seq for batch in store.verifier.everything() for d in batch.damage] == [5]
    assert store.history(other).damage == ()


def test_a_damaged_conversation_can_be_continued_searched_exported_compacted_and_deleted(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    owner = store.conversations.get(session).id
    for seq in (5, 6, 7):  # what was asked, the call and its result
        damage(backend, owner, seq, cut_in_half)
    store.append(session, user("and on it goes"))
    assert store.search("question 2", visibility=EVERYONE)
    assert store.search("question 1", visibility=EVERYONE) is not None
    assert len(store.transfer.export_messages(session)) == 22  # with the system prompt
    lines = list(store.transfer.export_jsonl(session))
    copy = store.transfer.import_copy(lines)
    assert len(store.log.originals(copy.id)) == 21
    assert store.open("m:1-21", conversation_id=session).text.count("is damaged") == 3
    compacted(store, session)
    assert store.scrub(session, lambda text: text.replace("question", "[REDACTED]")).messages == 4
    assert [d.seq for d in store.verifier.conversation(session)] == [5, 6, 7]
    store.reindexer(version=99).run(lambda line: None)
    assert store.delete(session).messages == 22


def test_a_damaged_key_is_reported_once(backend: Backend) -> None:
    store = backend.open()
    owner = store.conversations.get(conversation(store)).id
    damage(backend, owner, 5, lambda key: bytes([key[0] ^ 1]) + key[1:], column="key")
    assert [(d.seq, d.problem) for d in store.verifier.conversation(owner)] == [(5, "changed")]


def test_a_changed_handoff_is_detected(backend: Backend) -> None:
    store = backend.open()
    session = compacted(store, conversation(store))
    (seq,) = store.log.handoffs(session)
    damage(backend, store.conversations.get(session).id, seq, lambda body: body.replace(b"far", b"fan"))
    assert [(d.seq, d.problem) for d in store.history(session).damage] == [(seq, "changed")]


def redact(text: str) -> str:
    return text.replace("question", "*****").replace("what happened", "*****")


def test_scrubbed_messages_are_not_damage_but_are_verified(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    branch = store.conversations.branch(session, at_seq=6)
    child = compacted(store, session)
    store.scrub(session, redact)
    copy = store.transfer.import_copy(list(store.transfer.export_jsonl(session)))
    for any_id in (session, child, branch.id, copy.id):
        assert store.verifier.conversation(any_id) == []
        assert store.history(any_id).damage == ()
    store.delete(session)  # the branch is given a copy of what it shared
    assert store.verifier.conversation(branch.id) == []
    owner = store.conversations.get(branch.id).id
    damage(backend, owner, 5, lambda body: body.replace(b"***", b"##1"))
    assert [d.seq for d in store.history(branch.id).damage] == [5]


def test_messages_scrubbed_by_an_older_version_are_recognized_by_their_marker(backend: Backend) -> None:
    store = backend.open()
    session = conversation(store)
    owner = store.conversations.get(session).id
    store.scrub(session, lambda text: text.replace("question", "[REDACTED]"))
    backend.execute("DELETE FROM state WHERE scope = ?", (f"scrubbed:{owner}",))
    assert store.history(session).damage == ()


def test_a_missing_message_is_reported(backend: Backend) -> None:
    store = backend.open()
    owner = store.conversations.get(conversation(store)).id
    trigger = "message_never_goes" if backend.name == "sqlite" else "message_stays"
    if backend.name == "sqlite":
        backend.execute(f"DROP TRIGGER {trigger}")
    else:
        backend.execute(f"ALTER TABLE message DISABLE TRIGGER {trigger}")
    backend.execute("DELETE FROM message WHERE conversation = ? AND seq = 5", (owner,))
    if backend.name == "postgresql":
        backend.execute(f"ALTER TABLE message ENABLE TRIGGER {trigger}")
    damage = {(d.seq, d.problem) for d in store.verifier.conversation(owner)}
    assert (5, "missing") in damage
    assert len(store.log.originals(owner)) == 19


def test_a_damaged_prompt_event_or_value_does_not_block_the_conversation(backend: Backend) -> None:
    store = backend.open()
    session = store.create(system_prompt="Be brief. " * 300)
    store.append(session.id, user("hello"))
    backend.execute("UPDATE session SET system_prompt = ?", (b"no zlib at all",))
    assert "is damaged" in store.history(session.id).session.system_prompt
    store.state("limits").set("a", 1)
    backend.execute("UPDATE state SET value = '{' WHERE scope = 'limits'")
    with pytest.raises(CorruptStore, match="limits a is damaged"):
        store.state("limits").get("a")


def test_no_operation_causes_damage(store: SessionStore) -> None:
    session = conversation(store, exchanges=150)
    branch = store.conversations.branch(session, at_seq=300)
    store.append(branch.id, [user("one"), user("one")])
    for _ in range(2):
        compacted(store, session)
        store.append(session, [user("more"), user("and more")])
    store.undo(session)
    store.append(session, user("again"))
    assert [d for batch in store.verifier.everything() for d in batch.damage] == []
    assert sum(batch.messages for batch in store.verifier.everything()) == 600 + 2 + 2 + 4 + 1
