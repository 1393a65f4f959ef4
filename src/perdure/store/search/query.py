"""Parse search queries into clauses. Any text is a valid query; parsing never raises.

plain words        all of them                     "in quotes"       these words adjacent
prefix*            words with this prefix          src/gate.py       as written, or its parts adjacent
模型               these characters adjacent
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.store.search.tokenizer import fold_text, is_cjk, strip_accents, tokenize

_PIECE = re.compile(r'"([^"]*)"|(\S+)')
_MAX_CLAUSES = 16
_MAX_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Clause:
    """A condition on a text: adjacent `parts` and all `wholes`, or, tried first, `exact` alone.

    `names` are the components of a path, for paths typed in another case than stored.
    """

    needle: str
    parts: tuple[str, ...] = ()
    wholes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    is_prefix: bool = False
    is_quoted: bool = False
    exact: str | None = None

    @property
    def is_word(self) -> bool:
        """Whether the clause is a single word, which matches a part or a whole."""
        return len(self.parts) == 1 and not self.wholes


def parse(text: str) -> tuple[Clause, ...]:
    """Return the clauses of a query, in order; none for a text without letters and digits."""
    clauses: dict[Clause, None] = {}
    for quoted, bare in _PIECE.findall(text):
        for clause in _phrase(quoted) if quoted else _word(bare):
            clauses[clause] = None
    return tuple(clauses)[:_MAX_CLAUSES]


def _phrase(text: str) -> list[Clause]:
    tokens = tokenize(text)
    pairs = tuple(w for w in tokens.wholes if is_cjk(w[0]))
    if not tokens.parts:
        return []
    return [Clause(fold_text(text), tokens.parts[:_MAX_TOKENS], pairs[:_MAX_TOKENS], is_quoted=True)]


def _word(text: str) -> list[Clause]:
    is_prefix = text.endswith("*") and len(text) > 1
    tokens = tokenize(text)
    if not tokens.parts:
        return []
    needle = fold_text(text.strip("*\"'`.,;!?()[]{}<>"))
    pairs = tuple(w for w in tokens.wholes if is_cjk(w[0]))
    if len(tokens.parts) == 1:
        return [Clause(needle, tokens.parts, names=tokens.parts, is_prefix=is_prefix)]
    whole = next((w for w in tokens.wholes if not is_cjk(w[0])), None)
    exact = whole if whole is not None and not pairs and not is_prefix else None
    return [
        Clause(
            needle, tokens.parts[:_MAX_TOKENS], pairs[:_MAX_TOKENS], () if pairs else _names(text), is_prefix,
            exact=exact,
        )
    ]  # fmt: skip


def _names(text: str) -> tuple[str, ...]:
    """Return the indexed tokens of a path's components."""
    names: list[str] = []
    for piece in strip_accents(text).split("/"):
        tokens = tokenize(piece)
        names += tokens.wholes[:1] or tokens.parts
    return tuple(names[:_MAX_TOKENS])
