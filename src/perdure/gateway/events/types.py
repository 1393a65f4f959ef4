"""What comes in and what goes out, as values: the words every door and the hub share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perdure.core.errors import PerdureError
from perdure.core.events import Event


class KeyReused(PerdureError):
    """An idempotency key came again with another message than the one it was first sent with."""


class Draining(PerdureError):
    """This process is stopping and takes nothing more; send it again in a moment."""


@dataclass(frozen=True, slots=True)
class ChatKey:
    """Where somebody speaks: `platform` (http, page, openai, telegram …), who, and which of their chats."""

    platform: str
    user_key: str
    chat: str = "main"


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message from outside. With `conversation_id` it goes to that one, else to the chat's own."""

    chat: ChatKey
    # Text, or a user message in OpenAI's shape (parts with images).
    content: str | Mapping[str, Any]
    conversation_id: str | None = None
    # The same key twice is the same message: it is taken once, and answered with the first ticket.
    key: str = ""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A message was taken: durably, before this is handed out."""

    turn_id: str
    # None until the first message of a new conversation has begun its turn.
    conversation_id: str | None
    state: Literal["running", "queued", "done"]
    # Where this process will tell its events; None where it may be told elsewhere.
    chat: ChatKey | None = None


@dataclass(frozen=True, slots=True)
class CommandAnswered:
    """A slash command's answer, as an event of its chat."""

    text: str
    level: Literal["info", "warning", "error"] = "info"
    # The conversation the chat is in now: /new, /resume and /branch change it.
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The turn waits for a person: a dangerous command to approve, or a question of the model's."""

    question_id: str
    kind: Literal["approval", "clarify"]
    text: str
    choices: tuple[str, ...] = ()
    reason: str = ""
    # Of an approval: which later calls "session" and "always" would allow too, and the dangerous pieces of the text.
    covers: str = ""
    dangerous: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    question_id: str
    # "" where nobody answered in time: an approval is then denied.
    answer: str


@dataclass(frozen=True, slots=True)
class ContextUsageChanged:
    """The context meter after something changed: the same counter the gate reads."""

    model: str
    tokens: int
    window: int | None
    threshold: int | None
    composition: Mapping[str, int]
    cost_usd: float | None = None


GatewayEvent = Event | CommandAnswered | QuestionAsked | QuestionClosed | ContextUsageChanged


@dataclass(frozen=True, slots=True)
class SequencedEvent:
    """An event with its place in its chat's stream: what `Last-Event-ID` names. `turn_id` says whose it is."""

    number: int
    turn_id: str
    event: GatewayEvent
