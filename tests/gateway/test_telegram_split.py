"""Long answers cut to what a platform takes: nothing lost, nothing too long, code blocks whole."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from perdure.gateway.adapters.formatting import split_text, utf16_length


@given(st.text(alphabet="ab 。.\n`中😀", max_size=400), st.integers(min_value=24, max_value=120))
def test_every_piece_fits_and_no_character_is_lost(text: str, limit: int) -> None:
    cut = split_text(text, limit=limit)

    assert all(0 < utf16_length(p) <= limit for p in cut)
    assert _letters("".join(cut)) == _letters(text)


def test_a_short_text_is_one_piece_as_it_is() -> None:
    assert split_text("one\n\ntwo", limit=100) == ["one\n\ntwo"]


def test_cuts_are_made_between_paragraphs_before_lines_and_words() -> None:
    first, second = "a" * 30 + " b", "c" * 30

    assert split_text(f"{first}\n\n{second}", limit=50) == [first, second]


def test_a_code_block_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line {i}" for i in range(20))

    cut = split_text(f"```python\n{code}\n```\nDone.", limit=80)

    assert len(cut) > 1
    assert all(p.count("```") % 2 == 0 for p in cut)
    assert all(p.startswith("```python\n") for p in cut[1:-1])


def test_an_emoji_counts_as_two_and_is_never_halved() -> None:
    cut = split_text("😀" * 100, limit=51)

    assert all(utf16_length(p) <= 51 for p in cut)
    assert "".join(cut) == "😀" * 100


def test_nothing_but_space_is_no_message_at_all() -> None:
    assert split_text(" \n\n ", limit=50) == []


def _letters(text: str) -> str:
    """What is read: without the space at cuts and the fences that are added there."""
    return re.sub(r"[\s`]", "", text)
