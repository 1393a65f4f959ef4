"""Counts of text: what each one counts, that they add up, and that no text stops them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.text_stats import COUNT_NAMES, NO_COUNTS, NO_FIGURES, TokenFeatures, count_text

any_text = st.text(st.characters(codec=None), max_size=300)


def counted(text: str) -> dict[str, int]:
    return {name: n for name, n in zip(COUNT_NAMES, count_text(text), strict=True) if n}


@pytest.mark.spec("B2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("camelCase word", {"letters": 13, "words": 3, "capitals": 1}),
        ("12345 7", {"numbers": 2, "lone_digits": 1, "long_digits": 2, "space_number": 1}),
        ("an API", {"letters": 5, "words": 2, "capitals": 1, "shouts": 1}),
        ("a, b", {"letters": 2, "words": 2, "marks": 1, "mark_runs": 1, "mark_space": 1}),
        ("=====", {"marks": 5, "mark_runs": 1, "mark_pairs": 1, "mark_bars": 1}),
        ("a/b", {"letters": 2, "words": 2, "marks": 1, "mark_runs": 1, "slashes": 1}),
        ("x\n    y", {"letters": 2, "words": 2, "indents": 1, "line_ends": 1}),
        ("\t\tx", {"letters": 1, "words": 1, "tab_runs": 1}),
        ("x\n\t\ty\tz", {"letters": 3, "words": 3, "tab_runs": 1, "tab_indents": 1, "line_ends": 1}),
        ("x;\n\n", {"letters": 1, "words": 1, "marks": 1, "mark_runs": 1, "line_ends": 1}),
        ("9Z8", {"letters": 1, "words": 1, "capitals": 1, "mixed": 2, "numbers": 2, "lone_digits": 2}),
        ("x" * 20, {"letters": 20, "words": 1, "long_letters": 5}),
        ("汉字。", {"han": 2, "cjk_marks": 1}),
        ("かなカナ", {"kana": 4}),
        ("한글 글", {"hangul": 3, "hangul_words": 2}),
        ("있었습니다", {"hangul": 5, "hangul_words": 1, "hangul_long": 2}),
        ("привет мир", {"greek_cyrillic": 9, "greek_cyrillic_words": 2}),
        ("café", {"letters": 3, "words": 1, "latin": 1}),
        ("🙂", {"emoji": 1}),
        ("─────", {"symbols": 1, "symbol_bars": 1}),
        ("！", {"wide": 1}),
    ],
)
def test_each_class_counts_what_its_name_says(text: str, expected: dict[str, int]) -> None:
    assert counted(text) == expected


def test_nothing_counts_nothing() -> None:
    assert count_text("") is NO_COUNTS


@pytest.mark.spec("B2", "B3")
@given(st.lists(any_text, max_size=5))
def test_counts_of_separate_texts_add_up(texts: list[str]) -> None:
    total = NO_FIGURES
    for text in texts:
        total = total + TokenFeatures(counts=count_text(text), messages=1)
    assert total.messages == len(texts)
    for i in range(len(COUNT_NAMES)):
        assert total.counts[i] == sum(count_text(t)[i] for t in texts)


@given(any_text, any_text)
def test_what_was_added_can_be_taken_away(a: str, b: str) -> None:
    first, second = TokenFeatures(counts=count_text(a), images=2), TokenFeatures(counts=count_text(b), calls=1)
    assert first + second - second == first


@pytest.mark.spec("B2")
@given(any_text)
def test_any_text_is_counted_without_error_and_never_below_zero(text: str) -> None:
    assert all(n >= 0 for n in count_text(text))


@pytest.mark.spec("B2")
@given(st.text(max_size=100).filter(bool), st.integers(2, 40))
def test_long_texts_are_counted_in_pieces_that_hardly_change_the_sum(text: str, repeats: int) -> None:
    block = text + "\n"
    whole = (block * (40_000 // len(block) + repeats))[:40_000]
    halves = [whole[:20_000], whole[20_000:]]
    for all_at_once, first, second in zip(count_text(whole), *map(count_text, halves), strict=True):
        # A seam may split one run in two, or hide one pair, at each of the few places where pieces meet.
        assert abs(all_at_once - first - second) <= 100


def test_fifty_megabytes_are_counted_in_bounded_pieces() -> None:
    counts = dict(zip(COUNT_NAMES, count_text("lorem ipsum, 1234 汉字\n" * 2_200_000), strict=True))
    assert counts["han"] == 4_400_000
    # Runs are cut where pieces meet, a few thousand times in fifty megabytes.
    assert counts["numbers"] == pytest.approx(2_200_000, rel=1e-3)
