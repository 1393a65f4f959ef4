"""What the one tokenizer makes of a text, and of a query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.messages import ToolCall, assistant
from perdure.store.search.dates import CalendarDate, find_dates
from perdure.store.search.query import parse_query
from perdure.store.search.ranking import Ranker
from perdure.store.search.snippets import Snippets
from perdure.store.search.tokenizer import fold_text, searchable_text, tokenize
from perdure.store.search.words import word_forms


@pytest.mark.spec("I6")
@pytest.mark.parametrize(
    ("text", "parts", "wholes"),
    [
        ("plain words", "plain words", ""),
        ("session_search", "session search", "session_search"),
        ("getUserName", "get user name", "getusername"),
        ("HTTPServer2", "http server2", "httpserver2"),
        ("src/turnGate.py", "src turn gate py", "src/turngate.py src turngate.py turngate"),
        ("C:\\data\\log.txt", "c data log txt", "c:/data/log.txt data log.txt"),
        ("模型能", "模 型 能", "模型 型能"),
        ("GPT模型", "gpt 模 型", "模型"),
        ("Café ＡＢＣ", "cafe abc", ""),
        ("a\0b \ud800", "a b", ""),
        ("", "", ""),
        ("!?*()", "", ""),
    ],
)
def test_tokens(text: str, parts: str, wholes: str) -> None:
    tokens = tokenize(text)
    assert tokens.parts == tuple(parts.split())
    assert tokens.wholes == tuple(wholes.split())


def test_very_long_strings_are_truncated() -> None:
    tokens = tokenize("a" * 5_000 + " " + "b/" * 5_000 + "c")
    assert max(map(len, tokens.parts)) <= 64
    assert max(map(len, tokens.wholes), default=0) <= 120


@given(st.text())
def test_no_token_contains_a_separator(text: str) -> None:
    tokens = tokenize(text)
    for token in (*tokens.parts, *tokens.wholes):
        assert token
        assert not any(c.isspace() or c in "\"'*()^\0" for c in token)


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_adjacent_words_stay_adjacent_in_any_context(before: str, middle: str, after: str) -> None:
    inner = tokenize(middle).parts
    around = tokenize(f"{before} {middle} {after}").parts
    assert any(around[i : i + len(inner)] == inner for i in range(len(around) - len(inner) + 1))


@given(st.text())
def test_folding_is_idempotent(text: str) -> None:
    assert fold_text(fold_text(text)) == fold_text(text)


def score(text: str, query: str) -> float:
    parsed = parse_query(query)
    return Ranker(parsed, [1.0] * len(parsed.terms)).score(text).score


@given(st.text(), st.text(max_size=30))
def test_ranking_and_snippets_accept_any_text(text: str, query: str) -> None:
    terms = parse_query(query).terms
    score(text, query)
    line, marks, _ = Snippets(terms, [1.0] * len(terms)).excerpt(text)
    assert all(0 <= start < end <= len(line) for start, end in marks)


def test_words_close_together_outrank_words_far_apart() -> None:
    near, far = "the brown fox ran " + "x " * 60, "the fox ran " + "x " * 60 + " brown"
    assert score(near, "brown fox") > score(far, "brown fox")
    assert score(near, '"brown fox"') > score(far, '"brown fox"')


def test_a_short_text_outranks_a_long_one() -> None:
    assert score("the migration", "migration") > score("the migration" + " and other things" * 500, "migration")


def test_the_exact_word_outranks_its_other_forms() -> None:
    assert score("we paint it", "paint") > score("we painted it", "paint") > score("we saw it", "paint")


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("painting", {"paint", "paints", "painted", "painting"}),
        ("stopped", {"stop", "stops", "stopping"}),
        ("created", {"create", "creates", "creating"}),
        ("companies", {"company"}),
        ("boxes", {"box"}),
        ("went", {"go", "goes", "gone", "going"}),
        ("children", {"child"}),
        ("quickly", {"quick"}),
        ("class", {"classes"}),
        ("5432", {"5432"}),
        ("模型", {"模型"}),
    ],
)
def test_a_word_has_its_inflected_forms(word: str, forms: set[str]) -> None:
    assert word_forms(word)[0] == word
    assert forms <= set(word_forms(word))


@given(st.text(max_size=20))
def test_any_word_is_its_own_first_form(word: str) -> None:
    assert word_forms(word)[0] == word


def test_stop_words_are_ignored_unless_there_is_nothing_else() -> None:
    question = parse_query("When did they move the deployment to Friday?")
    assert [t.label for t in question.terms] == ["move", "deployment", "friday"]
    assert question.ignored == ("when", "did", "they", "the", "to")
    assert [t.label for t in parse_query("who are you").terms] == ["who", "are", "you"]


def test_arguments_are_searched_by_their_values_and_as_they_are_when_broken() -> None:
    good = ToolCall("1", "read_file", '{"path":"a\\nb","n":{"deep":[1,true,null]}}')
    broken = ToolCall("2", "read_file", "{not json")
    text = searchable_text(assistant("hm", (good, broken)))
    assert "a\nb" in text
    assert "deep" in text
    assert "{not json" in text


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("on 3 June, 2023", [CalendarDate(6, 3, 2023)]),
        ("8th of December and Jan 2nd 2024", [CalendarDate(12, 8), CalendarDate(1, 2, 2024)]),
        ("since sept", [CalendarDate(9)]),
        ("2031-07-21T09:30 or 2030-11", [CalendarDate(7, 21, 2031), CalendarDate(11, None, 2030)]),
        ("what may happen on the march, at May 12:30, to mayor 3 of 127-2030-11-2", []),
    ],
)
def test_dates_are_found_in_the_forms_people_write_them(text: str, dates: list[CalendarDate]) -> None:
    assert list(find_dates(text)) == dates
