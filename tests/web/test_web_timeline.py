"""A conversation as one story: whole, in order, in pages, with everything that happened at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.core.messages import Message, ToolCall, assistant, tool_result, user
from perdure.store.records import StoredEvent
from perdure.store.store import open_store
from support.store import FakeClock
from support.web_ui_api import Asking, SeededStore
from support.web_ui_story import EVIL, PIXEL


def story_of(api: Asking, any_id: str, limit: int = 500) -> dict[str, Any]:
    """All of it, read page by page from the newest on."""
    page = api.get(f"/conversations/{any_id}/timeline", limit=limit)
    messages, events = page["messages"], page["events"]
    while page["has_before"]:
        page = api.get(f"/conversations/{any_id}/timeline", before=page["first_seq"], limit=limit)
        messages, events = page["messages"] + messages, page["events"] + events
    return {"messages": messages, "events": events}


@pytest.mark.spec("I4", "I5")
@pytest.mark.parametrize("limit", [3, 17, 500])
def test_pages_make_one_story_across_the_chain_of_sessions(seeded: SeededStore, limit: int) -> None:
    story = story_of(seeded.api, seeded.story.long, limit)
    entries = seeded.store.timeline.page(seeded.story.long, limit=1_000).entries
    assert [m["seq"] for m in story["messages"]] == [t.seq for t in entries]
    for stored, row in zip(entries, story["messages"], strict=True):
        # Of an output kept apart the page shows both ends, without the directions meant for the model.
        is_apart = row["output_id"] is not None
        assert (
            row["text"] in stored.entry.message.text if is_apart else stored.entry.message.text.startswith(row["text"])
        )
    assert len({m["session_id"] for m in story["messages"]}) >= 3
    whole = seeded.api.get(f"/conversations/{seeded.story.long}/timeline", limit=500)["events"]
    assert story["events"] == whole


def test_a_page_after_and_a_page_around_a_message(seeded: SeededStore) -> None:
    one = f"/conversations/{seeded.story.long}/timeline"
    last = seeded.store.conversations.get(seeded.story.long).last_seq
    after = seeded.api.get(one, after=10, limit=5)
    assert [m["seq"] for m in after["messages"]] == [11, 12, 13, 14, 15]
    assert (after["has_before"], after["has_after"]) == (True, True)
    for around in (1, 2, last // 2, last - 1, last, last + 1_000):
        seqs = [m["seq"] for m in seeded.api.get(one, around=around, limit=10)["messages"]]
        # A page may end a little later: with the results of its last call.
        assert 10 <= len(seqs) <= 12
        assert min(around, last) in seqs
    beyond = seeded.api.get(one, after=last)
    assert (beyond["messages"], beyond["has_before"], beyond["has_after"]) == ([], True, False)
    assert seeded.api.get(one, before=1)["has_after"]


def test_any_session_of_the_chain_names_the_conversation(seeded: SeededStore) -> None:
    sessions = seeded.store.conversations.chain(seeded.story.long)
    assert len(sessions) >= 3
    answers = [seeded.api.get(f"/conversations/{s.id}/timeline", limit=2) for s in sessions]
    assert all(a == answers[0] for a in answers)


def test_a_tool_call_tells_its_target_its_time_and_its_size(seeded: SeededStore) -> None:
    messages = story_of(seeded.api, seeded.story.long)["messages"]
    call = next(m for m in messages if m["tool_calls"] and m["tool_calls"][0]["name"] == "read_log")
    path = call["tool_calls"][0]["arguments"]["path"]
    assert call["tool_calls"][0]["target"] == path
    results = [m for m in messages if m["role"] == "tool"]
    answered = next(m for m in results if m["tool_call_id"] == call["tool_calls"][0]["id"])
    assert answered["tool_name"] == "read_log"
    assert answered["text"].startswith(f"{path}:0 worker")
    assert all(m["seconds"] is not None and 0 <= m["seconds"] < 60 for m in results)
    assert all(m["tokens"] > 0 for m in messages)


@pytest.mark.spec("H2", "I5")
def test_a_spilled_output_opens_and_pages_to_its_end(seeded: SeededStore) -> None:
    story = story_of(seeded.api, seeded.story.long)
    spilled = next(m for m in story["messages"] if m["output_id"] is not None)
    assert spilled["output_chars"] > 40_000 > spilled["chars"]
    address, read, offset = f"output:{spilled['output_id']}", "", 0
    while offset is not None:
        page = seeded.api.get(f"/conversations/{seeded.story.long}/open", address=address, offset=offset, limit=30_000)
        assert page["total_chars"] == spilled["output_chars"]
        read, offset = read + page["text"], page["next_offset"]
    assert len(read) == spilled["output_chars"]
    assert f"invoice 1217 {EVIL}" in read
    event = next(e for e in story["events"] if e["kind"] == "spill" and e["payload"]["address"] == address)
    assert event["after_seq"] == spilled["seq"]


def test_thinking_and_images_are_there(seeded: SeededStore) -> None:
    messages = story_of(seeded.api, seeded.story.long)["messages"]
    assert any(EVIL in m["reasoning"] for m in messages)
    assert messages[0]["images"] == [{"data_url": PIXEL, "source": "an image of 1 KB"}]


@pytest.mark.spec("J2")
def test_every_kind_of_event_stands_where_it_happened(seeded: SeededStore) -> None:
    story = story_of(seeded.api, seeded.story.long)
    kinds = {e["kind"] for e in story["events"]}
    assert kinds >= {"compaction", "spill", "model_switch", "recovery"}
    handoffs = {m["seq"] for m in story["messages"] if m["kind"] == "handoff"}
    assert {e["after_seq"] for e in story["events"] if e["kind"] == "compaction"} == handoffs
    seqs = [e["after_seq"] for e in story["events"]]
    assert seqs == sorted(seqs)
    undone = story_of(seeded.api, seeded.story.undone)["events"]
    assert [e["kind"] for e in undone if e["kind"] in ("compaction", "undo")] == ["compaction", "undo"]


@pytest.mark.spec("I5")
def test_a_branch_tells_what_it_shares_with_its_parent_and_nothing_later(seeded: SeededStore) -> None:
    parent, branch = (story_of(seeded.api, i) for i in (seeded.story.long, seeded.story.branch))
    fork = seeded.store.conversations.get(seeded.story.branch).fork_seq
    shared = [m for m in branch["messages"] if m["seq"] <= fork]
    assert shared == [m for m in parent["messages"] if m["seq"] <= fork]
    assert branch["messages"][fork]["text"].startswith("Let us try it another way")
    assert [e for e in branch["events"] if e["after_seq"] < fork] == [
        e for e in parent["events"] if e["after_seq"] < fork
    ]


def test_events_of_a_parent_after_the_fork_are_not_a_branch_s(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        session = store.create(user_key="ann")
        for n in range(4):
            store.append(session.id, user(f"m{n}"))
            clock.pass_ms(10)
            store.ledger.record_event(StoredEvent(session.id, "notice", {"text": f"n{n}"}))
            clock.pass_ms(10)
        branch = store.conversations.branch(session.id, at_seq=2)
        clock.pass_ms(10)
        store.append(branch.id, user("mine"))
        store.ledger.record_event(StoredEvent(branch.id, "notice", {"text": "mine"}))
        events = story_of(Asking(store), branch.conversation_id)["events"]
    assert [(e["payload"]["text"], e["after_seq"]) for e in events] == [("n0", 1), ("n1", 2), ("mine", 3)]


def test_long_text_is_cut_and_opens_whole(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        call = ToolCall("c1", "write_file", '{"path": "a.txt", "content": "%s"}' % ("x" * 5_000))
        store.append(session.id, [user("y" * 20_000), assistant(None, (call,)), tool_result("c1", "z" * 9_000)])
        api = Asking(store)
        said, wrote, result = api.get(f"/conversations/{session.id}/timeline")["messages"]
        opened = api.get(f"/conversations/{session.id}/open", address="m:2", limit=20_000)
    assert (len(said["text"]), said["is_cut"], said["chars"]) == (8_000, True, 20_000)
    assert (len(result["text"]), result["is_cut"], result["tool_name"]) == (2_000, True, "write_file")
    assert (wrote["tool_calls"][0]["is_cut"], wrote["tool_calls"][0]["target"]) == (True, "a.txt")
    assert len(wrote["tool_calls"][0]["arguments"]["content"]) == 2_001
    assert "x" * 5_000 in opened["text"]


def _odd_messages() -> list[Message]:
    halves = ToolCall("c1", "run", '{"command": "\\ud800 half", "n": [[[[[[[[[[1]]]]]]]]]]}')
    broken = ToolCall("c2", "run", '{"command": ')
    return [
        Message.from_dict({"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://elsewhere.example/x.png"}},
            {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            {"type": "input_audio", "input_audio": {"data": "AAAA"}},
        ]}),
        assistant("", (halves, broken)),
        tool_result("c1", "<persisted-output>\nThe output is many characters"),
        tool_result("nobody", ""),
    ]  # fmt: skip


def test_odd_messages_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        store.append(session.id, _odd_messages())
        store.ledger.record_event(StoredEvent(session.id, "recovery", {"kind": "auth", "message": "half \ud800"}))
        api = Asking(store)
        images, calls, *results = api.get(f"/conversations/{session.id}/timeline")["messages"]
        chart = api.get(f"/conversations/{session.id}/context")
    assert [i["data_url"] is not None for i in images["images"]] == [False, False, True]
    assert images["images"][0]["source"] == "https://elsewhere.example/x.png"
    assert [c["target"] for c in calls["tool_calls"]] == ["\ufffd half", ""]
    assert calls["tool_calls"][1]["arguments"] == '{"command": '
    assert [r["output_id"] for r in results] == [None, None]
    assert [r["tool_name"] for r in results] == ["run", None]
    assert chart["marks"][0]["text"].startswith("recovered from refused key")


def test_a_long_answer_is_whole_so_that_its_markdown_is(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        store.append(session.id, [user("Tell me all."), assistant("word " * 4_000)])
        answer = Asking(store).get(f"/conversations/{session.id}/timeline")["messages"][1]
        assert (len(answer["text"]), answer["is_cut"]) == (20_000, False)
