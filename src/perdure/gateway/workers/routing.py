"""Which conversation a chat is in, kept in the store so that every process goes on with the same one."""

from __future__ import annotations

import json

from perdure.gateway.events.types import ChatKey
from perdure.store.inbox import conversation_queue_key
from perdure.store.store import SessionStore

SCOPE = "chats"


class ChatRouting:
    """Chats → conversations. Synchronous, as the store is."""

    def __init__(self, store: SessionStore) -> None:
        self._state = store.state(SCOPE)

    def get(self, chat: ChatKey) -> str | None:
        """The chat's conversation; None where it begins a new one."""
        stored = self._state.get(chat_key(chat))
        return str(stored) if isinstance(stored, str) else None

    def set(self, chat: ChatKey, conversation_id: str | None) -> None:
        self._state.set(chat_key(chat), conversation_id)


def chat_key(chat: ChatKey) -> str:
    """One text for a chat, and never the same for two, whatever characters their names are made of."""
    return json.dumps([chat.platform, chat.user_key, chat.chat])


def queue_key(chat: ChatKey, conversation_id: str | None) -> str:
    """Messages of one lane are run one after the other: those to a conversation named, else those of a chat."""
    return conversation_queue_key(conversation_id) if conversation_id else f"chat:{chat_key(chat)}"
