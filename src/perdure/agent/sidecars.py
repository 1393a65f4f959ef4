"""Recalled passages: kept beside the message they were recalled for, never in the history, search or summaries.

They are sent identically with that message until the next compaction, also after a restart, so that the cached prefix
stays whole. A compaction starts afresh: what mattered is in the handoff.
"""

from __future__ import annotations

from perdure.core.ports import KeyValue

_KEY = "sidecars"


class Sidecars:
    """The passages of one session, by the seq of the message each belongs to."""

    def __init__(self, state: KeyValue, session_id: str) -> None:
        self._state = state
        self._session_id = session_id
        kept = state.get(_KEY) or {}
        is_mine = isinstance(kept, dict) and kept.get("session") == session_id
        self._passages: dict[int, str] = {int(k): v for k, v in kept["passages"].items()} if is_mine else {}

    @property
    def by_seq(self) -> dict[int, str]:
        return dict(self._passages)

    def add(self, seq: int, passage: str) -> None:
        """Persisted when this returns, before anything is sent with it."""
        self._passages[seq] = passage
        self._state.set(_KEY, {"session": self._session_id, "passages": {str(k): v for k, v in self._passages.items()}})
