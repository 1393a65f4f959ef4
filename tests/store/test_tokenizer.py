"""What the one tokenizer makes of a text, and of a query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.messages import ToolCall, assistant
from perdure.store.search.query import parse
from perdure.store.search.search import score, snippet
from perdure.store.search.tokenizer import fold_text, searchable_text, tokenize


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


@given(st.text(), st.text(max_size=30))
def test_ranking_and_snippets_accept_any_text(text: str, query: str) -> None:
    clauses = parse(query)
    if clauses:
        score(text, clauses)
        snippet(text, clauses)


def test_a_literal_phrase_outranks_its_separate_words() -> None:
    clauses = parse("brown fox")
    literal = parse('"brown fox"')
    near, far = "the brown fox ran", "the fox was not brown at all"
    assert score(near, literal) > score(far, literal)
    assert score(near, clauses) == pytest.approx(score(far, clauses), abs=0.2)


def test_a_short_text_outranks_a_long_one() -> None:
    clauses = parse("migration")
    assert score("the migration", clauses) > score("the migration" + " and other things" * 500, clauses)


def test_arguments_are_searched_by_their_values_and_as_they_are_when_broken() -> None:
    good = ToolCall("1", "read_file", '{"path":"a\\nb","n":{"deep":[1,true,null]}}')
    broken = ToolCall("2", "read_file", "{not json")
    text = searchable_text(assistant("hm", (good, broken)))
    assert "a\nb" in text
    assert "deep" in text
    assert "{not json" in text
