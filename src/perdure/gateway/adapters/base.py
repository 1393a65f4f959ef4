"""The protocol of a chat platform's adapter, and the part of the hub it uses.

An adapter maps an inbound message to a principal and a chat, and submits it. The process that runs the turn passes the
events to its own adapter for that platform. Receiving and delivering are separate, so that an answer is delivered even
if the process that received the message has died.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey, ChatMessage, SequencedEvent, Ticket


class GatewayPort(Protocol):
    """The hub, as an adapter sees it."""

    async def submit(self, incoming: ChatMessage, principal: Principal) -> Ticket:
        """Store and queue a message; the same idempotency key again is the same message."""
        ...

    async def answer(self, question_id: str, text: str, principal: Principal) -> None:
        """Answer an approval request or a question. Raises NotFound if it is closed or belongs to another user."""
        ...

    async def stop(self, chat: ChatKey, principal: Principal) -> bool:
        """Interrupt the chat's turn; return whether there was one."""
        ...


class Adapter(Protocol):
    """One chat platform. It holds no persistent state: everything is in the store."""

    platform: str

    async def start(self, hub: GatewayPort) -> None:
        """Start receiving messages. Raises ConfigError for an invalid configuration."""
        ...

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        """Deliver the events of one turn to its chat; called for every turn, including those taken over."""
        ...

    async def stop(self) -> None:
        """Stop receiving messages; running deliveries continue."""
        ...

    async def close(self) -> None:
        """Release all resources; no deliveries follow."""
        ...
