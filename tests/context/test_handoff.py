"""The handoff as a value and as a text: sections, banner, source line, end marker, and back again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import prompts
from perdure.context.handoff import (
    BY_CODE,
    END_MARKER,
    SECTIONS,
    Handoff,
    edit_handoff,
    handoff_of,
    parse_handoff,
    render,
    split_merged,
)
from perdure.core import rules
from perdure.core.datastructures import merge_intervals
from perdure.core.errors import ConfigError
from perdure.core.messages import HANDOFF_FIRST_LINE, ImagePart, Message, TextPart, ToolCall, user

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=80)
LINES = st.lists(
    st.sampled_from([*(f"## {s}" for s in SECTIONS), END_MARKER, HANDOFF_FIRST_LINE, "# x", "Source: 3 messages."])
    | TEXT,
    max_size=5,
).map("\n".join)


def ours(text: str) -> bool:
    return True


@pytest.mark.spec("E1")
def test_thirteen_sections_in_their_order() -> None:
    text = render(Handoff({"Goal": "ship it"}))
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [f"## {s}" for s in SECTIONS]
    assert len(headings) == 13
    assert headings[0] == "## Active Task"
    assert headings[-1] == "## Critical Context"


@pytest.mark.spec("E7")
def test_banner_says_what_the_notes_are_and_are_not() -> None:
    text = render(Handoff({}))
    banner = text.split("## ")[0].lower()
    for wanted in (
        "background",
        "not instructions",
        "do not redo",
        "already reflect",
        "active task",
        "memory.md",
        "user.md",
    ):
        assert wanted in banner
    assert "newest user message" in banner
    assert text.startswith(HANDOFF_FIRST_LINE)
    assert text.endswith(END_MARKER)


@pytest.mark.spec("C9")
def test_the_short_form_leaves_empty_sections_out() -> None:
    text = render(Handoff({"Goal": "ship it"}), is_short=True)
    assert text.count("## ") == 1
    assert len(text) < 450


@pytest.mark.spec("E11", "F1", "M4")
def test_source_line_says_what_it_stands_for_who_wrote_it_when_and_at_what_cost() -> None:
    made = Handoff(
        {},
        covers=((3, 90), (91, 154), (170, 181)),
        message_count=164,
        model="gpt-x",
        created_at_ms=1_767_225_600_000,
        cost_usd=0.0123,
    )
    line = next(li for li in render(made).splitlines() if li.startswith("Source:"))
    assert line == (
        "Source: 164 messages (m:3-154,170-181, open with session_search); "
        "written by gpt-x on 2026-01-01 00:00 UTC; cost $0.0123."
    )
    assert BY_CODE in render(Handoff({}, message_count=12))
    assert "12 messages" in render(Handoff({}, message_count=12))
    assert "session_search" not in render(Handoff({}, message_count=12)), "an address that cannot be opened"


@pytest.mark.spec("E5")
@given(
    st.dictionaries(st.sampled_from(SECTIONS), LINES),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=4),
    st.booleans(),
)
def test_render_and_parse_are_inverse(sections: dict[str, str], spans: list[tuple[int, int]], is_short: bool) -> None:
    made = Handoff(
        {s: t for s, t in sections.items() if t.strip().rstrip(".").lower() != "none"},
        covers=tuple((lo, lo + n) for lo, n in spans),
        message_count=len(spans),
        model="some model",
        created_at_ms=1_767_225_600_000,
        cost_usd=0.5,
    )
    text = render(made, is_short=is_short)
    assert parse_handoff(text) == made
    assert text.count(f"\n{END_MARKER}") == 1
    assert text.count(HANDOFF_FIRST_LINE) - text.count(f"\\{HANDOFF_FIRST_LINE}") == 1


@pytest.mark.spec("E7")
def test_an_old_banner_is_replaced_never_doubled() -> None:
    old = render(Handoff({"Goal": "ship it"}), banner="Words of an earlier version.\n- Obey me.")
    again = parse_handoff(old)
    assert again is not None
    text = render(again)
    assert "Obey me" not in text
    assert text.count(HANDOFF_FIRST_LINE) == 1


def test_a_text_that_is_none_is_none() -> None:
    assert parse_handoff("## Goal\nship it") is None
    assert parse_handoff("") is None
    assert parse_handoff(HANDOFF_FIRST_LINE) == Handoff({})


@pytest.mark.spec("E5", "D6")
@pytest.mark.parametrize("content", ["and now?", (TextPart("look"), TextPart("here"))])
def test_a_handoff_merged_with_a_message_is_taken_apart_again(content: str | tuple[TextPart, ...]) -> None:
    handoff = Message("user", render(Handoff({"Goal": "ship it"})), kind="handoff")
    request = Message("user", content)
    merged = Message.from_dict(rules.merge(handoff, request).to_dict())
    assert merged.kind == "user"
    assert split_merged(merged, ours) == (handoff, request)
    found = handoff_of(merged)
    assert found is not None
    assert found.section("Goal") == "ship it"
    assert split_merged(user("hello"), ours) == (user("hello"),)


@pytest.mark.spec("D6")
def test_a_handoff_merged_with_a_bare_call_is_taken_apart_again() -> None:
    handoff = Message("assistant", render(Handoff({"Goal": "ship it"})), kind="handoff")
    calling = Message("assistant", None, (ToolCall("c", "terminal"),), kind="assistant")
    merged = Message.from_dict(rules.merge(handoff, calling).to_dict())
    assert split_merged(merged, ours) == (handoff, calling)


@pytest.mark.spec("D1", "D6")
def test_a_handoff_keeps_its_own_image_when_it_is_taken_apart() -> None:
    picture, theirs = ImagePart("data:image/png;base64,AAAA"), ImagePart("data:image/png;base64,BBBB")
    handoff = Message("user", (TextPart(render(Handoff({}, has_image=True))), picture), kind="handoff")
    assert split_merged(handoff, ours) == (handoff,)
    request = Message("user", (theirs, TextPart("what is this?")))
    assert split_merged(Message.from_dict(rules.merge(handoff, request).to_dict()), ours) == (handoff, request)
    bare = Message("user", render(Handoff({})), kind="handoff")
    assert split_merged(Message.from_dict(rules.merge(bare, request).to_dict()), ours) == (bare, request)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=12))
def test_merged_intervals_cover_the_same_positions(intervals: list[tuple[int, int]]) -> None:
    merged = merge_intervals(sorted(intervals))
    positions = {n for lo, hi in intervals for n in range(lo, hi + 1)}
    assert {n for lo, hi in merged for n in range(lo, hi + 1)} == positions
    assert all(a[1] + 1 < b[0] for a, b in pairwise(merged))


@pytest.mark.spec("E8")
def test_every_prompt_of_compaction_is_a_file_of_its_own() -> None:
    wanted = {"handoff_banner", "handoff_banner_short", "summary", "summary_first", "summary_focus"}
    assert wanted | {"summary_merge", "summary_part", "summary_update"} <= set(prompts.names())


@pytest.mark.spec("D4", "D6", "E5")
def test_what_was_joined_to_a_handoff_as_one_string_is_taken_apart_again() -> None:
    text = render(Handoff({"Goal": "ship it"}))
    handoff, said = split_merged(Message("user", f"{text}\n\nNow paint the shed.", kind="handoff"), ours)
    assert (handoff.kind, handoff.content) == ("handoff", text)
    assert (said.kind, said.content) == ("user", "Now paint the shed.")
    alone = Message("user", f"{text}\n", kind="handoff")
    assert split_merged(alone, ours) == (alone,)


@pytest.mark.spec("E5")
def test_a_handoff_whose_line_ends_were_changed_is_read_all_the_same() -> None:
    made = Handoff({"Goal": "ship it", "Blocked": "- port 80"}, covers=((3, 9),), message_count=7, model="m-1")
    assert parse_handoff(render(made).replace("\n", "\r\n")) == made


def test_an_edit_that_is_no_text_is_a_plain_error() -> None:
    with pytest.raises(ConfigError, match="one text with headings such as “## Active Task”, not dict"):
        edit_handoff(render(Handoff({"Goal": "x"})), {"Goal": "y"})  # type: ignore[arg-type]  # a caller's mistake
