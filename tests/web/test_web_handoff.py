"""A handoff opened: its sections, its facts and their sources, and whether it can be undone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from perdure.context.handoff import Handoff, render
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user
from perdure.store.records import NewHandoff, Span
from perdure.store.store import SessionStore, open_store
from support.store import conversation as talk
from support.store import handoff as plain_handoff
from support.web_ui_api import Asking, SeededStore


def view_of(seeded: SeededStore, any_id: str, which: int = -1) -> dict[str, Any]:
    head = seeded.api.get(f"/conversations/{any_id}")
    answer: dict[str, Any] = seeded.api.get(f"/conversations/{any_id}/handoffs/{head['handoffs'][which]}")
    return answer


@pytest.mark.spec("E11", "E12", "I5")
def test_every_fact_stands_where_it_is_marked_and_in_every_source_it_names(seeded: SeededStore) -> None:
    for which in range(len(seeded.store.log.handoffs(seeded.story.long))):
        view = view_of(seeded, seeded.story.long, which)
        sections = {s["title"]: s["text"] for s in view["sections"]}
        texts = {t.seq: t.entry.message for t in seeded.store.timeline.page(seeded.story.long, limit=1_000).entries}
        assert len(view["facts"]) > 10
        for fact in view["facts"]:
            text = sections[fact["section"]]
            assert fact["marks"]
            assert {text[start:end] for start, end in fact["marks"]} == {fact["text"]}
            assert fact["sources"] == sorted(fact["sources"], reverse=True)
            for seq in fact["sources"]:
                said = texts[seq].text + "".join(c.arguments for c in texts[seq].tool_calls)
                assert fact["text"].lower() in said.lower()
                assert seq < view["seq"]
            if not fact["sources"]:
                assert not fact["is_supported"]


@pytest.mark.spec("E12")
def test_what_no_message_said_is_unsupported_in_every_handoff_that_repeats_it(seeded: SeededStore) -> None:
    views = [view_of(seeded, seeded.story.long, w) for w in range(len(seeded.store.log.handoffs(seeded.story.long)))]
    assert len(views) >= 2
    for view in views:
        invented = [f for f in view["facts"] if f["text"] == "9f8e7d6c5b"]
        assert invented
        assert not any(f["is_supported"] for f in invented)
        # The sections of a handoff in a small window are cut, and say so; every handoff that has the fact supports it.
        real = [f for f in view["facts"] if f["text"] == "54321"]
        assert {f["section"] for f in real} == {s["title"] for s in view["sections"] if "54321" in s["text"]}
        assert all(f["is_supported"] for f in real)
        assert real or any("left out]" in s["text"] for s in view["sections"])
    assert any(f["text"] == "54321" for f in views[0]["facts"])


@pytest.mark.spec("E11")
def test_a_handoff_says_what_it_stands_for_who_wrote_it_and_what_it_came_to(seeded: SeededStore) -> None:
    stored = seeded.store.log.handoffs(seeded.story.long)
    view = view_of(seeded, seeded.story.long)
    handoff = stored[view["seq"]]
    assert [(c["lo"], c["hi"]) for c in view["covers"]] == [(s.lo, s.hi) for s in handoff.covers]
    assert view["covers"][0]["address"] == handoff.covers[0].address
    assert (view["model"], view["previous"], view["cost_usd"]) == (handoff.model, handoff.previous, handoff.cost_usd)
    assert not view["is_digest"]
    assert view["before_tokens"] > view["after_tokens"] > 0
    assert view["reason"] in ("threshold", "background", "overflow")  # by the size of its results
    assert {s["title"] for s in view["sections"]} >= {"Active Task", "Goal", "Critical Context"}
    opened = seeded.api.get(f"/conversations/{seeded.story.long}/open", address=f"h:{view['seq']}")
    assert f"[m:{handoff.covers[0].lo} " in opened["text"]


def test_only_the_newest_handoff_that_stands_can_be_undone(seeded: SeededStore) -> None:
    stored = sorted(seeded.store.log.handoffs(seeded.story.long))
    assert [view_of(seeded, seeded.story.long, w)["can_undo"] for w in range(len(stored))] == [
        seq == stored[-1] for seq in stored
    ]
    view = view_of(seeded, seeded.story.undone)
    assert (view["can_undo"], view["standing"]) == (False, "undone")
    assert view["focus"] == "the lease"
    views = [view_of(seeded, seeded.story.long, w) for w in range(len(stored))]
    assert [v["standing"] for v in views] == [*["replaced"] * (len(stored) - 1), "current"]


def test_a_handoff_has_one_number_of_messages_in_its_text_and_on_its_page(seeded: SeededStore) -> None:
    for which, seq in enumerate(sorted(seeded.store.log.handoffs(seeded.story.long))):
        text = seeded.store.log.read(seeded.story.long, Span(seq, seq))[0].message.text
        written = re.search(r"^Source: ([\d,]+) messages", text, re.MULTILINE)
        assert written
        assert view_of(seeded, seeded.story.long, which)["message_count"] == int(written[1].replace(",", ""))


def _compacted(store: SessionStore, messages: list[Message], sections: dict[str, str]) -> tuple[str, int]:
    session = store.create(user_key="ann")
    store.append(session.id, messages)
    body = Message("user", render(Handoff(sections, model="m")), kind="handoff")
    store.compact(session.id, (NewHandoff(body, covers=(Span(1, len(messages)),)),))
    return session.conversation_id, len(messages) + 1


@pytest.mark.spec("E12")
def test_facts_are_found_through_escapes_cases_and_longer_names(tmp_path: Path) -> None:
    call = ToolCall("c1", "read_file", '{"path": "/home/ann/project/src/deep/lease_store.py"}')
    messages = [
        user("first line\nsrc/gate.py\tis wrong"),
        assistant(None, (call,)),
        tool_result("c1", 'see "quoted/path.txt", TICKET-4821 and C:\\Users\\ann\\notes.txt'),
        user("看看端口54321和文件 config/端口.yaml。"),
    ]
    sections = {
        "Goal": "🚀 src/gate.py, src/deep/lease_store.py and quoted/path.txt",
        "Critical Context": "ticket-4821; 54321；config/端口.yaml; C:\\Users\\ann\\notes.txt",
        "Remaining Work": "nowhere/else.py; someOwnName",
    }
    with open_store(tmp_path / "p.db") as store:
        any_id, seq = _compacted(store, messages, sections)
        view = Asking(store).get(f"/conversations/{any_id}/handoffs/{seq}")
    found = {f["text"]: (f["sources"], f["is_supported"]) for f in view["facts"]}
    assert found["src/gate.py"] == ([1], True)
    assert found["src/deep/lease_store.py"] == ([2], True)
    assert found["quoted/path.txt"] == ([3], True)
    assert found["54321"] == ([4], True)
    assert found["ticket-4821"] == ([3], True)
    assert found["C:\\Users\\ann\\notes.txt"] == ([3], True)
    assert found["nowhere/else.py"] == ([], False)
    assert "someOwnName" not in found


def test_a_handoff_of_another_shape_is_one_section(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = talk(store)
        store.compact(session, (plain_handoff("in an engine's own words"),))
        seq = max(store.log.handoffs(session))
        view = Asking(store).get(f"/conversations/{session}/handoffs/{seq}", user=None)
    assert [s["title"] for s in view["sections"]] == ["Handoff"]
    assert "in an engine's own words" in view["sections"][0]["text"]
    assert (view["before_tokens"], view["reason"], view["can_undo"]) == (None, "", True)


def test_what_is_no_handoff_is_not_found(seeded: SeededStore) -> None:
    assert seeded.api.ask(f"/conversations/{seeded.story.long}/handoffs/1")[0] == 404
    assert seeded.api.ask(f"/conversations/{seeded.story.branch}/handoffs/{2**53}")[0] == 404
    assert seeded.api.ask(f"/conversations/{seeded.story.long}/handoffs/-1")[0] == 422


@pytest.mark.spec("E12")
def test_a_quoted_request_leads_to_where_it_was_asked(tmp_path: Path) -> None:
    messages = [
        user("Please rename the helper\nin src/gate.py   and keep the old name as an alias"),
        assistant("You said “rename the helper in” something."),
        user("短い質問ですが、このファイルを直してください"),
        user("first half of a very long request " + "x " * 900 + "and its other half, said at the end"),
    ]
    sections = {
        "Active Task": (
            "The user's unfinished requests, word for word, newest last:\n"
            "> Please rename the helper\n> in src/gate.py and keep the old name as an alias\n\n"
            "> first half of a very long request\n> [… 1,800 characters left out …]\n> and its other half, said at the"
        ),
        "Goal": 'User asked: "rename the helper in" and “never said by anybody at all”; 「このファイルを直して」',
        "Blocked": 'They insisted on "a pony for everyone" [unverified].',
    }
    with open_store(tmp_path / "p.db") as store:
        any_id, seq = _compacted(store, messages, sections)
        view = Asking(store).get(f"/conversations/{any_id}/handoffs/{seq}")
    found = {f["text"]: (f["section"], f["sources"], f["is_supported"]) for f in view["facts"]}
    assert found["Please rename the helper"] == ("Active Task", [1], True)
    assert found["first half of a very long request"] == ("Active Task", [4], True)
    assert found["rename the helper in"] == ("Goal", [1], True)
    assert found["このファイルを直して"] == ("Goal", [3], True)
    assert found["a pony for everyone"] == ("Blocked", [], False)
    assert "never said by anybody at all" not in found
    assert found["src/gate.py"] == ("Active Task", [1], True)


def test_the_record_stands_apart_from_the_sections(seeded: SeededStore) -> None:
    head = seeded.api.get(f"/conversations/{seeded.story.long}")
    view = seeded.api.get(f"/conversations/{seeded.story.long}/handoffs/{head['handoffs'][-1]}")
    assert "Record" not in {section["title"] for section in view["sections"]}
    assert re.search(r"(?m)^USER \[\d+\]: ", view["record"])
