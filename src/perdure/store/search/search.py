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
from perdure.store.columns import to_int, to_text, to_time_ms
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
    """Restriction of a search: `terms` are groups of index terms, the rest becomes SQL conditions."""

    terms: tuple[tuple[str, ...], ...] = ()
    role: str | None = None
    lineage: Lineage = ()
    session_id: str | None = None
    user_key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def includes_outputs(self) -> bool:
        """Whether outputs match: they have the role `tool`."""
        return self.role in (None, "tool")

    def conditions(self, table: str) -> tuple[str, list[Value]]:
        """Return SQL to append to a WHERE clause on messages (`m`) or outputs (`o`), and its values."""
        parts: list[str] = []
        values: list[Value] = []
        if self.lineage:
            parts.append(f"({' OR '.join(_segment_condition(table) for _ in self.lineage)})")
            for conversation_id, lo, hi in self.lineage:
                values += [conversation_id] if table == "o" else [conversation_id, lo, hi]
        for condition, value in (
            (f"{table}.session = ?", self.session_id),
            # An expression, so that the planner does not start with the index on user_key instead of the matches.
            ("c.user_key || '' = ?", self.user_key),
            (f"{table}.created_at >= ?", self.since_ms),
            (f"{table}.created_at < ?", self.until_ms),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        return "".join(f" AND {p}" for p in parts), values


def build_scope(tx: Transaction, scope: Mapping[str, Any], visibility: Visibility) -> SearchScope:
    """Build the scope of a search. Raises StoreError for an unknown key, NotFound for an unknown id."""
    if unknown := sorted(set(scope) - set(KEYS)):
        raise StoreError(f"unknown search scope {', '.join(unknown)}; available: {', '.join(KEYS)}")
    options = {k: v for k, v in scope.items() if v is not None}
    words: list[Sequence[str]] = []
    lineage: Lineage = ()
    session_id = options.get("session")
    if session_id is not None:
        session = get_session(tx, str(session_id))
        words.append([conversation_scope(session.conversation_id)])
    if "conversation" in options:
        lineage = lineage_of(tx, get_conversation(tx, conversation_id_of(tx, str(options["conversation"]))))
        words.append([conversation_scope(owner) for owner, _, _ in lineage])
    if "role" in options:
        words.append([role_scope(str(options["role"]))])
    user_key = None if visibility.stored_key is None else text(visibility.stored_key)
    if user_key:  # the owner's rows have no index term; the SQL condition applies
        words.append([user_scope(user_key)])
    return SearchScope(
        tuple(tuple(w) for w in words), options.get("role"), lineage, session_id, user_key,
        options.get("since_ms"), options.get("until_ms"),
    )  # fmt: skip


def _segment_condition(table: str) -> str:
    return "o.conversation = ?" if table == "o" else "(m.conversation = ? AND m.seq BETWEEN ? AND ?)"


_SNIPPET_CHARS = 200
# Only the beginning of a text is ranked.
_RANKED_CHARS = 65_536


def score(text: str, clauses: Sequence[Clause]) -> float:
    """Score a match by how many clauses match, how often, and whether literally; higher is better."""
    folded = fold_text(text[:_RANKED_CHARS])
    total = 0.0
    for clause in clauses:
        literal = folded.count(clause.needle) if clause.needle else 0
        if literal:
            total += 2.0 + math.log1p(literal)
        else:
            total += sum(1.0 for p in clause.parts if p in folded) / len(clause.parts)
    # Prefer short texts.
    return total - 0.1 * math.log1p(len(folded) / 400)


def clause_matches(text: str, clause: Clause) -> bool:
    """Return whether a folded text contains a clause, for scanning without an index."""
    return bool(clause.needle and clause.needle in text) or (clause.is_word and clause.parts[0] in text)


def snippet(text: str, clauses: Sequence[Clause]) -> str:
    """Return one line around the first match with each match between «…»."""
    return highlight(*excerpt(text, clauses))


def highlight(line: str, matches: Sequence[tuple[int, int]]) -> str:
    """Put «…» around each match of a line."""
    for start, end in reversed(matches):
        line = f"{line[:start]}«{line[start:end]}»{line[end:]}"
    return line


def excerpt(text: str, clauses: Sequence[Clause]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return one line around the first match, and the [start, end) positions of all matches in it."""
    pattern = _pattern(clauses)
    source = text
    match = pattern.search(source)
    if match is None:
        # The query may differ from the text in accents or full-width forms.
        source = strip_accents(text)
        match = pattern.search(source)
    start = max(0, (match.start() if match else 0) - _SNIPPET_CHARS // 3)
    end = min(len(source), start + _SNIPPET_CHARS)
    line = ("…" if start else "") + " ".join(source[start:end].split()) + ("…" if end < len(source) else "")
    return line, tuple(m.span() for m in pattern.finditer(line)) if match else ()


def _pattern(clauses: Sequence[Clause]) -> re.Pattern[str]:
    """Build a regex of whole needles, then single words; without any it never matches."""
    needles = [_needle_pattern(c.needle) for c in clauses if c.needle]
    words = [re.escape(p) for c in clauses for p in sorted(set(c.parts), key=len, reverse=True)]
    alternatives = needles + [w for w in words if w not in needles]
    return re.compile("|".join(alternatives) or r"(?!)", re.IGNORECASE)


def _needle_pattern(needle: str) -> str:
    r"""Escape a needle so that any whitespace and either slash match."""
    return r"\s+".join(re.escape(w).replace("/", r"[/\\]") for w in needle.split())


# At least this many of the newest matches are ranked.
_RANKED = 60
# Limit of matches examined for a scope the index cannot narrow (a time, a session).
_MAX_EXAMINED = 6_000
_MAX_RESULTS = 200
# Outputs too large for the index are scanned, newest first, up to this many characters in total.
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


class _Match(NamedTuple):
    """A ranked match; its snippet is built only if it is among the results."""

    score: float
    text: str
    hit: SearchHit


class SearchIndex:
    """SearchIndex port: search all messages and outputs, and open addresses."""

    def __init__(self, context: StoreContext, outputs: OutputStore, addresses: Addresses) -> None:
        self._context = context
        self._outputs = outputs
        self._addresses = addresses

    def search(
        self, query: str, *, visibility: Visibility, scope: Mapping[str, Any] | None = None, limit: int = 20
    ) -> Sequence[SearchHit]:
        """Search, newest first, ranked among the newest; every query text is valid.

        `scope` may restrict `conversation`, `session`, `role`, `since_ms` and `until_ms`. Raises StoreError for others.
        """
        clauses = parse(query)
        if not clauses:
            return []
        limit = max(1, min(limit, _MAX_RESULTS))

        def work(tx: Transaction) -> list[_Match]:
            where = build_scope(tx, scope or {}, visibility)
            return self._search_messages(tx, clauses, where, limit) + self._search_outputs(tx, clauses, where, limit)

        matches = self._context.database.read(work)
        best = sorted(matches, key=lambda f: (-f.score, -f.hit.created_at_ms))[:limit]
        return [_to_hit(f, clauses) for f in best]

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Return a page of the text at an address. Raises NotFound."""
        return self._addresses.open(address, conversation_id=conversation_id, offset=offset, limit=limit)

    def _search_messages(
        self, tx: Transaction, clauses: Sequence[Clause], scope: SearchScope, limit: int
    ) -> list[_Match]:
        rows = self._candidates(tx, "message", clauses, scope, max(_RANKED, limit))
        out = []
        for _, conversation, session, tip, seq, kind, created_at, title, body, encoding in rows:
            text = searchable_text(decode_or_placeholder(body, encoding, kind, seq=seq))
            hit = SearchHit(
                to_text(conversation), to_text(session), to_text(tip), f"m:{seq}", to_text(kind),
                to_time_ms(created_at), "", to_text(title),
            )  # fmt: skip
            out.append(_Match(score(text, clauses), text, hit))
        return out

    def _search_outputs(
        self, tx: Transaction, clauses: Sequence[Clause], scope: SearchScope, limit: int
    ) -> list[_Match]:
        if not scope.includes_outputs:
            return []
        out = []
        for row in self._candidates(tx, "output", clauses, scope, limit):
            out += self._output_matches(row, clauses, self._text(row))
        budget = _SCANNED_CHARS
        for row in _too_large(tx, scope):
            budget -= to_int(row[-1])
            if budget < 0:
                break
            out += self._output_matches(row, clauses, self._passage(row, clauses))
        return out

    def _output_matches(self, row: Row, clauses: Sequence[Clause], text: str | None) -> list[_Match]:
        _, conversation, session, tip, ident, kind, created_at, title, *_ = row
        if text is None:
            return []
        hit = SearchHit(
            to_text(conversation), to_text(session), to_text(tip), f"output:{ident}", kind, to_time_ms(created_at), "",
            to_text(title),
        )  # fmt: skip
        return [_Match(score(text, clauses), text, hit)]

    def _text(self, row: Row) -> str | None:
        """Return the text of an output; None when its file is missing."""
        with suppress(StoreError):
            return "".join(self._outputs.blobs.chunks(to_text(row[-2])))
        return None

    def _candidates(
        self, tx: Transaction, index: IndexName, clauses: Sequence[Clause], scope: SearchScope, limit: int
    ) -> list[Row]:
        """Return matching rows: by the literal query, then by its parts, and failing both by any of its words."""
        rows: dict[int, Row] = {}
        for strategy in _strategies(clauses):
            if strategy in ("scattered", "any") and rows:
                break
            for row in self._walk(tx, index, clauses, scope, strategy):
                rows.setdefault(row[0], row)
                if len(rows) >= limit:
                    return list(rows.values())
        return list(rows.values())

    def _walk(
        self, tx: Transaction, index: IndexName, clauses: Sequence[Clause], scope: SearchScope, strategy: Strategy
    ) -> Iterator[Row]:
        """Yield matches in scope, newest first, in growing batches; most searches need only the first."""
        below, step, examined = None, _RANKED, 0
        while examined < _MAX_EXAMINED:
            ids = self._context.index.newest(
                tx, index, clauses, strategy=strategy, scopes=scope.terms, below=below, limit=step
            )
            rows = _rows(tx, index, ids, scope) if ids else {}
            yield from (rows[i] for i in ids if i in rows)
            if len(ids) < step:
                return
            below, step, examined = ids[-1], step * 4, examined + step

    def _passage(self, row: Row, clauses: Sequence[Clause]) -> str | None:
        """Return the first part of a large output that contains a clause, if the output contains all clauses."""
        missing, passage, tail = list(clauses), None, ""
        with suppress(StoreError):
            for chunk in self._outputs.blobs.chunks(to_text(row[-2])):
                # Chunks overlap, so that a match across their boundary is not missed.
                part = tail + chunk
                folded = fold_text(part)
                matching = [c for c in missing if clause_matches(folded, c)]
                passage = part if matching and passage is None else passage
                missing = [c for c in missing if c not in matching]
                if not missing:
                    return passage
                tail = chunk[-_OVERLAP_CHARS:]
        return None


def _to_hit(match: _Match, clauses: Sequence[Clause]) -> SearchHit:
    line, matches = excerpt(match.text, clauses)
    return replace(match.hit, snippet=highlight(line, matches), excerpt=line, marks=matches)


def _strategies(clauses: Sequence[Clause]) -> Iterator[Strategy]:
    if any(c.exact is not None for c in clauses):
        yield "exact"
    yield "adjacent"
    # A quoted phrase must match literally.
    if any(c.is_quoted for c in clauses):
        return
    if any(len(c.names) > 1 for c in clauses):
        yield "scattered"
    if len(clauses) > 1:
        yield "any"


def _rows(tx: Transaction, index: IndexName, ids: Sequence[int], scope: SearchScope) -> dict[int, Row]:
    select, key = (_MESSAGE, "m.id") if index == "message" else (_OUTPUT, "o.number")
    where, values = scope.conditions("m" if index == "message" else "o")
    placeholders = ", ".join("?" * len(ids))
    more: list[Value] = [*ids, *values]
    return {row[0]: row for row in tx.rows(f"{select} WHERE {key} IN ({placeholders}){where}", more)}


def _too_large(tx: Transaction, scope: SearchScope) -> list[Row]:
    where, values = scope.conditions("o")
    return tx.rows(f"{_OUTPUT} WHERE o.is_indexed = 0{where} ORDER BY o.number DESC LIMIT 200", values)
