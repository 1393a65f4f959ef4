"""Map each chat to its current conversation, in the store, so that all processes agree."""

from __future__ import annotations

import json

from perdure.gateway.events.types import ChatKey
from perdure.store.inbox import conversation_queue_key
from perdure.store.store import SessionStore

SCOPE = "chats"


class ChatRouting:
    """Stores the current conversation of each chat; synchronous, like the store."""

    def __init__(self, store: SessionStore) -> None:
        self._state = store.state(SCOPE)

    def get(self, chat: ChatKey) -> str | None:
        """Return the chat's conversation; None if its next message starts a new one."""
        stored = self._state.get(chat_key(chat))
        return str(stored) if isinstance(stored, str) else None

    def set(self, chat: ChatKey, conversation_id: str | None) -> None:
        self._state.set(chat_key(chat), conversation_id)


def chat_key(chat: ChatKey) -> str:
    """Return a unique, unambiguous key for a chat."""
    return json.dumps([chat.platform, chat.user.stored_key, chat.chat])


def queue_key(chat: ChatKey, conversation_id: str | None) -> str:
    """Return the queue of a message: its conversation's if it names one, else its chat's."""
    return conversation_queue_key(conversation_id) if conversation_id else f"chat:{chat_key(chat)}"


def stop_queue_key(chat: ChatKey) -> str:
    """Return the queue of a chat's `/stop` messages, which wait for no others and count toward no limit of theirs."""
    return f"stop:{chat_key(chat)}"
