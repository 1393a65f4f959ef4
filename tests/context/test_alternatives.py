"""Regular expressions of many alternatives: put in another order they match the same texts."""

from __future__ import annotations

import re

import pytest

from perdure.context.user_text.alternatives import compile_alternatives, group_alternatives, split_alternatives
from perdure.context.user_text.standing_instructions import _ENGLISH, _OTHERS, _PLEASE

SENTENCES = (
    "Always run the tests before you push.",
    "please never touch main",
    "From now on answer in German.",
    "The build must not depend on the network",
    "don't use tabs, use spaces",
    "call me Ann",
    "call me ann",
    "it never works",
    "Can you look at the log?",
    "ab jetzt bitte nur kurze Antworten",
    "siempre responde en español",
    "пиши по-русски всегда",
    "(a|b) in brackets",
    "",
)


def test_alternatives_are_split_at_the_top_level_only() -> None:
    source = r"a|b(?:c|d)|[|(]e|\|f|[]|]g|[^]|]h"
    assert split_alternatives(source) == ["a", "b(?:c|d)", "[|(]e", r"\|f", "[]|]g", "[^]|]h"]


def test_a_lead_is_taken_out_of_all_alternatives_that_begin_with_it() -> None:
    assert group_alternatives(r"^a|\bb|c|^d", ("^", r"\b")) == r"^(?:a|d)|\b(?:b)|c"


@pytest.mark.parametrize("sources", [_ENGLISH, _OTHERS], ids=["english", "other languages"])
def test_grouped_alternatives_match_where_the_plain_ones_do(sources: tuple[str, ...]) -> None:
    plain = re.compile("|".join(sources), re.IGNORECASE)
    grouped = compile_alternatives("|".join(sources), re.IGNORECASE, leads=(_PLEASE, "^", r"\b"))
    found = [plain.search(s) is not None for s in SENTENCES]
    assert found == [grouped.search(s) is not None for s in SENTENCES]
    assert True in found
    assert False in found
