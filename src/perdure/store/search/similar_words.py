"""Words of a similar meaning: a text without a word of the query gains from the nearest word it has.

The vector of a whole text says what it is about; this says which word stands for which: *martial* for *fighting*,
*adopt* for *adoption*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perdure.store.search.embedding import WordVectors
from perdure.store.search.matches import TextMatch
from perdure.store.search.query import Term
from perdure.store.search.ranking import Ranker, split_words

# The best matches that are compared, and how much of each.
_COMPARED = 50
_COMPARED_CHARS = 4_000
# Less similar words say nothing; the nearest counts as much as the word itself once.
_MIN_COSINE = 0.35
# Long texts have a similar word for everything.
_TYPICAL_CHARS = 600
_LENGTH_SHARE = 0.5
_MAX_LENGTH = 10.0


def with_similar_words(matches: Sequence[TextMatch], ranker: Ranker, model: WordVectors) -> list[TextMatch]:
    """Add to the best matches what words of a similar meaning supply for the terms they lack."""
    terms = [(n, t) for n, t in enumerate(ranker.query.terms) if t.forms and t.forms[0].isalpha()]
    compared = sorted((m for m in matches if not m.relevance.is_echo), key=_rank)[:_COMPARED]
    if not terms or not compared:
        return list(matches)
    added = dict(zip(map(_rank, compared), _shares(compared, terms, ranker.weights, model), strict=True))
    return [
        m._replace(relevance=replace(m.relevance, score=m.relevance.score + added.get(_rank(m), 0.0))) for m in matches
    ]


def _rank(match: TextMatch) -> tuple[float, bool, int]:
    """Return a key that is unique to a match and sorts the best first."""
    return -round(match.relevance.score, 6), match.is_message, -match.row[0]


def _shares(
    matches: Sequence[TextMatch], terms: Sequence[tuple[int, Term]], weights: Sequence[float], model: WordVectors
) -> list[float]:
    import numpy as np

    words = [list(split_words(m.text[:_COMPARED_CHARS])) for m in matches]
    vocabulary = list(dict.fromkeys(w for own in words for w in own))
    rows = {word: row for row, word in enumerate(vocabulary)}
    cosines = model.embed_words(vocabulary) @ model.embed_words([t.forms[0] for _, t in terms]).T
    # Rounded, because the last digits depend on the order of the words.
    similar = np.maximum(0.0, (np.round(cosines, 3) - _MIN_COSINE) / (1.0 - _MIN_COSINE))
    shares = []
    for match, own in zip(matches, words, strict=True):
        nearest = similar[[rows[w] for w in own]].max(axis=0) if own else np.zeros(len(terms))
        total = sum(
            weights[number] * float(value)
            for (number, _), value in zip(terms, nearest, strict=True)
            if number not in match.relevance.matched
        )
        length = min(_MAX_LENGTH, len(match.text) / _TYPICAL_CHARS)
        shares.append(total / (1 - _LENGTH_SHARE + _LENGTH_SHARE * length))
    return shares
