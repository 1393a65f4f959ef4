"""Full-text index port and the entries stored in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from perdure.store.db.database import Step, Transaction
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
    """Full-text index, updated in the transaction that writes the indexed rows."""

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
        groups: ClauseGroups,
        *,
        strategy: Strategy,
        scopes: Sequence[Sequence[str]],
        ids: IdRange,
        limit: int,
    ) -> list[int]:
        """Return ids of matching texts, highest first; one term of each group in `scopes` must match."""
        ...
