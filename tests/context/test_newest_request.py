"""Which message is the newest request: what blank messages, late system notes and merged ones do to it."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.context.handoff import split_merged
from perdure.context.task_state.active_task import write_active_task
from perdure.context.task_state.reader import read_state
from perdure.core import rules
from perdure.core.messages import CONTINUES, HANDOFF_FIRST_LINE, SYSTEM_NOTE, Entry, Message, TextPart, user
from support.long_histories import working_session

NOTE = {"role": "system", "content": "a note in the middle"}
BLANKS: list[Any] = ["", "  \n", None, [], [{"type": "text", "text": ""}]]


def ours(text: str) -> bool:
    return True


def behind_the_handoff(report: perdure.CompactionReport) -> list[str]:
    out = [Message.from_dict(m) for m in report.messages]
    at = next(i for i, m in enumerate(out) if m.text.startswith(HANDOFF_FIRST_LINE))
    return [p.text for m in out[at:] for p in m.parts if isinstance(p, TextPart)]


@pytest.mark.spec("D4")
@pytest.mark.parametrize("blank", BLANKS)
def test_a_late_note_behind_a_blank_message_is_not_the_newest_request(blank: Any) -> None:
    raw = [
        {"role": "user", "content": "fix"},
        {"role": "assistant", "content": " 0\n" * 1_300},
        {"role": "user", "content": blank},
        NOTE,
    ]
    report = perdure.compress(raw, context_length=1_000)
    assert report.outcome == "digest"
    assert "fix" in behind_the_handoff(report)
    assert "> fix" in report.handoff


@pytest.mark.spec("D4", "E2")
@pytest.mark.parametrize("is_note_first", [True, False])
def test_a_note_merged_with_a_request_leaves_it_one_and_is_not_quoted(is_note_first: bool) -> None:
    asked = {"role": "user", "content": "Rename the table to bookings."}
    together = [NOTE, asked] if is_note_first else [asked, NOTE]
    sent = [m.to_dict() for m in rules.repair([Message.from_dict(m) for m in [*working_session(2), *together]])]
    merged = Message.from_dict(sent[-1])
    assert len(merged.parts) == 2
    assert merged.is_request
    told = write_active_task(read_state([Entry(0, merged)], {}))
    assert told.endswith("> Rename the table to bookings.")
    assert SYSTEM_NOTE.strip() not in told


def test_notes_alone_are_a_note_however_many_were_merged() -> None:
    merged = rules.repair([Message.from_dict(m) for m in [{"role": "user", "content": "hi"}, *working_session(1)]])
    assert merged[0].is_request
    notes = Message("user", (TextPart(f"{SYSTEM_NOTE}one"), TextPart(f"{SYSTEM_NOTE}two"), TextPart(CONTINUES)))
    assert Message.from_dict(notes.to_dict()).kind == "note"


def test_a_handoff_merged_with_a_note_is_taken_apart_into_just_these() -> None:
    handoff, note = f"{HANDOFF_FIRST_LINE}\n\n## Goal\nx", f"{SYSTEM_NOTE}be brief"
    first, second = split_merged(Message.from_dict({"role": "user", "content": [handoff, note]}), ours)
    assert (first.kind, second.kind) == ("handoff", "note")
    parts = split_merged(Message.from_dict({"role": "user", "content": [handoff, handoff, "and now?"]}), ours)
    assert [m.kind for m in parts] == ["handoff", "handoff", "user"]


@pytest.mark.parametrize("blank", BLANKS)
def test_a_blank_message_asks_for_nothing(blank: Any) -> None:
    message = Message.from_dict({"role": "user", "content": blank})
    assert message.is_real_user
    assert not message.is_request


def test_a_picture_alone_is_a_request() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert Message.from_dict({"role": "user", "content": [picture]}).is_request
    assert user("look").is_request
