"""Request and response schemas of the gateway's API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from perdure.gateway.workers.hub import MAX_PARTS

Name = Annotated[str, Field(min_length=1, max_length=200)]
Platform = Literal["http", "page"]


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


class TicketBody(BaseModel):
    """The receipt of a stored message; `state` is done if it was answered already."""

    turn_id: str
    conversation_id: str | None
    state: Literal["running", "queued", "done"]


class AnswerBody(TicketBody):
    """The result of a message; all fields are null until it is answered."""

    kind: Literal["turn", "command"] | None = None
    outcome: Literal["completed", "interrupted", "budget", "failed"] | None = None
    text: str | None = None
    error: str | None = None
    level: Literal["info", "warning", "error"] | None = None
    usage: dict[str, Any] | None = None


class UnansweredBody(TicketBody):
    """A running or queued message, with its chat."""

    platform: str
    chat: str
    text: str


class StoppedBody(BaseModel):
    was_running: bool


class QuestionBody(BaseModel):
    """A question a turn waits for. Approvals take one of `choices` and are denied after a timeout."""

    question_id: str
    kind: Literal["approval", "clarify"]
    text: str
    choices: list[str]
    reason: str
    covers: str = Field(description="For an approval: which later calls `session` and `always` would allow too.")
    dangerous: list[str] = Field(description="For an approval: the dangerous parts of the text.")
    platform: str
    chat: str
    turn_id: str
    expires_at: int


class AnswerToQuestion(BaseModel):
    model_config = ConfigDict(extra="forbid")

    answer: Annotated[str, Field(min_length=1, max_length=10_000)]


class CommandBody(BaseModel):
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
