"""What a person typed, as clauses that every index understands. Any text is a query; none raises.

plain words        all of them                     "in quotes"       these words side by side
begin*             words that begin so             src/gate.py       as written, or its parts side by side
模型               these characters side by side
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.store.search.tokenizer import fold_text, is_cjk, strip_accents, tokenize

_PIECE = re.compile(r'"([^"]*)"|(\S+)')
_MOST_CLAUSES = 16
_MOST_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Clause:
    """Must be met by a message: `parts` side by side and all `wholes`, or, tried first, `exact` alone.

    `names` are what it falls apart into at slashes and spaces, for a path typed in another case than it is written.
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
        """One plain word, which may stand as a part or as a whole."""
        return len(self.parts) == 1 and not self.wholes


def parse(text: str) -> tuple[Clause, ...]:
    """The clauses of a query, in order; none for a text without a single letter or digit."""
    clauses: dict[Clause, None] = {}
    for quoted, bare in _PIECE.findall(text):
        for clause in _phrase(quoted) if quoted else _word(bare):
            clauses[clause] = None
    return tuple(clauses)[:_MOST_CLAUSES]


def _phrase(text: str) -> list[Clause]:
    tokens = tokenize(text)
    pairs = tuple(w for w in tokens.wholes if is_cjk(w[0]))
    if not tokens.parts:
        return []
    return [Clause(fold_text(text), tokens.parts[:_MOST_TOKENS], pairs[:_MOST_TOKENS], is_quoted=True)]


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
            needle, tokens.parts[:_MOST_TOKENS], pairs[:_MOST_TOKENS], () if pairs else _names(text), is_prefix,
            exact=exact,
        )
    ]  # fmt: skip


def _names(text: str) -> tuple[str, ...]:
    """A path's folders and file, each as the index knows it."""
    names: list[str] = []
    for piece in strip_accents(text).split("/"):
        tokens = tokenize(piece)
        names += tokens.wholes[:1] or tokens.parts
    return tuple(names[:_MOST_TOKENS])
