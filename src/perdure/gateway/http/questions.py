"""What a turn waits for, and what one may type: questions and commands over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from perdure.gateway.http.bodies import AnswerToQuestion, CommandBody, QuestionBody
from perdure.gateway.http.messages import Name, Talker
from perdure.gateway.hub import Hub
from perdure.gateway.lanes.questions import OpenQuestion


def question_router(hub: Hub) -> APIRouter:
    """Answering, and completing."""
    router = APIRouter(prefix="/api", tags=["messages"])

    @router.get("/questions", response_model=list[QuestionBody])
    async def questions(person: Talker) -> Any:
        """What waits for an answer of yours."""
        return [question_dict(q) for q in await hub.open_questions(person)]

    @router.post("/questions/{question_id}", status_code=204)
    async def answer(question_id: Name, body: AnswerToQuestion, person: Talker) -> Response:
        """Answers an approval (once, session, always, no) or a question of the model's."""
        await hub.answer(question_id, body.answer, person)
        return Response(status_code=204)

    @router.get("/commands", response_model=list[CommandBody])
    async def commands(person: Talker) -> Any:
        """Every slash command, to complete while typing."""
        return [{"name": c.name, "usage": c.usage, "summary": c.summary} for c in hub.commands]

    return router


def question_dict(waiting: OpenQuestion) -> dict[str, Any]:
    asked, place = waiting.question, waiting.place
    return {
        "question_id": asked.question_id,
        "kind": asked.kind,
        "text": asked.text,
        "choices": list(asked.choices),
        "reason": asked.reason,
        "covers": asked.covers,
        "dangerous": list(asked.dangerous),
        "platform": place.chat.platform,
        "chat": place.chat.chat,
        "turn_id": place.turn_id,
        "expires_at": waiting.expires_at_ms,
    }
