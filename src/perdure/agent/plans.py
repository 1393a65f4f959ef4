"""The plan of a conversation, kept beside it in the store, so that no compaction can lose it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from perdure.store.store import SessionStore


class StoredPlans:
    """What the `todo` tool reads and writes."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def load(self, conversation_id: str) -> Sequence[Any]:
        try:
            kept = json.loads(self._store.conversations.get(conversation_id).todo or "[]")
        except ValueError:
            return []
        return kept if isinstance(kept, list) else []

    def save(self, conversation_id: str, items: Sequence[Any]) -> None:
        self._store.conversations.set_todo(conversation_id, json.dumps(list(items), ensure_ascii=False))
