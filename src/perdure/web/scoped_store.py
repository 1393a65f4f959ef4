"""The store as one principal sees it: conversations of other users are reported as not found."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.core.concurrency import SystemClock
from perdure.core.errors import NotFound
from perdure.core.ports import Clock
from perdure.core.visibility import Visibility
from perdure.models.catalog import Catalog
from perdure.store.records import Conversation
from perdure.store.store import SessionStore


@dataclass(frozen=True, slots=True)
class ScopedStore:
    """A store with the visibility of one principal, which all views of the web UI read through."""

    store: SessionStore
    visibility: Visibility
    clock: Clock = field(default_factory=SystemClock)
    # Prices of models, including those of the settings.
    catalog: Catalog = field(default_factory=Catalog)

    def conversation(self, any_id: str) -> Conversation:
        """Return the conversation of a complete session or conversation id. Raises NotFound, also if it is not visible.

        A prefix of an id is not accepted: a match would reveal conversations of other users.
        """
        if not any_id.startswith(("c_", "s_")):
            raise _nowhere(any_id)
        try:
            conversation = self.store.conversations.get(any_id, visibility=self.visibility)
        except NotFound as error:
            raise _nowhere(any_id) from error
        if any_id not in (conversation.id, conversation.tip_session_id) and not self._is_session_of(
            any_id, conversation
        ):
            raise _nowhere(any_id)
        return conversation

    def _is_session_of(self, any_id: str, conversation: Conversation) -> bool:
        return any(s.id == any_id for s in self.store.conversations.chain(conversation.id))


def _nowhere(any_id: str) -> NotFound:
    return NotFound(f"there is no conversation {any_id[:80]!r}")
