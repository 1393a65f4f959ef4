"""Messages, tickets and events: the values that endpoints, hub and workers exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perdure.core.events import Event
from perdure.core.turn_options import NO_OPTIONS, TurnOptions
from perdure.core.visibility import EVERYONE, AnyUser, Visibility
from perdure.store.inbox import ConversationPosition


@dataclass(frozen=True, slots=True)
class ChatKey:
    """The address of a chat: `platform` (http, page for the web UI, openai, telegram …), user and chat name."""

    platform: str
    user: AnyUser
    chat: str = "main"


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """An inbound message, for `conversation_id` if set, else for the chat's current conversation."""

    chat: ChatKey
    # Text, or a user message in OpenAI's shape (parts with images); None: the turn continues with results in `options`.
    content: str | Mapping[str, Any] | None
    conversation_id: str | None = None
    # Idempotency key: the same key again returns the first ticket.
    key: str = ""
    options: TurnOptions = NO_OPTIONS
    # Reject the message unless it will be the next one after this position.
    only_at: ConversationPosition | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """The receipt for a submitted message, which is stored durably by then."""

    turn_id: str
    # None until the first message of a new conversation has started its turn.
    conversation_id: str | None
    state: Literal["running", "queued", "done"]
    # The channel on which this process will publish its events; None if another process may.
    chat: ChatKey | None = None


@dataclass(frozen=True, slots=True)
class CommandAnswered:
    """Published with the response of a slash command, as the last event of its message."""

    text: str
    level: Literal["info", "warning", "error"] = "info"
    # The chat's current conversation: /new, /resume and /branch change it.
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """Published when a turn waits for the user: to approve a dangerous command, or to answer the model."""

    question_id: str
    kind: Literal["approval", "clarify"]
    text: str
    choices: tuple[str, ...] = ()
    reason: str = ""
    # Of an approval: which later calls "session" and "always" would allow too, and the dangerous parts of the text.
    covers: str = ""
    dangerous: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """Published when a question was answered, stopped or timed out."""

    question_id: str
    # "" without one: an approval is then denied.
    answer: str
    # Whether the turn was stopped while the question was open. False without an answer: it timed out.
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class ContextUsageChanged:
    """Published after a turn with the context usage, by the counter that also triggers compaction."""

    model: str
    tokens: int
    window: int | None
    threshold: int | None
    composition: Mapping[str, int]
    cost_usd: float | None = None


GatewayEvent = Event | CommandAnswered | QuestionAsked | QuestionClosed | ContextUsageChanged


@dataclass(frozen=True, slots=True)
class SequencedEvent:
    """An event with its sequence number in the channel, which clients send as `Last-Event-ID`."""

    number: int
    turn_id: str
    event: GatewayEvent
    # Only readers whose visibility covers this one receive the event; EVERYONE: administrators alone.
    required_visibility: Visibility = EVERYONE
