"""Copies of files from before a tool changed them, so that a turn can be undone together with its changes.

A change is an event of the user's conversation; a delegated agent's changes belong to the turn that delegated. Copies
are blobs named by their content; they are deleted with the conversation, and when it is scrubbed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from perdure.core.errors import NotFound, StoreError
from perdure.core.ports import FileChange
from perdure.store.conversations import Conversations
from perdure.store.ledger import Ledger
from perdure.store.outputs import BlobStore
from perdure.store.records import Conversation, StoredEvent

KIND = "file_change"
# Larger files are recorded without a copy.
MAX_COPY_BYTES = 8_000_000


def content_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class FileCheckpoints:
    """Records file changes as events, and copies of the files as blobs (the Checkpoints port)."""

    def __init__(self, conversations: Conversations, ledger: Ledger, blobs: BlobStore) -> None:
        self._conversations = conversations
        self._ledger = ledger
        self._blobs = blobs

    def save(self, conversation_id: str, path: str, *, before: bytes | None, after: bytes | None) -> None:
        """Record a change; the copy is durable before the event that refers to it."""
        owner = self._owner(conversation_id)
        payload = {
            "path": path,
            "seq": owner.last_seq,
            "existed": before is not None,
            "copy": self._copy(owner.id, before) if before is not None else None,
            "after": content_digest(after) if after is not None else None,
        }
        self._ledger.record_event(StoredEvent(owner.tip_session_id, KIND, payload))

    def changes(self, any_id: str, *, from_seq: int = 0) -> Sequence[FileChange]:
        """Return the file changes at or after message `from_seq`, oldest first; for a branch, its parent's as well."""
        owner = self._conversations.get(any_id)
        own = [_change_of(owner.id, event) for event in self._ledger.events(owner.id, kind=KIND, limit=2**31)]
        inherited: Sequence[FileChange] = ()
        if owner.kind == "branch" and owner.parent_id is not None and from_seq <= owner.fork_seq:
            inherited = [c for c in self.changes(owner.parent_id) if c.seq <= owner.fork_seq]
        return [c for c in (*inherited, *own) if c.seq >= from_seq]

    def content(self, change: FileChange) -> bytes:
        """Return the file as it was before the change. Raises NotFound if there is no copy, or no longer one."""
        if change.copy is None:
            raise NotFound(f"there is no copy of {change.path}: it was too large")
        try:
            return base64.b64decode("".join(self._blobs.chunks(change.copy)))
        except (StoreError, ValueError):
            raise NotFound(f"the copy of {change.path} is no longer there") from None

    def discard(self, conversation_id: str) -> None:
        """Delete all copies of a conversation's files, when it is scrubbed or deleted."""
        copies = {c.copy for c in self.changes(conversation_id) if c.copy and c.conversation_id == conversation_id}
        for copy in copies:
            self._blobs.remove(conversation_id, copy)

    def _owner(self, conversation_id: str) -> Conversation:
        """Return the user's own conversation: for a delegated one, that of its parent."""
        conversation = self._conversations.get(conversation_id)
        while conversation.kind == "delegate" and conversation.parent_id is not None:
            conversation = self._conversations.get(conversation.parent_id)
        return conversation

    def _copy(self, conversation_id: str, content: bytes) -> str | None:
        if len(content) > MAX_COPY_BYTES:
            return None
        writer = self._blobs.begin(conversation_id, f"f_{content_digest(content)[:40]}_{conversation_id}")
        try:
            # Blobs are texts; a file may be anything.
            writer.write(base64.b64encode(content))
            return writer.finish()
        except BaseException:
            writer.discard()
            raise


def _change_of(conversation_id: str, event: StoredEvent) -> FileChange:
    payload = event.payload
    copy, after = payload.get("copy"), payload.get("after")
    return FileChange(
        conversation_id=conversation_id,
        path=str(payload.get("path", "")),
        seq=int(payload.get("seq", 0)),
        existed=bool(payload.get("existed")),
        copy=str(copy) if copy is not None else None,
        after_digest=str(after) if after is not None else None,
    )
