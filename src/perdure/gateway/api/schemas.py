"""Request and response schemas of the gateway's API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from perdure.core.messages import Message
from perdure.gateway.workers.hub import MAX_PARTS

Name = Annotated[str, Field(min_length=1, max_length=200)]
Platform = Literal["http", "page"]
# The inbox calls a queued message `waiting`.
TurnState = Annotated[
    Literal["running", "queued", "done"], BeforeValidator(lambda state: "queued" if state == "waiting" else state)
]
MessageText = Annotated[
    str, BeforeValidator(lambda content: "" if content is None else Message.from_dict(content).text)
]
_FROM_RECORD = ConfigDict(from_attributes=True)


class MessageBody(BaseModel):
    """A message: text, or parts in OpenAI's shape (`{"type": "text", …}`, `{"type": "image_url", …}`)."""

    model_config = ConfigDict(extra="forbid")

    content: (
        Annotated[str, Field(min_length=1)] | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_PARTS)]
    )
    chat: Name = Field(default="main", description="The chat; each chat has its own conversation.")
    conversation_id: Name | None = Field(
        default=None, description="One of your conversations, by the id of it or of a session."
    )
    key: Annotated[str, Field(max_length=200)] = Field(
        default="", description="Idempotency key, also accepted as the header Idempotency-Key."
    )
    platform: Platform = "http"
    pasted: Annotated[list[str], Field(max_length=200)] = Field(
        default=[], description="Pieces of the text that were pasted, not typed: they never become instructions."
    )


class TicketBody(BaseModel):
    """The receipt of a stored message; `state` is done if it was answered already."""

    turn_id: str
    conversation_id: str | None
    state: Literal["running", "queued", "done"]


class InboxBody(BaseModel):
    """A message of the inbox, read from its `QueuedMessage`."""

    model_config = _FROM_RECORD

    turn_id: str = Field(validation_alias="id")
    conversation_id: str | None
    state: TurnState


class AnswerBody(InboxBody):
    """The result of a message; all fields are null until it is answered."""

    kind: Literal["turn", "command"] | None = Field(None, validation_alias=AliasPath("result", "kind"))
    outcome: Literal["completed", "interrupted", "budget", "failed"] | None = Field(
        None, validation_alias=AliasPath("result", "outcome")
    )
    text: str | None = Field(None, validation_alias=AliasPath("result", "text"))
    error: str | None = Field(None, validation_alias=AliasPath("result", "error"))
    level: Literal["info", "warning", "error"] | None = Field(None, validation_alias=AliasPath("result", "level"))
    usage: dict[str, Any] | None = Field(None, validation_alias=AliasPath("result", "usage"))


class UnansweredBody(InboxBody):
    """A running or queued message, with its chat, and its text, which the timeline does not have yet."""

    platform: str = Field(validation_alias=AliasPath("inbound", "platform"))
    chat: str = Field(validation_alias=AliasPath("inbound", "chat"))
    text: MessageText = Field(validation_alias=AliasPath("inbound", "content"))


class StoppedBody(BaseModel):
    was_running: bool


class QuestionBody(BaseModel):
    """A question a turn waits for. Approvals take one of `choices` and are denied after a timeout."""

    model_config = _FROM_RECORD

    question_id: str = Field(validation_alias=AliasPath("question", "question_id"))
    kind: Literal["approval", "clarify"] = Field(validation_alias=AliasPath("question", "kind"))
    text: str = Field(validation_alias=AliasPath("question", "text"))
    choices: list[str] = Field(validation_alias=AliasPath("question", "choices"))
    reason: str = Field(validation_alias=AliasPath("question", "reason"))
    covers: str = Field(
        validation_alias=AliasPath("question", "covers"),
        description="For an approval: which later calls `session` and `always` would allow too.",
    )
    dangerous: list[str] = Field(
        validation_alias=AliasPath("question", "dangerous"),
        description="For an approval: the dangerous parts of the text.",
    )
    platform: str = Field(validation_alias=AliasPath("origin", "chat", "platform"))
    chat: str = Field(validation_alias=AliasPath("origin", "chat", "chat"))
    turn_id: str = Field(validation_alias=AliasPath("origin", "turn_id"))
    expires_at: int = Field(validation_alias="expires_at_ms")


class AnswerToQuestion(BaseModel):
    model_config = ConfigDict(extra="forbid")

    answer: Annotated[str, Field(min_length=1, max_length=10_000)]


class ApprovalBody(BaseModel):
    """A kind of action that is no longer asked about."""

    kind: str
    explanation: str


class CommandBody(BaseModel):
    model_config = _FROM_RECORD

    name: str
    usage: str
    summary: str


class OutputPage(BaseModel):
    """A page of a long text; `next_offset` is null at its end."""

    id: str
    text: str
    offset: int
    total_chars: int
    next_offset: int | None


class HealthBody(BaseModel):
    status: Literal["ok", "draining", "unavailable"]
