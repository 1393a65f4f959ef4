"""Rank a small set of titled texts for a query, without an index: BM25 over titles and bodies, and word vectors.

For sets of a few hundred texts, such as tool descriptions. The words are those of the message search (`tokenizer`,
`words`), and the vectors are used where the extra `recall` is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from perdure.store.search.embedding import is_available, load_word_vectors
from perdure.store.search.ranking import inverse_frequency
from perdure.store.search.tokenizer import tokenize
from perdure.store.search.words import STOP_WORDS, word_forms

if TYPE_CHECKING:
    from perdure.store.search.embedding import Vectors

# A word of a title counts this often.
_TITLE_COUNT = 3.0
_SATURATION = 1.2
_LENGTH_SHARE = 0.4
# What a related word counts, compared with the word itself.
_RELATED_SHARE = 0.7
# How much the nearest text by meaning gains, compared with the best one by words.
_MEANING_SHARE = 1.0
_MAX_QUERY_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class _Document:
    counts: Mapping[str, float]
    length: float


def score_documents(
    query: str, texts: Sequence[tuple[str, str]], *, synonyms: tuple[tuple[str, ...], ...] = ()
) -> list[float]:
    """Return how well each (title, body) text matches; 0 for one that does not.

    `synonyms` are groups of interchangeable words, in lower case; they count less than the word itself.
    """
    query = query[:_MAX_QUERY_CHARS]
    frozen = tuple(texts)
    scores = _word_scores(query, _index(frozen), _related_words(synonyms))
    best = max(scores, default=0.0)
    similarities = _similarities(query, frozen)
    if similarities is not None:
        share = _MEANING_SHARE * (best or 1.0)
        scores = [score + share * max(0.0, near) for score, near in zip(scores, similarities, strict=True)]
    return scores


@lru_cache(maxsize=16)
def _index(texts: tuple[tuple[str, str], ...]) -> tuple[_Document, ...]:
    return tuple(_document(title, body) for title, body in texts)


def _document(title: str, body: str) -> _Document:
    counts: dict[str, float] = {}
    for text, share in ((body, 1.0), (title, _TITLE_COUNT)):
        for word in tokenize(text).parts:
            base = _base(word)
            counts[base] = counts.get(base, 0.0) + share
    return _Document(counts, sum(counts.values()))


def _base(word: str) -> str:
    """Return one form for all forms of a word."""
    return min(word_forms(word), key=lambda form: (len(form), form))


@lru_cache(maxsize=4)
def _related_words(groups: tuple[tuple[str, ...], ...]) -> Mapping[str, Sequence[str]]:
    related: dict[str, list[str]] = {}
    for group in groups:
        bases = [_base(word) for word in group]
        for base in bases:
            related.setdefault(base, []).extend(other for other in bases if other != base)
    return related


def _query_terms(query: str, related: Mapping[str, Sequence[str]]) -> list[dict[str, float]]:
    """Return for each word of the query its weight and the weights of its synonyms."""
    words = list(dict.fromkeys(_base(word) for word in tokenize(query).parts))
    terms = []
    for word in words:
        others = {other: _RELATED_SHARE for other in related.get(word, ()) if other not in words}
        terms.append(others if word in STOP_WORDS else {**others, word: 1.0})
    return terms if any(terms) else [{word: 1.0} for word in words]


def _word_scores(query: str, documents: Sequence[_Document], related: Mapping[str, Sequence[str]]) -> list[float]:
    """Score by words; of a word and its synonyms, the best match in a text counts."""
    typical = sum(d.length for d in documents) / max(1, len(documents)) or 1.0
    scores = [0.0] * len(documents)
    for alternatives in _query_terms(query, related):
        best: dict[int, float] = {}
        for term, share in alternatives.items():
            matches = [(n, d.counts[term]) for n, d in enumerate(documents) if term in d.counts]
            weight = share * inverse_frequency(len(matches), len(documents))
            for n, count in matches:
                discount = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * documents[n].length / typical)
                best[n] = max(best.get(n, 0.0), weight * count * (_SATURATION + 1) / (count + discount))
        for n, score in best.items():
            scores[n] += score
    return scores


def _similarities(query: str, texts: tuple[tuple[str, str], ...]) -> list[float] | None:
    """Compare the meaning of the texts with the query's; None without vectors."""
    model = load_word_vectors() if texts and is_available() else None
    if model is None:
        return None
    vectors, common = _embed(texts)
    query_vector = model.embed([query])[0] - common
    length = float((query_vector @ query_vector) ** 0.5) or 1.0
    return [float(value) / length for value in vectors @ query_vector]


@lru_cache(maxsize=16)
def _embed(texts: tuple[tuple[str, str], ...]) -> tuple[Vectors, Vectors]:
    """Return the vectors of the texts without what all of them have in common, and that common part."""
    import numpy as np

    model = load_word_vectors()
    assert model is not None
    vectors = model.embed([f"{title.replace('_', ' ')}. {body}" for title, body in texts])
    common = vectors.mean(axis=0)
    centred = vectors - common
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return centred / lengths, common
