"""The API router with health and question endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import JSONResponse

import perdure
from perdure.config.settings import GatewaySettings
from perdure.core.errors import StoreError
from perdure.gateway.api.messages import Name, Talker, chat_router, message_router
from perdure.gateway.api.outputs import output_router
from perdure.gateway.api.schemas import AnswerToQuestion, CommandBody, HealthBody, QuestionBody
from perdure.gateway.api.websocket import socket_router
from perdure.gateway.auth.principal import Authenticator
from perdure.gateway.executor import in_thread
from perdure.gateway.hub import Hub
from perdure.gateway.middleware import protect
from perdure.gateway.observability.base import Watcher
from perdure.gateway.workers.questions import OpenQuestion
from perdure.store.store import SessionStore

# A database that takes longer than this is not there for anybody who waits.
_PATIENCE_S = 2.0


def health_router(hub: Hub) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz", response_model=HealthBody)
    async def alive() -> Any:
        """The process lives."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=HealthBody, responses={503: {"model": HealthBody}})
    async def ready() -> Any:
        """It takes messages: the database answers, and it is not stopping."""
        if hub.is_draining:
            return JSONResponse({"status": "draining"}, 503)
        try:
            await asyncio.wait_for(in_thread(hub.store.state("health").get, "ready"), _PATIENCE_S)
        except (StoreError, TimeoutError):
            return JSONResponse({"status": "unavailable"}, 503)
        return {"status": "ok"}

    return router


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


def create_app(
    hub: Hub,
    people: Authenticator,
    *,
    settings: GatewaySettings,
    store: SessionStore,
    routers: Sequence[APIRouter] = (),
    watchers: Sequence[Watcher] = (),
) -> FastAPI:
    """The gateway's own routes and whatever else is handed in, with every check in front of them."""
    app = FastAPI(title="Perdure gateway", version=perdure.__version__, docs_url=None, redoc_url=None)
    talking = (message_router(hub), chat_router(hub), question_router(hub), socket_router(hub))
    own = (health_router(hub), *talking, output_router(store))
    for router in (*own, *routers):
        app.include_router(router)
    protect(app, people, settings=settings, watchers=watchers)
    return app
