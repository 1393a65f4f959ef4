"""Choose which texts to rank: the newest matches of each term, rare terms first, within a bound of index entries.

Reading every match of a common word would take as long as the store is large. So each term contributes its newest
matches up to a limit; a term with fewer is complete. Texts with common words are found through the rare ones: which of
their matches also have the common word is a query of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from perdure.store.db.database import Transaction
from perdure.store.search.index import ClauseGroups, IdRange, IndexName, Strategy, TextIndex
from perdure.store.search.query import SearchQuery
from perdure.store.search.ranking import inverse_frequency
from perdure.store.search.scope import SearchScope

# Most matches read per term.
_MAX_POSTINGS = 600
# The same for a scope the index cannot narrow (a time, a session): matches out of scope are read as well.
_MAX_POSTINGS_UNSCOPED = 3_000
# Most matches of the rarest word walked through to find texts with all words, where every word is common.
_MAX_WALKED = 20_000
_MAX_LITERAL = 60


@dataclass(frozen=True, slots=True)
class Postings:
    """The newest matches of a term, and an estimate of how many there are in all."""

    ids: Sequence[int]
    total: float
    is_complete: bool


class CandidateSet:
    """The terms each candidate is known to have: a bit per term, by the candidate's id in the index."""

    def __init__(self) -> None:
        self._terms: dict[int, int] = {}

    def add(self, ids: Iterable[int], number: int) -> None:
        bit, terms = 1 << number, self._terms
        for ident in ids:
            terms[ident] = terms.get(ident, 0) | bit

    def credit(self, ids: Iterable[int], number: int) -> None:
        """Add a term to those of `ids` that are candidates already."""
        self.add((i for i in ids if i in self._terms), number)

    def rank(self, weights: Sequence[float]) -> Iterator[tuple[int, frozenset[int]]]:
        """Yield candidates by the weight of their known terms, then the newest."""
        by_terms: dict[int, list[int]] = defaultdict(list)
        for ident, bits in self._terms.items():
            by_terms[bits].append(ident)
        by_weight: dict[float, list[int]] = defaultdict(list)
        for bits in by_terms:
            by_weight[sum(w for n, w in enumerate(weights) if bits >> n & 1)].append(bits)
        for weight in sorted(by_weight, reverse=True):
            equal = [(ident, bits) for bits in by_weight[weight] for ident in by_terms[bits]]
            for ident, bits in sorted(equal, reverse=True):
                yield ident, frozenset(n for n in range(len(weights)) if bits >> n & 1)


class CandidateSearch:
    """Reads the matches of one query from one index."""

    def __init__(
        self,
        tx: Transaction,
        index: TextIndex,
        name: IndexName,
        query: SearchQuery,
        scope: SearchScope,
        ids: IdRange,
    ) -> None:
        self._tx = tx
        self._index = index
        self._name: IndexName = name
        self._query = query
        self._scope = scope
        self._ids = ids
        self._limit = _MAX_POSTINGS if scope.is_indexed else _MAX_POSTINGS_UNSCOPED
        self.postings = self._read_postings()

    def texts(self) -> float:
        """Return how many texts are in scope, estimated where they are many."""
        if self._scope.lineage and self._name == "message":
            return float(sum(hi - lo + 1 for _, lo, hi in self._scope.lineage))
        if not self._scope.terms:
            return float(self._ids.size)
        return self._estimate(self._newest((), "exact", limit=self._limit)).total

    def candidates(self, weights: Sequence[float], *, enough: int) -> CandidateSet:
        """Return the texts to rank; `enough` is how many will be."""
        candidates = CandidateSet()
        if self._query.required:
            self._add_required(candidates, enough)
            return candidates
        generating = self._find_generating_terms()
        for number in generating:
            candidates.add(self.postings[number].ids, number)
        common = [n for n in generating if not self.postings[n].is_complete]
        if common:
            self._add_common(candidates, [n for n in generating if n not in common], common, weights, enough)
        self._add_known(candidates, generating)
        return candidates

    def _read_postings(self) -> list[Postings]:
        """Read the newest matches of each term; of a name as written and by its adjacent parts, or else scattered."""
        terms = self._query.terms
        read = self._read_terms(range(len(terms)), "exact")
        names = [n for n, t in enumerate(terms) if t.is_name and len(read[n]) < self._limit]
        for number, ids in self._read_terms(names, "adjacent").items():
            read[number] = sorted({*read[number], *ids}, reverse=True)[: self._limit]
        read |= self._read_terms((n for n in names if not read[n] and len(terms[n].clauses[0].names) > 1), "scattered")
        return [self._estimate(read[n]) for n in range(len(terms))]

    def _read_terms(self, numbers: Iterable[int], strategy: Strategy) -> dict[int, list[int]]:
        """Return the newest matches of terms, by their number."""
        listed = list(numbers)
        searches = [[self._query.terms[n].clauses] for n in listed]
        return dict(zip(listed, self._read(searches, strategy, limit=self._limit), strict=True))

    def _read(
        self, searches: Sequence[ClauseGroups], strategy: Strategy, *, limit: int, ids: IdRange | None = None
    ) -> list[list[int]]:
        if not searches:
            return []
        return self._index.newest(
            self._tx,
            self._name,
            searches,
            strategy=strategy,
            scopes=self._scope.terms,
            ids=ids or self._ids,
            limit=limit,
        )

    def _newest(self, groups: ClauseGroups, strategy: Strategy, *, limit: int, ids: IdRange | None = None) -> list[int]:
        return self._read([groups], strategy, limit=limit, ids=ids)[0]

    def _estimate(self, ids: Sequence[int]) -> Postings:
        if len(ids) < self._limit:
            return Postings(ids, float(len(ids)), is_complete=True)
        # As dense among the older texts as among the newest.
        share = self._ids.size / max(1, self._ids.highest - ids[-1] + 1)
        return Postings(ids, len(ids) * share, is_complete=False)

    def _find_generating_terms(self) -> list[int]:
        """Return the terms that find texts: parts of a name only if no whole name was found."""
        terms = self._query.terms
        has_name = any(t.is_name and self.postings[n].ids for n, t in enumerate(terms))
        return [n for n, t in enumerate(terms) if not (t.is_part and has_name)]

    def _add_required(self, candidates: CandidateSet, enough: int) -> None:
        numbers = [n for n, t in enumerate(self._query.terms) if t.is_required]
        groups = [self._query.terms[n].clauses for n in numbers]
        ids = self._newest(groups, "adjacent", limit=max(self._limit, enough))
        for number in numbers:
            candidates.add(ids, number)
        self._add_known(candidates, ())

    def _add_common(
        self,
        candidates: CandidateSet,
        rare: Sequence[int],
        common: Sequence[int],
        weights: Sequence[float],
        enough: int,
    ) -> None:
        """Find texts with common words beyond the newest: with a rare word, or with all of the common ones."""
        terms = self._query.terms
        if rare and sum(self.postings[n].total for n in rare) > enough:
            alternatives = [c for n in rare for c in terms[n].clauses]
            searches = [[alternatives, terms[n].clauses] for n in common]
            for number, ids in zip(common, self._read(searches, "exact", limit=self._limit), strict=True):
                candidates.add(ids, number)
        if len(common) < 2 or rare:
            return
        rarest = max(common, key=lambda n: (weights[n], -n))
        walked = int(_MAX_WALKED / max(1.0, self.postings[rarest].total) * self._ids.size)
        newest = IdRange(max(self._ids.lowest, self._ids.highest - walked), self._ids.highest)
        groups = [terms[n].clauses for n in common]
        ids = self._newest(groups, "exact", limit=_MAX_LITERAL, ids=newest)
        for number in common:
            candidates.add(ids, number)

    def _add_known(self, candidates: CandidateSet, generating: Sequence[int]) -> None:
        """Credit candidates with the terms that find no texts of their own."""
        for number, postings in enumerate(self.postings):
            if number not in generating:
                candidates.credit(postings.ids, number)


def term_weights(searches: Sequence[CandidateSearch], query: SearchQuery) -> list[float]:
    """Return the weight of each term by how rare it is among all texts in scope."""
    texts = max(1.0, sum(s.texts() for s in searches))
    return [inverse_frequency(sum(s.postings[n].total for s in searches), texts) for n in range(len(query.terms))]
