"""Full-text index in PostgreSQL: a GIN index over the shared tokens, queried window by window from the newest.

GIN knows which texts contain a word but not their order. So every text is also tagged with the number of its window,
and a query asks for the newest windows first: a common word matches there, and a rare one has few matches anywhere. The
query plan does not depend on planner statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.store.db.database import Step, Transaction, Value
from perdure.store.search.index import ClauseGroups, IdRange, IndexedText, IndexName, Strategy
from perdure.store.search.query import Clause

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
        groups: ClauseGroups,
        *,
        strategy: Strategy,
        scopes: Sequence[Sequence[str]],
        ids: IdRange,
        limit: int,
    ) -> list[int]:
        words, (check, check_values) = _words(groups, strategy, scopes), _check(groups, strategy)
        # Sorted and bounded outside the CTE, so that the planner uses the GIN index instead of walking rows by id.
        sql = (
            "WITH matches AS MATERIALIZED ("
            f"SELECT id FROM {index}_index WHERE search_words(parts, wholes, scope, is_scanned) @@ CAST(? AS tsquery)"
            f" AND {check}) SELECT id FROM matches WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?"
        )
        count: int | None = _FIRST_WINDOWS if _window_count(ids) >= _FIRST_WINDOWS * _WORTHWHILE else None
        while True:
            windows = _newest_windows(ids, count)
            values: list[Value] = [" & ".join([words, *windows]), *check_values, ids.lowest, ids.highest, limit]
            matches = [number for (number,) in tx.rows(sql, values)]
            if count is None or len(matches) >= limit:
                return matches
            count = _next_count(ids, count, share=len(matches) / limit)


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
    return [] if count is None else [f"({' | '.join(_quoted(f'#{newest - n}') for n in range(count))})"]


def _next_count(ids: IdRange, count: int, *, share: float) -> int | None:
    """Return how many windows should have enough matches, as dense as so far; None for all."""
    wanted = int(count / share * _MARGIN) + 1 if share else _MAX_WINDOWS + 1
    return wanted if wanted <= _MAX_WINDOWS and wanted * 2 <= _window_count(ids) else None


def _words(groups: ClauseGroups, strategy: Strategy, scopes: Iterable[Sequence[str]]) -> str:
    """Build a tsquery that all matching texts satisfy, and few others; `_check` removes those."""
    alternatives = [" | ".join(f"({_clause_words(c, strategy)})" for c in group) for group in groups]
    matching = " & ".join(f"({a})" for a in alternatives)
    scoped = [f"({' | '.join(_quoted(f'#{w}') for w in group)})" for group in scopes]
    return " & ".join([*([f"(({matching}) | {_quoted(_SCANNED)})"] if groups else []), *scoped])


def _clause_words(clause: Clause, strategy: Strategy) -> str:
    words, is_prefix = _required_words(clause, strategy)
    ending = ":*" if is_prefix else ""
    if strategy == "scattered" and clause.names:
        return " & ".join(_quoted(w) + ending for w in words)
    return " & ".join([*(_quoted(w) for w in words[:-1]), _quoted(words[-1]) + ending])


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


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
