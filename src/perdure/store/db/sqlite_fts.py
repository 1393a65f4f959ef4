"""Full-text index in SQLite: contentless FTS5 tables of pre-tokenized text."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.store.db.database import Step, Transaction, Value
from perdure.store.search.index import ClauseGroups, IdRange, IndexedText, IndexName, Strategy
from perdure.store.search.query import Clause


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
        groups: ClauseGroups,
        *,
        strategy: Strategy,
        scopes: Sequence[Sequence[str]],
        ids: IdRange,
        limit: int,
    ) -> list[int]:
        values: list[Value] = [_expression(groups, strategy, scopes), ids.lowest, ids.highest, limit]
        where = f"{index}_index MATCH ? AND rowid BETWEEN ? AND ?"
        rows = tx.rows(f"SELECT rowid FROM {index}_index WHERE {where} ORDER BY rowid DESC LIMIT ?", values)
        return [rowid for (rowid,) in rows]


def _expression(groups: ClauseGroups, strategy: Strategy, scopes: Sequence[Sequence[str]]) -> str:
    matches = [" OR ".join(f"({m})" for m in _alternatives(group, strategy)) for group in groups]
    scoped = [f"scope : ({' OR '.join(map(_quoted, group))})" for group in scopes]
    return " AND ".join(f"({m})" for m in [*matches, *scoped])


def _alternatives(group: Sequence[Clause], strategy: Strategy) -> list[str]:
    """Return the expressions of a group; the forms of one word share a column filter, which is faster."""
    words = [c.parts[0] for c in group if c.is_word and c.exact is None and not c.is_prefix]
    if len(words) < 2:
        return [_clause(c, strategy) for c in group]
    others = [_clause(c, strategy) for c in group if not c.is_word or c.exact is not None or c.is_prefix]
    return [f"{{parts wholes}} : ({' OR '.join(map(_quoted, words))})", *others]


def _clause(clause: Clause, strategy: Strategy) -> str:
    if strategy == "exact" and clause.exact is not None:
        return f"wholes : {_quoted(clause.exact)}"
    if strategy == "scattered" and clause.names:
        return " AND ".join(_either_column(n, is_prefix=clause.is_prefix) for n in clause.names)
    if clause.is_word:
        return _either_column(clause.parts[0], is_prefix=clause.is_prefix)
    adjacent = f"parts : {_quoted(' '.join(clause.parts))}{' *' if clause.is_prefix else ''}"
    # Pairs are rarer than single characters, so they narrow the expensive phrase match.
    return " AND ".join([*(f"wholes : {_quoted(w)}" for w in clause.wholes), adjacent])


def _either_column(word: str, *, is_prefix: bool) -> str:
    return f"{{parts wholes}} : {_quoted(word)}{' *' if is_prefix else ''}"


def _quoted(tokens: str) -> str:
    return '"' + tokens.replace('"', '""') + '"'
