"""Full-text index: the port, the entries stored in it, and its implementations in SQLite and PostgreSQL.

SQLite has contentless FTS5 tables of pre-tokenized text. PostgreSQL has a GIN index over the same tokens, queried
window by window from the newest: GIN knows which texts contain a word but not their order. So every text is also tagged
with the number of its window, and a query asks for the newest windows first: a common word matches there, and a rare
one has few matches anywhere. The query plan does not depend on planner statistics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from perdure.store.db.database import Step, Transaction, Value
from perdure.store.search.query import Clause
from perdure.store.search.tokenizer import tokenize

IndexName = Literal["message", "output"]
# How clauses match: as `exact` wholes, with adjacent parts, or by names anywhere.
Strategy = Literal["exact", "adjacent", "scattered"]
# Groups of clauses: a text matches if it has at least one clause of each group.
ClauseGroups = Sequence[Sequence[Clause]]


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids a search is restricted to, both ends included."""

    lowest: int
    highest: int

    @property
    def size(self) -> int:
        return max(0, self.highest - self.lowest + 1)


@dataclass(frozen=True, slots=True)
class IndexedText:
    """The tokens of a text; `scope` holds its conversation, role and user, so that the index narrows a search."""

    parts: str
    wholes: str
    scope: str


def index_text(text: str, scope: Iterable[str]) -> IndexedText:
    tokens = tokenize(text)
    return IndexedText(" ".join(tokens.parts), " ".join(tokens.wholes), " ".join(scope))


def conversation_scope(conversation_id: str) -> str:
    return f"c:{conversation_id}"


def role_scope(kind: str) -> str:
    return f"r:{kind}"


def user_scope(user_key: str) -> str:
    """Return the scope term of a user: a hash, because a key may contain any character."""
    return f"u:{hashlib.blake2b(user_key.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


class TextIndex(Protocol):
    """Full-text index of messages and outputs (port), updated in the transaction that writes the indexed rows."""

    def insert_step(self, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> Step:
        """Return the step that adds texts, to be run alone or with others."""
        ...

    def remove(self, tx: Transaction, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> None:
        """Remove texts; they must equal the texts that were added."""
        ...

    def clear(self, tx: Transaction, index: IndexName) -> None:
        """Remove all texts."""
        ...

    def purge_removed(self, tx: Transaction, index: IndexName, *, max_pages: int | None = None) -> None:
        """Erase removed texts from disk; `max_pages` limits the work."""
        ...

    def newest(
        self,
        tx: Transaction,
        index: IndexName,
        searches: Sequence[ClauseGroups],
        *,
        strategy: Strategy,
        scopes: Sequence[Sequence[str]],
        ids: IdRange,
        limit: int,
    ) -> list[list[int]]:
        """Return for each search the ids of matching texts, highest first, at most `limit`.

        One term of each group in `scopes` must match.
        """
        ...


class FtsIndex:
    """TextIndex over the virtual tables `message_index` and `output_index`, sorted by rowid, newest first."""

    def insert_step(self, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> Step:
        sql = f"INSERT INTO {index}_index (rowid, parts, wholes, scope) VALUES (?, ?, ?, ?)"
        return sql, [(number, t.parts, t.wholes, t.scope) for number, t in texts]

    def remove(self, tx: Transaction, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> None:
        tx.run_many(
            f"INSERT INTO {index}_index ({index}_index, rowid, parts, wholes, scope) VALUES ('delete', ?, ?, ?, ?)",
            [(number, t.parts, t.wholes, t.scope) for number, t in texts],
        )

    def clear(self, tx: Transaction, index: IndexName) -> None:
        tx.run(f"INSERT INTO {index}_index ({index}_index) VALUES ('delete-all')")

    def purge_removed(self, tx: Transaction, index: IndexName, *, max_pages: int | None = None) -> None:
        # Words of removed texts stay in older segments until they are merged.
        if max_pages is None:
            tx.run(f"INSERT INTO {index}_index ({index}_index) VALUES ('optimize')")
        else:
            tx.run(f"INSERT INTO {index}_index ({index}_index, rank) VALUES ('merge', ?)", (-max_pages,))

    def newest(
        self,
        tx: Transaction,
        index: IndexName,
        searches: Sequence[ClauseGroups],
        *,
        strategy: Strategy,
        scopes: Sequence[Sequence[str]],
        ids: IdRange,
        limit: int,
    ) -> list[list[int]]:
        where = f"{index}_index MATCH ? AND rowid BETWEEN ? AND ?"
        sql = f"SELECT rowid FROM {index}_index WHERE {where} ORDER BY rowid DESC LIMIT ?"
        expressions = [_expression(groups, strategy, scopes) for groups in searches]
        return [[rowid for (rowid,) in tx.rows(sql, (e, ids.lowest, ids.highest, limit))] for e in expressions]


def _expression(groups: ClauseGroups, strategy: Strategy, scopes: Sequence[Sequence[str]]) -> str:
    matches = [" OR ".join(f"({m})" for m in _alternatives(group, strategy)) for group in groups]
    scoped = [f"scope : ({' OR '.join(map(_quote_phrase, group))})" for group in scopes]
    return " AND ".join(f"({m})" for m in [*matches, *scoped])


def _alternatives(group: Sequence[Clause], strategy: Strategy) -> list[str]:
    """Return the expressions of a group; the forms of one word share a column filter, which is faster."""
    words = [c.parts[0] for c in group if c.is_word and c.exact is None and not c.is_prefix]
    if len(words) < 2:
        return [_clause(c, strategy) for c in group]
    others = [_clause(c, strategy) for c in group if not c.is_word or c.exact is not None or c.is_prefix]
    return [f"{{parts wholes}} : ({' OR '.join(map(_quote_phrase, words))})", *others]


def _clause(clause: Clause, strategy: Strategy) -> str:
    if strategy == "exact" and clause.exact is not None:
        return f"wholes : {_quote_phrase(clause.exact)}"
    if strategy == "scattered" and clause.names:
        return " AND ".join(_either_column(n, is_prefix=clause.is_prefix) for n in clause.names)
    if clause.is_word:
        return _either_column(clause.parts[0], is_prefix=clause.is_prefix)
    adjacent = f"parts : {_quote_phrase(' '.join(clause.parts))}{' *' if clause.is_prefix else ''}"
    # Pairs are rarer than single characters, so they narrow the expensive phrase match.
    return " AND ".join([*(f"wholes : {_quote_phrase(w)}" for w in clause.wholes), adjacent])


def _either_column(word: str, *, is_prefix: bool) -> str:
    return f"{{parts wholes}} : {_quote_phrase(word)}{' *' if is_prefix else ''}"


def _quote_phrase(tokens: str) -> str:
    return '"' + tokens.replace('"', '""') + '"'


# A window is all texts whose ids share the bits above these.
_WINDOW_BITS = 12
# Windows to query first, and how many times more there must be for that to pay off.
_FIRST_WINDOWS = 2
_WORTHWHILE = 4
# Then as many as should have enough matches with this margin, or all if that is more than these.
_MARGIN = 1.3
_MAX_WINDOWS = 128
# A tsvector is limited to 1 MB of distinct words; longer texts are scanned.
_MAX_WORD_BYTES = 1_000_000
_SCANNED = "#scanned"


class TsvectorIndex:
    """TextIndex over the tables `message_index` and `output_index` with GIN indexes on their tokens.

    Scope terms and window numbers are prefixed with `#`, which no token of a text contains.
    """

    def insert_step(self, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> Step:
        # A concurrent reindex may have added the text already.
        sql = (
            f"INSERT INTO {index}_index (id, parts, wholes, scope, is_scanned) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO NOTHING"
        )
        return sql, [_row(number, t) for number, t in texts]

    def remove(self, tx: Transaction, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> None:
        tx.run_many(f"DELETE FROM {index}_index WHERE id = ?", [(number,) for number, _ in texts])

    def clear(self, tx: Transaction, index: IndexName) -> None:
        tx.run(f"TRUNCATE {index}_index")

    def purge_removed(self, tx: Transaction, index: IndexName, *, max_pages: int | None = None) -> None:
        """Do nothing: `Database.erase` vacuums after the transaction."""

    def newest(
        self,
        tx: Transaction,
        index: IndexName,
        searches: Sequence[ClauseGroups],
        *,
        strategy: Strategy,
        scopes: Sequence[Sequence[str]],
        ids: IdRange,
        limit: int,
    ) -> list[list[int]]:
        results: list[list[int]] = [[] for _ in searches]
        words = [_words(groups, strategy, scopes) for groups in searches]
        checks = [_check(groups, strategy) for groups in searches]
        first: int | None = _FIRST_WINDOWS if _window_count(ids) >= _FIRST_WINDOWS * _WORTHWHILE else None
        # The windows each unfinished search reads next.
        counts = dict.fromkeys(range(len(searches)), first)
        while counts:
            selects = [
                _Select(" & ".join([words[n], *_newest_windows(ids, count)]), *checks[n]) for n, count in counts.items()
            ]
            matches = _read_newest(tx, index, selects, ids, limit)
            unfinished: dict[int, int | None] = {}
            for (number, count), ordered in zip(counts.items(), matches, strict=True):
                results[number] = ordered
                if count is not None and len(ordered) < limit:
                    unfinished[number] = _next_count(ids, count, share=len(ordered) / limit)
            counts = unfinished
        return results


class _Select(NamedTuple):
    """One search of a statement: its tsquery, and the SQL condition that its matches are checked by."""

    words: str
    check: str
    check_values: Sequence[Value]


def _read_newest(
    tx: Transaction, index: IndexName, selects: Sequence[_Select], ids: IdRange, limit: int
) -> list[list[int]]:
    """Run several searches in one round trip."""
    named, ordered = [], []
    values: list[Value] = []
    for number, select in enumerate(selects):
        # Sorted and bounded outside the CTE, so that the planner uses the GIN index instead of walking rows by id.
        named.append(
            f"matches{number} AS MATERIALIZED (SELECT id FROM {index}_index"
            f" WHERE search_words(parts, wholes, scope, is_scanned) @@ CAST(? AS tsquery) AND {select.check})"
        )
        values += [select.words, *select.check_values]
        ordered.append(f"(SELECT {number}, id FROM matches{number} WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?)")
    values += [ids.lowest, ids.highest, limit] * len(selects)
    matches: list[list[int]] = [[] for _ in selects]
    for number, ident in tx.rows(f"WITH {', '.join(named)} {' UNION ALL '.join(ordered)}", values):
        matches[number].append(ident)
    return [sorted(m, reverse=True) for m in matches]


def _row(number: int, text: IndexedText) -> tuple[int, str, str, str, bool]:
    parts, wholes = (f"{tokens} " if tokens else "" for tokens in (text.parts, text.wholes))
    is_scanned = _needs_scan(parts, wholes)
    terms = [*(f"#{w}" for w in text.scope.split()), f"#{number >> _WINDOW_BITS}", *([_SCANNED] if is_scanned else [])]
    return number, parts, wholes, " ".join(terms), is_scanned


def _needs_scan(parts: str, wholes: str) -> bool:
    if len(parts) + len(wholes) < _MAX_WORD_BYTES // 4:
        return False
    return sum(len(w.encode()) for w in {*parts.split(), *wholes.split()}) > _MAX_WORD_BYTES


def _window_count(ids: IdRange) -> int:
    return (ids.highest >> _WINDOW_BITS) - (ids.lowest >> _WINDOW_BITS) + 1


def _newest_windows(ids: IdRange, count: int | None) -> list[str]:
    """Return the condition for the newest windows; none for all of them."""
    newest = ids.highest >> _WINDOW_BITS
    return [] if count is None else [f"({' | '.join(_quote_lexeme(f'#{newest - n}') for n in range(count))})"]


def _next_count(ids: IdRange, count: int, *, share: float) -> int | None:
    """Estimate from the density so far how many windows hold enough matches; None for all of them."""
    target = int(count / share * _MARGIN) + 1 if share else _MAX_WINDOWS + 1
    return target if target <= _MAX_WINDOWS and target * 2 <= _window_count(ids) else None


def _words(groups: ClauseGroups, strategy: Strategy, scopes: Iterable[Sequence[str]]) -> str:
    """Build a tsquery that all matching texts satisfy, and few others; `_check` removes those."""
    alternatives = [" | ".join(f"({_clause_words(c, strategy)})" for c in group) for group in groups]
    matching = " & ".join(f"({a})" for a in alternatives)
    scoped = [f"({' | '.join(_quote_lexeme(f'#{w}') for w in group)})" for group in scopes]
    return " & ".join([*([f"(({matching}) | {_quote_lexeme(_SCANNED)})"] if groups else []), *scoped])


def _clause_words(clause: Clause, strategy: Strategy) -> str:
    words, is_prefix = _required_words(clause, strategy)
    ending = ":*" if is_prefix else ""
    if strategy == "scattered" and clause.names:
        return " & ".join(_quote_lexeme(w) + ending for w in words)
    return " & ".join([*(_quote_lexeme(w) for w in words[:-1]), _quote_lexeme(words[-1]) + ending])


def _required_words(clause: Clause, strategy: Strategy) -> tuple[Sequence[str], bool]:
    """Return the words a text must contain for a clause, and whether the last is a prefix."""
    if strategy == "exact" and clause.exact is not None:
        return (clause.exact,), False
    if strategy == "scattered" and clause.names:
        return clause.names, clause.is_prefix
    return (*clause.wholes, *clause.parts), clause.is_prefix


def _check(groups: ClauseGroups, strategy: Strategy) -> tuple[str, list[Value]]:
    """Build the SQL for what a tsquery cannot check: adjacent parts, and all of a scanned text."""
    checks = [[_clause_check(c, strategy) for c in group] for group in groups]
    if not checks:
        return "TRUE", []
    sql = " AND ".join("(" + " OR ".join(f"({c})" for c, _ in group) + ")" for group in checks)
    values = [v for group in checks for _, bindings in group for v in bindings]
    is_decided_by_words = not any(_is_adjacent(c, strategy) for group in groups for c in group)
    return f"({'NOT is_scanned OR ' if is_decided_by_words else ''}({sql}))", values


def _is_adjacent(clause: Clause, strategy: Strategy) -> bool:
    if (strategy == "exact" and clause.exact is not None) or (strategy == "scattered" and clause.names):
        return False
    return len(clause.parts) > 1


def _clause_check(clause: Clause, strategy: Strategy) -> tuple[str, list[Value]]:
    if _is_adjacent(clause, strategy):
        return "strpos(' ' || parts, ?) > 0", [f" {' '.join(clause.parts)}{'' if clause.is_prefix else ' '}"]
    words, is_prefix = _required_words(clause, strategy)
    needles = [f" {w}{'' if is_prefix else ' '}" for w in words]
    return " AND ".join("strpos(' ' || parts || wholes, ?) > 0" for _ in needles), list(needles)


def _quote_lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
