"""Store the folder and conversation of each editor session, so that an editor can resume it after a restart."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.core.ports import Clock
from perdure.store.listing import ConversationFilter
from perdure.store.records import Conversation
from perdure.store.store import SessionStore

_SCOPE = "acp"
# Sessions that were opened and never used are forgotten after this time.
_UNUSED_MS = 7 * 86_400_000
_PAGE = 50


@dataclass(frozen=True, slots=True)
class StoredSession:
    """An editor session as stored: its id, folder and conversation, which is None before the first message."""

    id: str
    folder: Path
    conversation_id: str | None
    created_at_ms: int
    # The permission mode that was chosen in it; None: as the settings have it.
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class ListedSession:
    """An editor session with its conversation, as listed to the editor."""

    session: StoredSession
    conversation: Conversation


class SessionRecords:
    """Creates, finds and lists the stored editor sessions of this user. Methods block: for worker threads."""

    def __init__(self, store: SessionStore, clock: Clock) -> None:
        self._store = store
        self._state = store.state(_SCOPE)
        self._clock = clock

    def create(self, folder: Path, conversation_id: str | None = None) -> StoredSession:
        """Store a new session, durable on return."""
        session = StoredSession(f"a_{secrets.token_hex(12)}", folder, conversation_id, self._clock.now_ms())
        self._save(session)
        return session

    def get(self, session_id: str, folder: Path) -> StoredSession:
        """Return a session and make `folder` its folder from now on. Raises NotFound.

        The id of any conversation works as well: what began in a terminal can be continued in an editor.
        """
        stored = _parse(session_id, self._state.get(session_id))
        if stored is None:
            conversation = self._store.conversations.get(session_id)
            stored = StoredSession(session_id, folder, conversation.id, conversation.created_at_ms)
        session = replace(stored, folder=folder)
        self._save(session)
        return session

    def bind(self, session_id: str, conversation_id: str | None) -> None:
        """Store which conversation a session continues; durable on return."""
        stored = _parse(session_id, self._state.get(session_id))
        if stored is not None:
            self._save(replace(stored, conversation_id=conversation_id))

    def set_mode(self, session_id: str, mode: str | None) -> None:
        """Store the permission mode of a session; durable on return."""
        stored = _parse(session_id, self._state.get(session_id))
        if stored is not None:
            self._save(replace(stored, mode=mode))

    def page(self, folder: Path | None, cursor: str | None) -> tuple[Sequence[ListedSession], str | None]:
        """Return sessions with messages, the newest first, and the cursor of the next page. Raises StoreError."""
        stored = [_parse(key, value) for key, value in self._state.items().items()]
        sessions = {
            s.conversation_id: s
            for s in stored
            if s is not None and s.conversation_id is not None and (folder is None or s.folder == folder)
        }
        page, following = self._store.listing.page(ConversationFilter(ids=tuple(sessions)), cursor=cursor, limit=_PAGE)
        return [ListedSession(sessions[row.conversation.id], row.conversation) for row in page], following

    def purge_unused(self) -> None:
        """Delete old sessions in which nothing was written."""
        before_ms = self._clock.now_ms() - _UNUSED_MS
        for key, value in self._state.items().items():
            session = _parse(key, value)
            if session is None or (session.conversation_id is None and session.created_at_ms < before_ms):
                self._state.set(key, None)

    def _save(self, session: StoredSession) -> None:
        value = {
            "folder": str(session.folder),
            "conversation": session.conversation_id,
            "created_at": session.created_at_ms,
            "mode": session.mode,
        }
        self._state.set(session.id, value)


def _parse(session_id: str, value: Any) -> StoredSession | None:
    match value:
        case {"folder": str(folder), "conversation": str() | None as conversation, "created_at": int(created_at)}:
            mode = value.get("mode")
            return StoredSession(session_id, Path(folder), conversation, created_at, str(mode) if mode else None)
        case _:
            return None
