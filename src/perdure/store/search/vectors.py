"""Search by meaning: vectors of messages, computed in the background and compared with the query's."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.core.errors import StoreError
from perdure.store.db.database import Row, Transaction, Value, to_bytes, to_text
from perdure.store.messages import stored_text
from perdure.store.queries import StoreContext
from perdure.store.search.embedding import (
    VERSION,
    WordVectors,
    import_libraries,
    is_available,
    load_word_vectors,
    pack_vectors,
    split_passages,
    unpack_vectors,
)

if TYPE_CHECKING:
    from perdure.store.search.embedding import Vectors

_BATCH = 256
# In the background: three quarters of the time belong to others.
_PAUSE_SHARE = 3.0
# The newest messages whose vectors are compared with every query; older ones only if they match a word.
_COMPARED = 50_000
_READ_BATCH = 500
# Texts without content, such as tool calls, have no vector.
_MIN_CHARS = 20
_MAX_MISSING = 50
_MAX_MISSING_SHARE = 0.05
_PROGRESS_KEY = f"progress {VERSION}"
# What all texts have in common is subtracted before comparing, less of it while there are few.
_FEW_PASSAGES = 20
_SAMPLED_PASSAGES = 4_000


class VectorIndex:
    """Computes and compares the vectors of one store's messages. Does nothing without the extra `recall`."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closing = threading.Event()
        self._cache = _Cache()

    @property
    def is_available(self) -> bool:
        return is_available()

    def catch_up(self, *, pause_share: float = 0.0) -> int:
        """Make the missing vectors and return how many messages were read.

        After each batch it pauses for `pause_share` times as long as the batch took.
        """
        model = load_word_vectors()
        total = 0
        while model is not None and not self._is_closing.is_set():
            started = time.monotonic()
            count = self._make_batch(model)
            total += count
            if count < _BATCH:
                break
            self._is_closing.wait(pause_share * (time.monotonic() - started))
        return total

    def start(self) -> None:
        """Make missing vectors in a thread, unless one is running; it ends when there are none."""
        with self._lock:
            if self._is_closing.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            # In this thread: others must not meet a half-imported module.
            import_libraries()
            self._thread = threading.Thread(target=self._run, name="store-vectors", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop making vectors; the next search continues."""
        self._is_closing.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def nearest(self, tx: Transaction, query: str, *, limit: int) -> Similarities | None:
        """Compare the newest messages with a query; None without vectors."""
        # Loading takes a moment, so not before there is anything to compare.
        model = load_word_vectors() if self.is_available and _is_nearly_complete(tx) else None
        if model is None:
            return None
        with self._lock:
            self._cache.refresh(tx)
            ids, vectors = self._cache.arrays()
        if not len(ids):
            return None
        comparison = Comparison(model.embed([query])[0], _common_part(vectors))
        return Similarities(tx, model, comparison, ids, vectors, limit=limit)

    def _run(self) -> None:
        # A store that is closed or read-only meanwhile: the next search starts it again.
        with suppress(StoreError):
            self.catch_up(pause_share=_PAUSE_SHARE)

    def _make_batch(self, model: WordVectors) -> int:
        """Make the vectors of the next messages; returns how many messages were read."""

        def read(tx: Transaction) -> list[tuple[int, str]]:
            rows = tx.rows(
                "SELECT id, body, encoding, kind, seq FROM message WHERE id > ? ORDER BY id LIMIT ?",
                (_progress(tx), _BATCH),
            )
            return [(r[0], stored_text(r[1], r[2], r[3], seq=r[4]) if r[3] != "handoff" else "") for r in rows]

        texts = self._context.database.read(read)
        if not texts:
            return 0
        passages = [(ident, p) for ident, text in texts if len(text) >= _MIN_CHARS for p in split_passages(text)]
        vectors = model.embed([p for _, p in passages])
        rows_by_message: dict[int, list[int]] = {}
        for row, (ident, _) in enumerate(passages):
            rows_by_message.setdefault(ident, []).append(row)
        last = texts[-1][0]

        def write(tx: Transaction) -> None:
            if tx.row("SELECT 1 FROM message_vector WHERE id BETWEEN ? AND ? LIMIT 1", (texts[0][0], last)):
                # Those of an older version are replaced.
                record_removal(tx)
            for ident, rows in rows_by_message.items():
                # The message may have been deleted meanwhile.
                tx.run(
                    "INSERT INTO message_vector (id, passages) SELECT id, ? FROM message WHERE id = ?"
                    " ON CONFLICT (id) DO UPDATE SET passages = excluded.passages",
                    (pack_vectors(vectors[rows]), ident),
                )
            _store_progress(tx, last)

        self._context.database.write(write)
        return len(texts)


class Comparison:
    """Compares vectors with a query's by what distinguishes them from the `common` part of all texts."""

    def __init__(self, query: Vectors, common: Vectors) -> None:
        import numpy as np

        distinct = query - common
        self._distinct = distinct / max(1e-6, float(np.linalg.norm(distinct)))
        self._common = common

    def cosines(self, vectors: Vectors) -> Vectors:
        import numpy as np

        # Without a copy of all vectors: the length of v - c follows from v · c, because v has length 1.
        products = vectors @ np.stack([self._distinct, self._common], axis=1)
        square = float(self._common @ self._common)
        lengths = np.sqrt(np.maximum(1e-6, 1.0 + square - 2.0 * products[:, 1]))
        result: Vectors = (products[:, 0] - float(self._common @ self._distinct)) / lengths
        return result


def _common_part(vectors: Vectors) -> Vectors:
    sample = vectors[:: max(1, len(vectors) // _SAMPLED_PASSAGES)]
    result: Vectors = sample.sum(axis=0) / (len(sample) + _FEW_PASSAGES)
    return result


class Similarities:
    """The similarity of messages to one query, from 0 (as most messages) to 1 (the nearest)."""

    def __init__(
        self,
        tx: Transaction,
        model: WordVectors,
        comparison: Comparison,
        ids: Vectors,
        vectors: Vectors,
        *,
        limit: int,
    ) -> None:
        import numpy as np

        self.model = model
        self._tx = tx
        self._comparison = comparison
        cosines = comparison.cosines(vectors)
        # The passages of a message are next to each other; the nearest one counts.
        starts = np.flatnonzero(np.diff(ids, prepend=-1))
        messages, cosines = ids[starts], np.maximum.reduceat(cosines, starts)
        self._middle = float(cosines.mean())
        best = np.argsort(-cosines, kind="stable")[:limit]
        self.nearest = [int(i) for i in messages[best]]
        self._cosines = dict(zip(self.nearest, map(float, cosines[best]), strict=True))
        self._top = max(self._cosines.values(), default=1.0)

    def of(self, ids: Sequence[int]) -> Mapping[int, float]:
        """Return the similarity of messages, reading the vectors of those that were not compared yet."""
        missing = [i for i in ids if i not in self._cosines]
        for start in range(0, len(missing), _READ_BATCH):
            batch: list[Value] = list(missing[start : start + _READ_BATCH])
            placeholders = ", ".join("?" * len(batch))
            for ident, data in self._tx.rows(
                f"SELECT id, passages FROM message_vector WHERE id IN ({placeholders})", batch
            ):
                vectors = unpack_vectors(to_bytes(data))
                if len(vectors):
                    self._cosines[ident] = float(self._comparison.cosines(vectors).max())
        top = max([self._top, *(self._cosines[i] for i in ids if i in self._cosines)])
        span = max(1e-6, top - self._middle)
        return {i: max(0.0, (self._cosines[i] - self._middle) / span) for i in ids if i in self._cosines}

    def of_passages(self, passages: Sequence[str]) -> list[float]:
        """Return the cosine of each passage with the query."""
        return [round(float(c), 3) for c in self._comparison.cosines(self.model.embed(passages))]


class _Cache:
    """The newest vectors in memory; read again when some were removed."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._parts: list[Vectors] = []
        self._last = 0
        self._removals = -1

    def refresh(self, tx: Transaction) -> None:
        removals = _removals(tx)
        if removals != self._removals:
            self._ids, self._parts, self._last, self._removals = [], [], 0, removals
            row = tx.row("SELECT MAX(id) FROM message_vector")
            self._last = max(0, (row[0] or 0) - _COMPARED) if row else 0
        while True:
            rows = tx.rows(
                "SELECT id, passages FROM message_vector WHERE id > ? ORDER BY id LIMIT ?", (self._last, 5_000)
            )
            for ident, data in rows:
                vectors = unpack_vectors(to_bytes(data))
                self._ids += [ident] * len(vectors)
                self._parts.append(vectors)
                self._last = ident
            if len(rows) < 5_000:
                break

    def arrays(self) -> tuple[Vectors, Vectors]:
        import numpy as np

        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)[-_COMPARED:]]
            self._ids = self._ids[-_COMPARED:]
        vectors = self._parts[0] if self._parts else np.zeros((0, 1), dtype=np.float32)
        return np.array(self._ids), vectors


def record_removal(tx: Transaction) -> None:
    """Make every process forget the vectors it has in memory; called after some were deleted."""
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES ('vectors', 'removals', ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (json.dumps(_removals(tx) + 1),),
    )


def _removals(tx: Transaction) -> int:
    return _stored_count(tx.row("SELECT value FROM state WHERE scope = 'vectors' AND key = 'removals'"))


def _is_nearly_complete(tx: Transaction) -> bool:
    """Return whether all but the newest messages have vectors: the others would be at a disadvantage."""
    progress = _progress(tx)
    row = tx.row("SELECT (SELECT MIN(id) FROM message), (SELECT MAX(id) FROM message)")
    if not progress or row is None or row[0] is None:
        return False
    return bool(row[1] - progress <= max(_MAX_MISSING, _MAX_MISSING_SHARE * (row[1] - row[0])))


def _progress(tx: Transaction) -> int:
    return _stored_count(tx.row("SELECT value FROM state WHERE scope = 'vectors' AND key = ?", (_PROGRESS_KEY,)))


def _stored_count(row: Row | None) -> int:
    """Parse a stored number; a damaged one is 0, as if nothing had been done yet."""
    try:
        return int(json.loads(to_text(row[0]))) if row else 0
    except (ValueError, TypeError):
        return 0


def _store_progress(tx: Transaction, last: int) -> None:
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES ('vectors', ?, ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (_PROGRESS_KEY, json.dumps(last)),
    )
