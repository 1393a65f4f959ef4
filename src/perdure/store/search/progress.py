"""Progress of rebuilding the search index after an upgrade, as stored in the database."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from perdure.store.db.database import Transaction, to_text


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of an index rebuild, as stored in the database."""

    version: int = 1
    message: int = 0
    last_message: int = 0
    output: int = 0
    last_output: int = 0

    @property
    def is_done(self) -> bool:
        return self.message >= self.last_message and self.output >= self.last_output

    @property
    def share(self) -> float:
        """The indexed share of what there was when the rebuild began; 1 without one."""
        total = self.last_message + self.last_output
        return (self.message + self.output) / total if total else 1.0


def load_progress(tx: Transaction, lock: str = "") -> IndexProgress:
    """Read the progress; `lock` is the dialect's suffix for locking the row."""
    row = tx.row(f"SELECT value FROM state WHERE scope = 'index' AND key = 'progress'{lock}")
    try:
        return IndexProgress(**json.loads(to_text(row[0]))) if row else IndexProgress()
    except (ValueError, TypeError):  # a damaged record: rebuild the index
        return IndexProgress()


def store_progress(tx: Transaction, progress: IndexProgress) -> IndexProgress:
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES ('index', 'progress', ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (json.dumps(asdict(progress)),),
    )
    return progress
