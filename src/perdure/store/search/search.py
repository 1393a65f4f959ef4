"""Search messages and outputs: scope, ranking, snippets."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from perdure.core.errors import StoreError
from perdure.core.ports import Page, SearchHit
from perdure.core.visibility import Visibility
from perdure.store.context import StoreContext
from perdure.store.db.database import Row, Transaction, Value, text
from perdure.store.ids import decode_or_placeholder
from perdure.store.outputs import OutputStore
from perdure.store.queries import Lineage, conversation_id_of, get_conversation, get_session, lineage_of
from perdure.store.search.addresses import Addresses
from perdure.store.search.index import IndexName, Strategy, conversation_scope, role_scope, user_scope
from perdure.store.search.query import Clause, parse
from perdure.store.search.tokenizer import fold_text, searchable_text, strip_accents

KEYS = ("conversation", "session", "role", "since_ms", "until_ms")


@dataclass(frozen=True, slots=True)
class SearchScope:
    """`words` are groups for the index, one of each to be met; the rest is checked on the rows."""

    words: tuple[tuple[str, ...], ...] = ()
    role: str | None = None
    lineage: Lineage = ()
    session_id: str | None = None
    user_key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def takes_outputs(self) -> bool:
        """An output is a tool's; a search for what a person or a model said leaves outputs out."""
        return self.role in (None, "tool")

    def conditions(self, table: str) -> tuple[str, list[Value]]:
        """SQL to follow a WHERE, for messages (`m`) or outputs (`o`), and its values."""
        parts: list[str] = []
        values: list[Value] = []
        if self.lineage:
            parts.append(f"({' OR '.join(_place(table) for _ in self.lineage)})")
            for conversation_id, lo, hi in self.lineage:
                values += [conversation_id] if table == "o" else [conversation_id, lo, hi]
        for condition, value in (
            (f"{table}.session = ?", self.session_id),
            # An expression, so that no planner begins with all that the user ever said instead of what was found.
            ("c.user_key || '' = ?", self.user_key),
            (f"{table}.created_at >= ?", self.since_ms),
            (f"{table}.created_at < ?", self.until_ms),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        return "".join(f" AND {p}" for p in parts), values


def build_scope(tx: Transaction, given: Mapping[str, Any], visibility: Visibility) -> SearchScope:
    """The scope a mapping describes. Raises StoreError for a key nobody knows, NotFound for an id."""
    if unknown := sorted(set(given) - set(KEYS)):
        raise StoreError(f"a search cannot be narrowed by {', '.join(unknown)}; there are: {', '.join(KEYS)}")
    wanted = {k: v for k, v in given.items() if v is not None}
    words: list[Sequence[str]] = []
    lineage: Lineage = ()
    session_id = wanted.get("session")
    if session_id is not None:
        session = get_session(tx, str(session_id))
        words.append([conversation_scope(session.conversation_id)])
    if "conversation" in wanted:
        lineage = lineage_of(tx, get_conversation(tx, conversation_id_of(tx, str(wanted["conversation"]))))
        words.append([conversation_scope(owner) for owner, _, _ in lineage])
    if "role" in wanted:
        words.append([role_scope(str(wanted["role"]))])
    user_key = None if visibility.stored_key is None else text(visibility.stored_key)
    if user_key:  # the owner's rows carry no word for the index; their condition is checked on the rows
        words.append([user_scope(user_key)])
    return SearchScope(
        tuple(tuple(w) for w in words), wanted.get("role"), lineage, session_id, user_key,
        wanted.get("since_ms"), wanted.get("until_ms"),
    )  # fmt: skip


def _place(table: str) -> str:
    return "o.conversation = ?" if table == "o" else "(m.conversation = ? AND m.seq BETWEEN ? AND ?)"


_SNIPPET_CHARS = 200
# Texts are ranked and shown by their beginning: counting words in megabytes would not change the order.
_LOOKED_AT_CHARS = 65_536


def score(text: str, clauses: Sequence[Clause]) -> float:
    """Higher is better: every clause that is met, how often, and more where it stands as it was typed."""
    seen = fold_text(text[:_LOOKED_AT_CHARS])
    total = 0.0
    for clause in clauses:
        literal = seen.count(clause.needle) if clause.needle else 0
        if literal:
            total += 2.0 + math.log1p(literal)
        else:
            total += sum(1.0 for p in clause.parts if p in seen) / len(clause.parts)
    # A short text that says it is worth more than a long one that mentions it.
    return total - 0.1 * math.log1p(len(seen) / 400)


def clause_matches(text: str, clause: Clause) -> bool:
    """Whether a text that was already folded holds a clause: what a scan goes by where there is no index."""
    return bool(clause.needle and clause.needle in text) or (clause.is_word and clause.parts[0] in text)


def snippet(text: str, clauses: Sequence[Clause]) -> str:
    """The place around the first hit on one line, each hit between «…»."""
    return highlight(*excerpt(text, clauses))


def highlight(line: str, marks: Sequence[tuple[int, int]]) -> str:
    """A line with each mark between «…»."""
    for start, end in reversed(marks):
        line = f"{line[:start]}«{line[start:end]}»{line[end:]}"
    return line


def excerpt(text: str, clauses: Sequence[Clause]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The place around the first hit on one line, and where in it the hits stand, as [start, end)."""
    pattern = _pattern(clauses)
    shown = text
    found = pattern.search(shown)
    if found is None:
        # An accent or a full-width form stands between what was typed and what is written.
        shown = strip_accents(text)
        found = pattern.search(shown)
    start = max(0, (found.start() if found else 0) - _SNIPPET_CHARS // 3)
    end = min(len(shown), start + _SNIPPET_CHARS)
    line = ("…" if start else "") + " ".join(shown[start:end].split()) + ("…" if end < len(shown) else "")
    return line, tuple(m.span() for m in pattern.finditer(line)) if found else ()


def _pattern(clauses: Sequence[Clause]) -> re.Pattern[str]:
    """Whole needles first, then single words; never empty, so that it never matches nothing."""
    needles = [_spaced(c.needle) for c in clauses if c.needle]
    words = [re.escape(p) for c in clauses for p in sorted(set(c.parts), key=len, reverse=True)]
    either = needles + [w for w in words if w not in needles]
    return re.compile("|".join(either) or r"(?!)", re.IGNORECASE)


def _spaced(needle: str) -> str:
    r"""A needle as a pattern: any space fits, and either slash."""
    return r"\s+".join(re.escape(w).replace("/", r"[/\\]") for w in needle.split())


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

    def __init__(self, context: StoreContext, outputs: OutputStore, addresses: Addresses) -> None:
        self._context = context
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
            where = build_scope(tx, scope or {}, visibility)
            return self._messages(tx, clauses, where, limit) + self._kept_outputs(tx, clauses, where, limit)

        found = self._context.database.read(work)
        best = sorted(found, key=lambda f: (-f.score, -f.hit.created_at_ms))[:limit]
        return [_shown(f, clauses) for f in best]

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """What an address stands for, paged. Raises NotFound."""
        return self._addresses.open(address, conversation_id=conversation_id, offset=offset, limit=limit)

    def _messages(self, tx: Transaction, clauses: Sequence[Clause], scope: SearchScope, limit: int) -> list[_Found]:
        rows = self._candidates(tx, "message", clauses, scope, max(_RANKED, limit))
        out = []
        for _, conversation, session, tip, seq, kind, created_at, title, body, encoding in rows:
            text = searchable_text(decode_or_placeholder(body, encoding, kind, seq=seq))
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
            return "".join(self._outputs.blobs.chunks(row[-2]))
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
            ids = self._context.index.newest(
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
            for chunk in self._outputs.blobs.chunks(row[-2]):
                # The last words of one chunk go with the next, so that nothing is missed between them.
                stretch = tail + chunk
                seen = fold_text(stretch)
                met = [c for c in missing if clause_matches(seen, c)]
                passage = stretch if met and passage is None else passage
                missing = [c for c in missing if c not in met]
                if not missing:
                    return passage
                tail = chunk[-_OVERLAP_CHARS:]
        return None


def _shown(found: _Found, clauses: Sequence[Clause]) -> SearchHit:
    line, marks = excerpt(found.text, clauses)
    return replace(found.hit, snippet=highlight(line, marks), excerpt=line, marks=marks)


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
