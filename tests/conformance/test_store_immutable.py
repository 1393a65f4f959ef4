"""Rows are immutable, on every database, and the database itself sees to it."""

from __future__ import annotations

import pytest

from perdure.core.errors import NotFound
from perdure.core.messages import user
from perdure.redaction import redact
from perdure.store import CallRecord, SessionStore, StoredEvent
from support.store import Backend, compacted, conversation, exchange

SECRET = "sk-ant-" + "a1B2" * 8


@pytest.mark.spec("I1")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE message SET body = 'x'",
        "UPDATE message SET seq = seq + 100",
        "DELETE FROM message",
        "DELETE FROM message WHERE seq = 1",
        "UPDATE span SET hi = hi + 1",
        "DELETE FROM span",
        "UPDATE handoff SET covers = '[]'",
        "DELETE FROM handoff",
        "UPDATE call SET cost_usd = 0",
        "DELETE FROM call",
        "DELETE FROM event",
        "INSERT INTO permit (conversation, deed) SELECT id, 'scrub' FROM conversation",
    ],
)
def test_raw_sql_cannot_change_stored_messages(backend: Backend, sql: str) -> None:
    store = backend.open()
    session = conversation(store)
    compacted(store, session)
    store.ledger.record_call(CallRecord(session))
    store.ledger.record_event(StoredEvent(session, "notice"))
    before = [backend.execute(f"SELECT * FROM {t}") for t in ("message", "span", "handoff", "call", "event", "permit")]
    with pytest.raises(Exception, match=r"never|constraint|violates|FOREIGN KEY"):
        backend.execute(sql)
    after = [backend.execute(f"SELECT * FROM {t}") for t in ("message", "span", "handoff", "call", "event", "permit")]
    assert after == before


def test_deleting_removes_everything_and_leaves_a_tombstone(store: SessionStore, backend: Backend) -> None:
    session = conversation(store)
    child = compacted(store, session)
    delegate = store.conversations.delegate(session)
    store.append(delegate.id, user("delegated secret word xylophone"))
    store.ledger.record_call(CallRecord(session))
    store.conversation_state(session).set("x", 1)
    sink = store.outputs.begin(session, "call_1")
    sink.write("output with xylophone")
    output = sink.close()
    other = conversation(store)
    deleted = store.delete(child)
    assert len(deleted.conversation_ids) == 2
    assert deleted.outputs == 1
    for ident in (session, child, delegate.id, *deleted.conversation_ids):
        with pytest.raises(NotFound, match="was deleted on 2027-01-15"):
            store.conversations.get(ident)
    with pytest.raises(NotFound):
        store.outputs.read(output.id, conversation_id=other)
    assert store.search("xylophone") == []
    # How many deletions there were is all that is noted of one.
    kept = f"checksum:{store.conversations.get(other).id}"
    # The place up to which vectors are made holds nothing of it either.
    sql = "SELECT scope, value FROM state WHERE scope <> ? AND scope <> 'vectors'"
    assert backend.execute(sql, (kept,)) == [("changes", "1")]
    for table in ("message", "session", "call", "handoff", "output", "permit"):
        column = {"permit": "1"}.get(table, "conversation")
        rows = backend.execute(f"SELECT DISTINCT {column} FROM {table}")
        assert all(r[0] == store.conversations.get(other).id for r in rows), table
    hits = store.search("question 1")
    assert {hit.conversation_id for hit in hits} == {store.conversations.get(other).id}, "another one is untouched"


def test_a_branch_keeps_shared_messages_when_its_parent_is_deleted(store: SessionStore) -> None:
    session = conversation(store)
    compacted(store, session)
    branch = store.conversations.branch(session)
    store.append(branch.id, user("branch on"))
    twig = store.conversations.branch(branch.id, at_seq=10)
    texts = [m.text for m in store.history(branch.id).messages]
    store.delete(session)
    assert [m.text for m in store.history(branch.id).messages] == texts
    assert [e.seq for e in store.history(twig.id).entries] == list(range(1, 11))
    assert {h.conversation_id for h in store.search("question 1")} == {store.conversations.get(branch.id).id}
    store.undo(branch.id)
    assert [e.seq for e in store.history(store.get_compression_tip(branch.id)).entries] == [*range(1, 21), 22]
    assert [e.seq for e in store.history(store.conversations.branch(branch.id, at_seq=5).id).entries] == [1, 2, 3, 4, 5]
    again = [e.message for e in store.log.originals(branch.id)]
    assert store.log.ingest(branch.id, again).added == 0


@pytest.mark.spec("E9")
def test_scrubbing_redacts_bodies_prompts_titles_events_outputs_and_the_index(store: SessionStore) -> None:
    session = store.create(system_prompt=f"key {SECRET}", title=f"about {SECRET}")
    messages = [user(f"my key is {SECRET} ok"), *exchange(1)]
    store.append(session.id, messages)
    store.ledger.record_event(StoredEvent(session.id, "notice", {"text": [f"saw {SECRET}"]}))
    sink = store.outputs.begin(session.id, "call_1")
    sink.write(f"env: {SECRET}\nrest")
    output = sink.close()
    scrubbed = store.scrub(session.id, redact)
    assert (scrubbed.messages, scrubbed.outputs) == (1, 1)
    everything = (
        "\n".join(store.transfer.export_jsonl(session.id))
        + store.outputs.read(output.id, conversation_id=session.id).text
    )
    assert SECRET not in everything
    assert "[REDACTED]" in store.history(session.id).messages[0].text
    assert list(store.history(session.id).messages[1:]) == exchange(1)
    assert store.search("a1B2" * 8) == []
    assert not any(SECRET in f"{hit.title} {hit.snippet}" for hit in store.search(SECRET))
    assert [h.address for h in store.search("rest")] == [output.address]
    assert store.log.ingest(session.id, messages).added == 0, "keys stay, so the original replayed adds nothing"
    assert store.scrub(session.id, redact).messages == 0
