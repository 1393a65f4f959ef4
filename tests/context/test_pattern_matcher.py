"""The plain words that are looked for before a pattern never say no where the pattern says yes."""

from __future__ import annotations

import re

import pytest

from perdure.context.patterns import PatternMatcher
from perdure.context.summary_input import EXIT
from perdure.context.task_state.decisions import CHOICE, PLAN
from support.alternatives import alternatives

WORDINGS = {
    "plan": PLAN,
    "choice": CHOICE,
    "exit": EXIT,
}
each_wording = pytest.mark.parametrize("wording", WORDINGS.values(), ids=WORDINGS)


def test_alternatives_are_all_the_ways_through_a_pattern() -> None:
    found = alternatives(re.compile(r"\ba(?:b|cd?)[,;] \w+ing|x{2}.*\d$"))
    assert {"ab, wing", "ab; wing", "ac, wing", "acd; wwing", "xx7", "xx 7"} <= set(found)


@pytest.mark.spec("E12")
@each_wording
def test_every_way_through_a_pattern_has_a_mark(wording: PatternMatcher) -> None:
    for text in alternatives(wording.pattern):
        for said in (text, text.upper(), text.capitalize(), f"Well, {text}"):
            if wording.pattern.search(said):
                assert wording.is_in(said), said


@each_wording
def test_most_ways_through_a_pattern_are_matches_or_the_marks_would_be_proven_on_nothing(
    wording: PatternMatcher,
) -> None:
    found = alternatives(wording.pattern)
    assert sum(wording.pattern.search(text) is not None for text in found) >= 0.9 * len(found) > 4


@each_wording
def test_no_mark_is_looked_for_in_vain(wording: PatternMatcher) -> None:
    low = [text.lower() for text in alternatives(wording.pattern)]
    assert [mark for mark in wording.marks if not any(mark in text for text in low)] == []
    assert [mark for mark in wording.marks if mark != mark.lower()] == []


@each_wording
def test_what_is_said_in_cjk_needs_no_mark(wording: PatternMatcher) -> None:
    for text in alternatives(wording.cjk) if wording.cjk else []:
        assert wording.among([text, "nothing", f"x {text}"], f"{text} nothing x") == [text, f"x {text}"]


def test_pieces_are_found_in_their_order_in_either_script() -> None:
    pieces = ["Next: the tests.", "It is so.", "接下来运行测试", "No reason.", "Remaining: the docs."]
    assert PLAN.among(pieces, "\n".join(pieces)) == [pieces[0], pieces[2], pieces[4]]
