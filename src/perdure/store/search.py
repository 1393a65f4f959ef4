"""SearchIndex: the newest messages that fit, ranked among themselves, each with a snippet and its conversation's tip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from perdure.core.errors import StoreError
from perdure.core.ports import Page, SearchHit
from perdure.core.visibility import Visibility
from perdure.store.addresses import Addresses
from perdure.store.backing import StoreContext
from perdure.store.codec import decode_or_placeholder
from perdure.store.database import Row, Transaction, Value
from perdure.store.outputs import OutputStore
from perdure.store.query import Clause, parse
from perdure.store.ranking import excerpt, is_met, marked, score
from perdure.store.scope import SearchScope, scope_of
from perdure.store.text_index import IndexName, Strategy
from perdure.store.tokenizer import folded, searchable

# How many of the newest matches are ranked against each other, at least.
_RANKED = 60
# A scope that the index cannot narrow (a time, a session) looks at no more matches than this.
_MOST_LOOKED_AT = 6_000
_MOST_RESULTS = 200
# Outputs too large for the index are read through, newest first, up to this many characters in all.
_SCANNED_CHARS = 16_000_000
_OVERLAP_CHARS = 256

_MESSAGE = (
    "SELECT m.id, m.conversation, m.session, c.tip, m.seq, m.kind, m.created_at, c.title, m.body, m.encoding"
    " FROM message m JOIN conversation c ON c.id = m.conversation"
)
_OUTPUT = (
    "SELECT o.number, o.conversation, o.session, c.tip, o.id, 'tool', o.created_at, c.title, o.place, o.chars"
    " FROM output o JOIN conversation c ON c.id = o.conversation"
)


class _Found(NamedTuple):
    """A match before it is shown: snippets are only made of those that are."""

    score: float
    text: str
    hit: SearchHit


class SearchIndex:
    """The SearchIndex port: finds words in everything ever said, and opens addresses."""

    def __init__(self, backing: StoreContext, outputs: OutputStore, addresses: Addresses) -> None:
        self._backing = backing
        self._outputs = outputs
        self._addresses = addresses

    def search(
        self, query: str, *, visibility: Visibility, scope: Mapping[str, Any] | None = None, limit: int = 20
    ) -> Sequence[SearchHit]:
        """Newest first, ranked among the newest. Never raises for any query text.

        `scope` narrows by `conversation`, `session`, `role`, `since_ms` and `until_ms`.
        """
        clauses = parse(query)
        if not clauses:
            return []
        limit = max(1, min(limit, _MOST_RESULTS))

        def work(tx: Transaction) -> list[_Found]:
            where = scope_of(tx, scope or {}, visibility)
            return self._messages(tx, clauses, where, limit) + self._kept_outputs(tx, clauses, where, limit)

        found = self._backing.database.read(work)
        best = sorted(found, key=lambda f: (-f.score, -f.hit.created_at_ms))[:limit]
        return [_shown(f, clauses) for f in best]

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """What an address stands for, paged. Raises NotFound."""
        return self._addresses.open(address, conversation_id=conversation_id, offset=offset, limit=limit)

    def _messages(self, tx: Transaction, clauses: Sequence[Clause], scope: SearchScope, limit: int) -> list[_Found]:
        rows = self._candidates(tx, "message", clauses, scope, max(_RANKED, limit))
        out = []
        for _, conversation, session, tip, seq, kind, created_at, title, body, encoding in rows:
            text = searchable(decode_or_placeholder(body, encoding, kind, seq=seq))
            hit = SearchHit(conversation, session, tip, f"m:{seq}", kind, created_at, "", title)
            out.append(_Found(score(text, clauses), text, hit))
        return out

    def _kept_outputs(self, tx: Transaction, clauses: Sequence[Clause], scope: SearchScope, limit: int) -> list[_Found]:
        if not scope.takes_outputs:
            return []
        out = []
        for row in self._candidates(tx, "output", clauses, scope, limit):
            out += self._found_in(row, clauses, self._text(row))
        budget = _SCANNED_CHARS
        for row in _too_large(tx, scope):
            budget -= row[-1]
            if budget < 0:
                break
            out += self._found_in(row, clauses, self._passage(row, clauses))
        return out

    def _found_in(self, row: Row, clauses: Sequence[Clause], text: str | None) -> list[_Found]:
        _, conversation, session, tip, ident, kind, created_at, title, *_ = row
        if text is None:
            return []
        hit = SearchHit(conversation, session, tip, f"output:{ident}", kind, created_at, "", title)
        return [_Found(score(text, clauses), text, hit)]

    def _text(self, row: Row) -> str | None:
        """An output the index found; None where its file was taken away behind our back."""
        with suppress(StoreError):
            return "".join(self._outputs.shelf.chunks(row[-2]))
        return None

    def _candidates(
        self, tx: Transaction, index: IndexName, clauses: Sequence[Clause], scope: SearchScope, wanted: int
    ) -> list[Row]:
        """Rows that meet the query: as it was written, then by its parts, then, failing both, by any of its words."""
        rows: dict[int, Row] = {}
        for strategy in _strategies(clauses):
            if strategy in ("scattered", "any") and rows:
                break
            for row in self._walk(tx, index, clauses, scope, strategy):
                rows.setdefault(row[0], row)
                if len(rows) >= wanted:
                    return list(rows.values())
        return list(rows.values())

    def _walk(
        self, tx: Transaction, index: IndexName, clauses: Sequence[Clause], scope: SearchScope, strategy: Strategy
    ) -> Iterator[Row]:
        """Matches within the scope, newest first, in steps that widen: most searches are done after the first."""
        below, step, seen = None, _RANKED, 0
        while seen < _MOST_LOOKED_AT:
            ids = self._backing.index.newest(
                tx, index, clauses, strategy=strategy, scopes=scope.words, below=below, limit=step
            )
            rows = _rows(tx, index, ids, scope) if ids else {}
            yield from (rows[i] for i in ids if i in rows)
            if len(ids) < step:
                return
            below, step, seen = ids[-1], step * 4, seen + step

    def _passage(self, row: Row, clauses: Sequence[Clause]) -> str | None:
        """The first stretch of a large output that holds a clause, if the whole of it holds them all."""
        missing, passage, tail = list(clauses), None, ""
        with suppress(StoreError):
            for chunk in self._outputs.shelf.chunks(row[-2]):
                # The last words of one chunk go with the next, so that nothing is missed between them.
                stretch = tail + chunk
                seen = folded(stretch)
                met = [c for c in missing if is_met(seen, c)]
                passage = stretch if met and passage is None else passage
                missing = [c for c in missing if c not in met]
                if not missing:
                    return passage
                tail = chunk[-_OVERLAP_CHARS:]
        return None


def _shown(found: _Found, clauses: Sequence[Clause]) -> SearchHit:
    line, marks = excerpt(found.text, clauses)
    return replace(found.hit, snippet=marked(line, marks), excerpt=line, marks=marks)


def _strategies(clauses: Sequence[Clause]) -> Iterator[Strategy]:
    if any(c.exact is not None for c in clauses):
        yield "exact"
    yield "adjacent"
    # What stands in quotes was meant as it stands: nothing else is offered for it.
    if any(c.is_quoted for c in clauses):
        return
    if any(len(c.names) > 1 for c in clauses):
        yield "scattered"
    if len(clauses) > 1:
        yield "any"


def _rows(tx: Transaction, index: IndexName, ids: Sequence[int], scope: SearchScope) -> dict[int, Row]:
    select, key = (_MESSAGE, "m.id") if index == "message" else (_OUTPUT, "o.number")
    where, values = scope.conditions("m" if index == "message" else "o")
    marks = ", ".join("?" * len(ids))
    more: list[Value] = [*ids, *values]
    return {row[0]: row for row in tx.rows(f"{select} WHERE {key} IN ({marks}){where}", more)}


def _too_large(tx: Transaction, scope: SearchScope) -> list[Row]:
    where, values = scope.conditions("o")
    return tx.rows(f"{_OUTPUT} WHERE o.is_indexed = 0{where} ORDER BY o.number DESC LIMIT 200", values)
