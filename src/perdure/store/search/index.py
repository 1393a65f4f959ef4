"""The port of a full-text index, and what is put into it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from perdure.store.db.database import Step, Transaction
from perdure.store.search.query import Clause
from perdure.store.search.tokenizer import tokenize

IndexName = Literal["message", "output"]
# How clauses are met: as `exact` wholes, their parts side by side, their names anywhere; `any`: one clause is enough.
Strategy = Literal["exact", "adjacent", "scattered", "any"]


@dataclass(frozen=True, slots=True)
class IndexedText:
    """The tokens of one text; `scope` names what it belongs to, so that a narrow search never walks a wide list."""

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
    """A key may hold anything, so its hash stands for it."""
    return f"u:{hashlib.blake2b(user_key.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


class TextIndex(Protocol):
    """Kept in the same transaction as what it indexes."""

    def addition(self, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> Step:
        """What puts texts into it: a step to be run alone or with others."""
        ...

    def remove(self, tx: Transaction, index: IndexName, texts: Sequence[tuple[int, IndexedText]]) -> None:
        """The texts must be those that were added."""
        ...

    def clear(self, tx: Transaction, index: IndexName) -> None:
        """Takes everything out of it, to be put in anew."""
        ...

    def settle(self, tx: Transaction, index: IndexName, *, most_pages: int | None = None) -> None:
        """Leaves nothing on disk of what was removed, or as little as so much work allows."""
        ...

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
        """Ids of texts that meet all clauses, highest first. Of each group in `scopes` one word must fit."""
        ...
