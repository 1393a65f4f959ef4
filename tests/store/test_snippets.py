"""Snippets show the part of a text that answers, in whole sentences where they fit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perdure.store.search.answers import expected_answer
from perdure.store.search.query import parse_query
from perdure.store.search.snippets import Snippets

FILLER = "We talked about the garden and about the weather of that week. "


def snippets(query: str) -> Snippets:
    parsed = parse_query(query)
    return Snippets(parsed.terms, [1.0] * len(parsed.terms), expected_answer(query).fits)


def excerpt(text: str, query: str) -> str:
    return snippets(query).excerpt(text)[0]


def test_a_snippet_is_made_of_whole_sentences() -> None:
    answer = "The greenhouse was paid in March. Its glass came from Ghent."
    line = excerpt(f"{FILLER * 9}{answer} {FILLER * 9}", "greenhouse glass")
    assert answer in line
    assert line.strip("…").split(". ")[0] in (FILLER.strip(". "), "The greenhouse was paid in March")
    assert line.rstrip("…").endswith(".")


@pytest.mark.parametrize("dot", ["e.g. the", "version 3.14 of the", "see a.b.c for the"])
def test_a_dot_within_a_sentence_ends_none(dot: str) -> None:
    sentence = f"For heavy panes, {dot} greenhouse, two people are needed."
    assert sentence in excerpt(f"{FILLER * 9}{sentence} {FILLER * 9}", "greenhouse")


def test_a_long_sentence_is_cut_between_words() -> None:
    words = " ".join(f"word{n}" for n in range(400))
    line = excerpt(f"{words} greenhouse {words}", "greenhouse")
    assert 150 < len(line) < 260
    assert all(w == "greenhouse" or w in words.split() for w in line.strip("…").split())


def test_what_a_lead_in_announces_is_shown() -> None:
    rows = "\n".join(f"- item {n}: {'a long remark on it, ' * 12}" for n in range(9))
    line = excerpt(f"{FILLER * 9}\nThe greenhouse needs:\n{rows}", "greenhouse")
    assert "greenhouse needs: - item 0" in line


def test_rules_and_fences_are_left_out() -> None:
    text = "| part | price |\n|------|-------|\n| greenhouse | 420 |\n```"
    assert excerpt(text, "greenhouse") == "| part | price | | greenhouse | 420 |"
    assert excerpt("total = greenhouse + glass\n        ^^^^^^^^^^\nNameError", "greenhouse").count("^") == 0


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("How much did the greenhouse cost us?", "The greenhouse did cost us 420 euros."),
        ("Why did the greenhouse cost us?", "The greenhouse did cost us because the glass broke."),
        ("What did the greenhouse cost us?", "The greenhouse did cost us a lot, they said."),
    ],
)
def test_the_passage_that_has_what_is_asked_for_is_preferred(query: str, answer: str) -> None:
    asked = "What did the greenhouse cost us, do we know that?"
    text = f"{asked}\n{FILLER * 9}The greenhouse did cost us some time.\n{FILLER * 9}{answer}\n{FILLER * 9}"
    line = excerpt(text, query)
    assert asked not in line
    assert answer in line or (query.startswith("What") and "cost us some time." in line)


def test_without_a_match_the_passage_nearest_in_meaning_is_shown() -> None:
    made = snippets("greenhouse")
    text = f"{FILLER * 9}\nThe orangery is 420 euros.\n{FILLER * 9}"
    assert made.excerpt(text)[0].startswith(FILLER.strip())

    def nearness(passages: Sequence[str]) -> list[float]:
        return [0.9 if "orangery" in p else 0.1 for p in passages]

    made.similarity = nearness
    line, marks, offset = made.excerpt(text)
    assert "The orangery is 420 euros." in line
    assert (marks, offset) == ((), text.index("The orangery"))
