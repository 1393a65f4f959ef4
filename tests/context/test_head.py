"""A compacted view becomes messages that may be sent."""

from __future__ import annotations

import pytest

from perdure.context.handoff import END_MARKER, Handoff, render
from perdure.context.handoff_sections import handoff_message
from perdure.context.retention import shorten_head
from perdure.core import rules
from perdure.core.messages import Message, TextPart, ToolCall, assistant, system, tool_result, user
from perdure.models.tokens import estimate_message

TEXT = render(Handoff({"Goal": "ship it"}))
CALL = assistant(None, (ToolCall("c", "terminal", "{}"),))
RESULT = tool_result("c", "ok")


@pytest.mark.spec("D2")
def test_a_long_head_is_shown_shortened_with_its_address() -> None:
    head = [user("Begin. " + "detail " * 9_000 + "End."), assistant("short")]
    view = [system("s"), *head, Message("user", TEXT, kind="handoff"), assistant("go on")]
    out = shorten_head(view, head_tokens=400, addresses=["m:0", "m:1", "m:2", "m:3", "m:4"])
    assert sum(map(estimate_message, out[1:3])) <= 400
    assert out[1].text.startswith("Begin.")
    assert out[1].text.endswith("End.")
    assert "open m:1 with session_search" in out[1].text
    assert out[2] is head[1]
    assert view[1] is head[0], "the view itself stays as it was"


@pytest.mark.spec("D2")
def test_a_head_within_its_share_and_a_view_without_a_handoff_stay_as_they_are() -> None:
    view = [user("a " * 5_000), assistant("b")]
    assert shorten_head(view, head_tokens=10) == view
    view = [user("a"), assistant("b"), Message("user", TEXT, kind="handoff")]
    assert shorten_head(view, head_tokens=400) == view


@pytest.mark.spec("D2")
def test_large_arguments_in_the_head_stay_valid_json() -> None:
    big = assistant("x", (ToolCall("c", "write", '{"content": "' + "y" * 40_000 + '", "n": 3}'),))
    view = [user("go"), big, RESULT, Message("assistant", TEXT, kind="handoff"), user("on")]
    out = shorten_head(view, head_tokens=300)
    arguments = out[1].tool_calls[0].parsed_arguments()
    assert arguments is not None
    assert arguments["n"] == 3
    assert estimate_message(out[1]) < 400


@pytest.mark.spec("D6", "K1")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [user("ZETA: the newest")]),
        ([], [CALL, RESULT, assistant("OMEGA: done")]),
        ([user("a")], [user("ZETA: the newest")]),
        ([user("a")], [CALL, RESULT, assistant("OMEGA: done")]),
        ([user("a"), assistant("b")], [user("ZETA: the newest")]),
        ([user("a"), assistant("b")], [assistant("OMEGA: c"), user("ZETA: the newest")]),
        ([user("a"), CALL, RESULT], [user("ZETA: the newest")]),
        ([user("a"), CALL, RESULT], [assistant("OMEGA: done")]),
        ([user("a")], []),
        ([], []),
    ],
)
def test_the_role_avoids_two_equal_ones_or_the_two_are_merged(before: list[Message], after: list[Message]) -> None:
    handoff = handoff_message(TEXT, before[-1] if before else None, after[0] if after else None)
    out = rules.repair(shorten_head([*before, handoff, *after], head_tokens=10_000))
    assert rules.violations(out) == []
    assert len(out) <= len(before) + 1 + len(after) + (not before and not after)
    if after:
        first = after[0].text
        holder = next(m for m in out if first in m.text and (m.tool_calls == after[0].tool_calls))
        if holder.text.startswith(TEXT) and first:
            assert holder.parts == (TextPart(TEXT), TextPart(first)), "its own text must stand intact after the handoff"
            assert holder.text.index(END_MARKER) < holder.text.index(first)


@pytest.mark.spec("D2")
def test_several_long_messages_of_a_head_share_what_it_may_take_and_a_short_one_stays_whole() -> None:
    head = [user("Begin. " + "detail " * 9_000), assistant("reply " * 9_000), user("short"), assistant("more " * 9_000)]
    out = shorten_head([*head, Message("user", TEXT, kind="handoff")], head_tokens=900)
    assert 600 < sum(map(estimate_message, out[:4])) <= 900
    assert out[2] is head[2]
    assert all("characters left out" in out[i].text for i in (0, 1, 3))


@pytest.mark.spec("D2")
def test_a_report_in_the_head_is_shown_by_its_best_passages() -> None:
    filler = "\n".join(f"Let me look at file {n} next." for n in range(300))
    cause = "The root cause is `cache_key()`, which lacks the tenant."
    report = f"I will now sum up.\n\n{filler}\n\n{cause}\n\n{filler}\n\nDone."
    view = [user("go"), CALL, tool_result("c", report), Message("assistant", TEXT, kind="handoff"), user("on")]
    shown = shorten_head(view, head_tokens=900, addresses=["", "", "m:2"])[2]
    assert cause in shown.text
    assert "open m:2 with session_search" in shown.text
    assert estimate_message(shown) <= 150
    assert shorten_head(view, head_tokens=900, addresses=["", "", "m:2"])[2].text == shown.text
