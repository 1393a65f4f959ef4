"""What a chat platform's adapter is: one small Protocol, and what the hub lends it.

A person writes → the adapter says who and where, and submits → whichever process runs the turn hands its events to the
adapter of that platform there, which shows them. Taking messages and showing answers are apart, so that an answer is
shown also where the process that took the message has died.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey, ChatMessage, SequencedEvent, Ticket


class GatewayPort(Protocol):
    """The hub, as an adapter sees it."""

    async def submit(self, incoming: ChatMessage, principal: Principal) -> Ticket:
        """Takes a message, durably. The same key again is the same message."""
        ...

    async def answer(self, question_id: str, text: str, principal: Principal) -> None:
        """Answers an approval or a question. Raises NotFound once it is closed, or was never this person's."""
        ...

    async def stop(self, chat: ChatKey, principal: Principal) -> bool:
        """Interrupts the chat's turn; whether there was one."""
        ...


class Adapter(Protocol):
    """One platform. It keeps no state that matters: everything is in the store."""

    platform: str

    async def start(self, hub: GatewayPort) -> None:
        """Begins to take messages; returns once it does. Raises ConfigError for what a person must mend."""
        ...

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        """Shows one turn of one of its chats, to its end. The hub calls it for every turn, also one it took over."""
        ...

    async def stop(self) -> None:
        """Takes no more messages; what is under way is still shown."""
        ...

    async def close(self) -> None:
        """Nothing more will be shown either."""
        ...
