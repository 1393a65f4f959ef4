"""Small JSON values that survive a restart: cool-downs, strikes, pauses, learned limits."""

from __future__ import annotations

import json
from typing import Any

from perdure.store.backing import StoreContext
from perdure.store.codec import load_json


class State:
    """A KeyValue within one scope: `engine:<conversation>`, `cooldown`, `limits` …"""

    def __init__(self, backing: StoreContext, scope: str) -> None:
        self._backing = backing
        self._scope = scope

    def get(self, key: str) -> Any:
        sql = "SELECT value FROM state WHERE scope = ? AND key = ?"
        row = self._backing.database.row(sql, (self._scope, key))
        return None if row is None else load_json(row[0], f"{self._scope} {key}")

    def set(self, key: str, value: Any) -> None:
        if value is None:
            self._backing.database.write(
                lambda tx: tx.run("DELETE FROM state WHERE scope = ? AND key = ?", (self._scope, key))
            )
            return
        # ASCII only: JSON's own escapes carry every character both databases would refuse.
        text = json.dumps(value, ensure_ascii=True, sort_keys=True)
        self._backing.database.write(
            lambda tx: tx.run(
                "INSERT INTO state (scope, key, value) VALUES (?, ?, ?)"
                " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
                (self._scope, key, text),
            )
        )

    def items(self) -> dict[str, Any]:
        """Everything in this scope, by key."""
        rows = self._backing.database.read(
            lambda tx: tx.rows("SELECT key, value FROM state WHERE scope = ? ORDER BY key", (self._scope,))
        )
        return {key: load_json(value, f"{self._scope} {key}") for key, value in rows}
