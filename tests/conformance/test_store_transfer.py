"""Export and import, on every database."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from perdure.core.errors import StoreError
from perdure.core.messages import Message, ToolCall, ToolState, assistant, tool_result, user
from perdure.store import CallRecord, SessionStore, StoredEvent
from support.store import backend_of, compacted, conversation, exchange


def rich(store: SessionStore) -> str:
    """A conversation with everything in it."""
    session = conversation(store)
    compacted(store, session)
    store.append(session, exchange(7))
    compacted(store, session, head=1)
    store.append(session, user("unfinished business"))
    store.ledger.record_call(CallRecord(session, cost_usd=0.25))
    store.ledger.record_event(StoredEvent(session, "compaction", {"before": 3}))
    sink = store.outputs.begin(session, "call_1")
    sink.write("kept output, wanderlust")
    sink.close()
    return session


@pytest.mark.spec("I9")
def test_an_export_imports_into_an_empty_store_and_resumes(store: SessionStore, tmp_path: Path, request) -> None:
    session = rich(store)
    lines = list(store.transfer.export_jsonl(session))
    other = backend_of(request.node.callspec.params["backend"], tmp_path / "other")
    try:
        fresh = other.open()
        fresh.transfer.import_jsonl(lines)
        assert list(fresh.transfer.export_jsonl(session)) == lines
        tip = fresh.get_compression_tip(session)
        assert fresh.history(tip).messages == store.history(tip).messages
        assert fresh.history(tip).session == store.history(tip).session
        assert fresh.log.handoffs(session) == store.log.handoffs(session)
        assert fresh.ledger.totals(session) == store.ledger.totals(session)
        assert [h.address for h in fresh.search("wanderlust")] == [h.address for h in store.search("wanderlust")]
        fresh.append(tip, user("resumed"))
        fresh.undo(session)
        assert fresh.history(fresh.get_compression_tip(session)).messages[-1].text == "resumed"
    finally:
        other.close()


@pytest.mark.spec("I9")
def test_importing_again_adds_nothing_and_a_copy_gets_new_ids(store: SessionStore) -> None:
    session = rich(store)
    lines = list(store.transfer.export_jsonl(session))
    before = store.conversations.get(session)
    assert store.transfer.import_jsonl(lines).id == before.id
    assert store.conversations.get(session) == before
    copy = store.transfer.import_copy(lines)
    assert copy.id != before.id
    assert store.history(copy.id).messages == store.history(before.id).messages
    store.append(copy.id, user("only in the copy"))
    assert store.conversations.get(session) == before
    store.append(session, user("the original went on"))
    store.transfer.import_jsonl(lines)
    assert store.history(before.id).messages[-1].text == "the original went on"


STATES: tuple[ToolState, ...] = ("completed", "failed", "refused", "interrupted")


def with_states(store: SessionStore) -> str:
    """A conversation with a call for each way to end, and one whose end nobody recorded."""
    session = store.create(user_key="ann").id
    asked = assistant("", tuple(ToolCall(f"c{n}", "read_file") for n in range(5)))
    results = [tool_result(f"c{n}", "text", "read_file", state=s) for n, s in enumerate((*STATES, None))]
    store.append(session, [user("go"), asked, *results])
    return session


def states_of(messages: Iterable[Message]) -> list[ToolState | None]:
    return [m.tool_state for m in messages if m.role == "tool"]


def test_how_a_call_ended_is_stored_exported_copied_and_branched(store: SessionStore) -> None:
    session = with_states(store)
    lines = list(store.transfer.export_jsonl(session))
    copy = store.transfer.import_copy(lines)
    branch = store.conversations.branch(session)
    store.append(session, user("the parent goes on"))
    for any_id in (session, copy.id, branch.id):
        assert states_of(store.history(any_id).messages) == [*STATES, None]
    store.delete(session)
    assert states_of(store.history(branch.id).messages) == [*STATES, None], "with rows of its own now"
    assert [t.entry.message.tool_state for t in store.timeline.page(copy.id).entries][2:] == [*STATES, None]
    assert store.verifier.conversation(copy.id) == []


def test_no_client_can_claim_how_a_call_ended(store: SessionStore) -> None:
    """A history of dicts is replayed by its bodies: the hash chain knows nothing of states, and no key becomes one."""
    session = with_states(store)
    replayed = [m.to_dict() for m in store.history(session).messages]
    assert not any("state" in key for m in replayed for key in m)
    added = store.log.ingest(session, [*replayed, {"role": "user", "content": "and now?"}])
    assert added.added == 1
    assert states_of(e.message for e in added.entries) == [*STATES, None]
    forged = {"role": "tool", "tool_call_id": "c9", "content": "x", "tool_state": "refused", "kind": "tool"}
    store.append(session, [assistant("", (ToolCall("c9", "read_file"),)), forged])
    assert store.history(session).messages[-1].tool_state is None
    lines = [
        line.replace('"tool_state":"refused"', '"tool_state":"approved"')
        for line in store.transfer.export_jsonl(session)
    ]
    assert states_of(store.history(store.transfer.import_copy(lines).id).messages)[2] is None


def test_a_different_log_under_the_same_id_is_never_overwritten(store: SessionStore) -> None:
    session = conversation(store)
    lines = list(store.transfer.export_jsonl(session))
    changed = [line.replace("question 1", "question one") for line in lines]
    record = next(json.loads(line) for line in changed if "question one" in line)
    record["message"]["key"] = "00" * 16
    changed = [json.dumps(record) if "question one" in line else line for line in changed]
    with pytest.raises(StoreError, match="differs"):
        store.transfer.import_jsonl(changed)


@pytest.mark.spec("I9")
def test_a_branch_exports_shared_messages(store: SessionStore, tmp_path: Path, request) -> None:
    session = rich(store)
    branch = store.conversations.branch(session)
    store.append(branch.id, user("on the branch"))
    lines = list(store.transfer.export_jsonl(branch.id))
    other = backend_of(request.node.callspec.params["backend"], tmp_path / "other")
    try:
        fresh = other.open()
        fresh.transfer.import_jsonl(lines)
        assert fresh.history(branch.id).messages == store.history(branch.id).messages
        fresh.undo(branch.id)
        store.undo(branch.id)
        assert (
            fresh.history(fresh.get_compression_tip(branch.id)).messages
            == store.history(store.get_compression_tip(branch.id)).messages
        )
    finally:
        other.close()


@pytest.mark.spec("I9")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: [],
        lambda lines: lines[:-1],
        lambda lines: [*lines[:4], *lines[5:]],
        lambda lines: ["{not json", *lines[1:]],
        lambda lines: ['{"role": "user"}', *lines[1:]],
        lambda lines: [lines[0].replace('"version":1', '"version":99'), *lines[1:]],
        lambda lines: [*lines[:3], '{"message": {"seq": "x"}}', *lines[4:]],
        lambda lines: ["[1,2]"],
    ],
    ids=["empty", "cut", "a line missing", "not json", "foreign", "newer", "bad message", "a list"],
)
def test_an_invalid_export_imports_nothing(store: SessionStore, tmp_path: Path, request, spoil) -> None:
    lines = list(store.transfer.export_jsonl(rich(store)))
    other = backend_of(request.node.callspec.params["backend"], tmp_path / "other")
    try:
        fresh = other.open()
        with pytest.raises(StoreError):
            fresh.transfer.import_jsonl(spoil(lines))
        assert fresh.conversations.list().conversations == ()
    finally:
        other.close()


@pytest.mark.spec("I9")
@pytest.mark.parametrize(
    "first",
    [
        {"role": "system", "content": "Be kind.", "name": "policy", "version": 3},
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        },
    ],
)
def test_all_of_an_imported_system_message_is_exported(store: SessionStore, first: dict[str, object]) -> None:
    messages = [first, {"role": "user", "content": "hi", "name": "bob"}]
    session = store.transfer.import_messages(messages)
    assert session.system_prompt == "Be kind."
    assert store.transfer.export_messages(session.id) == messages
    store.scrub(session.id, lambda text: text.replace("kind", "[REDACTED]"))
    exported = store.transfer.export_messages(session.id)
    assert exported[0].keys() == first.keys()
    assert "Be [REDACTED]." in str(exported[0])
    store.conversations.set_system_prompt(session.id, "Another.")
    assert store.transfer.export_messages(session.id)[0] == {"role": "system", "content": "Another."}


@pytest.mark.spec("I9")
def test_openai_style_lists_round_trip(store: SessionStore) -> None:
    messages = [{"role": "system", "content": "Be kind."}, *(m.to_dict() for n in range(3) for m in exchange(n))]
    session = store.transfer.import_messages(messages, title="Imported")
    assert store.transfer.export_messages(session.id) == messages
    compacted(store, session.id)
    assert store.transfer.export_messages(session.id) == messages, "a compaction leaves nothing out"
    assert store.history(session.id).session.system_prompt == "Be kind."
