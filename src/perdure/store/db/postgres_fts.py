"""The text index in PostgreSQL: a GIN index over the same tokens, asked window by window from the newest on.

GIN knows which texts hold a word but not their order. So every text also bears the number of its window, and a query
asks for the newest windows first: a common word is found there, and a rare one has few places everywhere. Planner
statistics, good or stale, decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perdure.store.db.database import Step, Transaction, Value
from perdure.store.search.index import IndexedText, IndexName, Strategy
from perdure.store.search.query import Clause

# Texts whose numbers share their higher bits share a window.
_WINDOW_BITS = 12
# How many windows are asked before all of them, and how many more there must be for that to pay.
_STAGES = (2, 32)
_WORTHWHILE = 4
# A tsvector holds a megabyte of different words; a text with more is scanned.
_MOST_WORD_BYTES = 1_000_000
_SCANNED = "#scanned"


class TsvectorIndex:
    """Two tables, `message_index` and `output_index`, whose rows hold the tokens and whose index makes words of them.

    A mark before every word that is not of the text keeps what somebody wrote apart from what we noted.
    """

    def addition(self, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> Step:
        # Whoever builds the index anew may come across a text that its writer has just put in.
        sql = (
            f"INSERT INTO {index}_index (id, parts, wholes, scope, is_scanned) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO NOTHING"
        )
        return sql, [_row(number, t) for number, t in texts]

    def remove(self, tx: Transaction, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> None:
        tx.run_many(f"DELETE FROM {index}_index WHERE id = ?", [(number,) for number, _ in texts])

    def clear(self, tx: Transaction, index: IndexName) -> None:
        tx.run(f"TRUNCATE {index}_index")

    def settle(self, tx: Transaction, index: IndexName, *, most_pages: int | None = None) -> None:
        """Nothing within the transaction: `Database.erase` sweeps when it is over."""

    def newest(
        self,
        tx: Transaction,
        index: IndexName,
        clauses: Sequence[Clause],
        *,
        strategy: Strategy,
        scopes: Sequence[Sequence[str]],
        below: int | None,
        limit: int,
    ) -> list[int]:
        words, (check, checked) = _words(clauses, strategy, scopes), _check(clauses, strategy)
        # Ordered outside: within, the planner may walk all rows from the newest on instead of asking the index.
        sql = (
            "WITH found AS MATERIALIZED ("
            f"SELECT id FROM {index}_index WHERE search_words(parts, wholes, scope, is_scanned) @@ CAST(? AS tsquery)"
            f" AND id <= ? AND {check}) SELECT id FROM found ORDER BY id DESC LIMIT ?"
        )
        highest = below - 1 if below is not None else _highest(tx, index)
        found: list[int] = []
        if highest < 1:
            return found
        for windows in _windows(highest):
            values: list[Value] = [" & ".join([words, *windows]), highest, *checked, limit]
            found = [number for (number,) in tx.rows(sql, values)]
            if len(found) >= limit:
                break
        return found


def _row(number: int, text: IndexedText) -> tuple[int, str, str, str, bool]:
    parts, wholes = (f"{tokens} " if tokens else "" for tokens in (text.parts, text.wholes))
    is_scanned = _is_too_much(parts, wholes)
    marks = [*(f"#{w}" for w in text.scope.split()), f"#{number >> _WINDOW_BITS}", *([_SCANNED] if is_scanned else [])]
    return number, parts, wholes, " ".join(marks), is_scanned


def _is_too_much(parts: str, wholes: str) -> bool:
    if len(parts) + len(wholes) < _MOST_WORD_BYTES // 4:
        return False
    return sum(len(w.encode()) for w in {*parts.split(), *wholes.split()}) > _MOST_WORD_BYTES


def _highest(tx: Transaction, index: IndexName) -> int:
    row = tx.row(f"SELECT MAX(id) FROM {index}_index")
    return (row[0] or 0) if row else 0


def _windows(highest: int) -> Iterator[list[str]]:
    """Growing sets of the newest windows, as conditions; the last is none at all."""
    newest = highest >> _WINDOW_BITS
    for count in _STAGES:
        if count * _WORTHWHILE <= newest:
            yield [f"({' | '.join(_quoted(f'#{newest - n}') for n in range(count))})"]
    yield []


def _words(clauses: Sequence[Clause], strategy: Strategy, scopes: Iterable[Sequence[str]]) -> str:
    """A tsquery that every text to be found meets, and few others."""
    met = (" | " if strategy == "any" else " & ").join(f"({_clause_words(c, strategy)})" for c in clauses)
    narrowed = [f"({' | '.join(_quoted(f'#{w}') for w in group)})" for group in scopes]
    return " & ".join([f"(({met}) | {_quoted(_SCANNED)})", *narrowed])


def _clause_words(clause: Clause, strategy: Strategy) -> str:
    words, is_prefix = _demanded(clause, strategy)
    ending = ":*" if is_prefix else ""
    if strategy == "scattered" and clause.names:
        return " & ".join(_quoted(w) + ending for w in words)
    return " & ".join([*(_quoted(w) for w in words[:-1]), _quoted(words[-1]) + ending])


def _demanded(clause: Clause, strategy: Strategy) -> tuple[Sequence[str], bool]:
    """The words a text must hold for a clause, and whether the last may go on."""
    if strategy == "exact" and clause.exact is not None:
        return (clause.exact,), False
    if strategy == "scattered" and clause.names:
        return clause.names, clause.is_prefix
    return (*clause.wholes, *clause.parts), clause.is_prefix


def _check(clauses: Sequence[Clause], strategy: Strategy) -> tuple[str, list[Value]]:
    """SQL for what words alone cannot tell: that parts stand side by side, and everything of a scanned text."""
    checks = [_clause_check(c, strategy) for c in clauses]
    sql = (" OR " if strategy == "any" else " AND ").join(f"({c})" for c, _ in checks)
    values = [v for _, given in checks for v in given]
    is_told_by_words = not any(_is_side_by_side(c, strategy) for c in clauses)
    return f"({'NOT is_scanned OR ' if is_told_by_words else ''}({sql}))", values


def _is_side_by_side(clause: Clause, strategy: Strategy) -> bool:
    if (strategy == "exact" and clause.exact is not None) or (strategy == "scattered" and clause.names):
        return False
    return len(clause.parts) > 1


def _clause_check(clause: Clause, strategy: Strategy) -> tuple[str, list[Value]]:
    if _is_side_by_side(clause, strategy):
        return "strpos(' ' || parts, ?) > 0", [f" {' '.join(clause.parts)}{'' if clause.is_prefix else ' '}"]
    words, is_prefix = _demanded(clause, strategy)
    needles = [f" {w}{'' if is_prefix else ' '}" for w in words]
    return " AND ".join("strpos(' ' || parts || wholes, ?) > 0" for _ in needles), list(needles)


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
