"""The API application: health and question endpoints, and `create_app`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import JSONResponse

import perdure
from perdure.config.settings import GatewaySettings
from perdure.core.errors import NotFound, StoreError
from perdure.gateway.api.messages import ChatPrincipal, Name, chat_router, message_router
from perdure.gateway.api.middleware import install_middleware
from perdure.gateway.api.outputs import output_router
from perdure.gateway.api.schemas import AnswerToQuestion, ApprovalBody, CommandBody, HealthBody, QuestionBody
from perdure.gateway.api.websocket import socket_router
from perdure.gateway.auth.principal import Authenticator
from perdure.gateway.executor import run_blocking
from perdure.gateway.observability.base import Observer
from perdure.gateway.workers.hub import Hub
from perdure.store.store import SessionStore
from perdure.tools.standing_approvals import approved_kinds, explain_kind

# Timeout of the database check in the readiness probe.
_READY_TIMEOUT_S = 2.0


def health_router(hub: Hub) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz", response_model=HealthBody)
    async def get_health() -> Any:
        """Return ok while the process runs."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=HealthBody, responses={503: {"model": HealthBody}})
    async def get_readiness() -> Any:
        """Return ok while the database responds and the gateway is not draining."""
        if hub.is_draining:
            return JSONResponse({"status": "draining"}, 503)
        try:
            await asyncio.wait_for(run_blocking(hub.store.state("health").get, "ready"), _READY_TIMEOUT_S)
        except (StoreError, TimeoutError):
            return JSONResponse({"status": "unavailable"}, 503)
        return {"status": "ok"}

    return router


def question_router(hub: Hub) -> APIRouter:
    """Endpoints for open questions, approvals and command completion."""
    router = APIRouter(prefix="/api", tags=["messages"])

    @router.get("/questions")
    async def questions(principal: ChatPrincipal) -> list[QuestionBody]:
        """List your open questions."""
        return [QuestionBody.model_validate(question) for question in await hub.open_questions(principal)]

    @router.post("/questions/{question_id}", status_code=204)
    async def answer(question_id: Name, body: AnswerToQuestion, principal: ChatPrincipal) -> Response:
        """Answer an approval request (once, session, always, no) or a question of the model."""
        await hub.answer(question_id, body.answer, principal)
        return Response(status_code=204)

    @router.get("/approvals")
    async def approvals(principal: ChatPrincipal) -> list[ApprovalBody]:
        """List the kinds of actions that you allowed permanently."""
        kinds = await run_blocking(approved_kinds, hub.store.state("approvals"), principal.user)
        return [ApprovalBody(kind=kind, explanation=explain_kind(kind)) for kind in kinds]

    @router.delete("/approvals/{kind}", status_code=204)
    async def revoke(kind: Name, principal: ChatPrincipal) -> Response:
        """Ask about this kind of action again, from the next call on."""

        def remove() -> bool:
            state = hub.store.state("approvals")
            before = approved_kinds(state, principal.user)
            state.set(principal.user.stored_key, [k for k in before if k != kind] or None)
            return kind in before

        if not await run_blocking(remove):
            raise NotFound("you have no such approval; GET /api/approvals lists yours")
        return Response(status_code=204)

    @router.get("/commands")
    async def commands(principal: ChatPrincipal) -> list[CommandBody]:
        """List the slash commands, for completion."""
        return [CommandBody.model_validate(command) for command in hub.commands]

    return router


def create_app(
    hub: Hub,
    authenticator: Authenticator,
    *,
    settings: GatewaySettings,
    store: SessionStore,
    routers: Sequence[APIRouter] = (),
    observers: Sequence[Observer] = (),
) -> FastAPI:
    """Create the app with the gateway's routes, additional routers, and all middleware."""
    app = FastAPI(title="Perdure gateway", version=perdure.__version__, docs_url=None, redoc_url=None)
    message_routers = (message_router(hub), chat_router(hub), question_router(hub), socket_router(hub))
    own = (health_router(hub), *message_routers, output_router(store))
    for router in (*own, *routers):
        # `include_router` would build every route a second time, with all of its validators: 60 ms of processor time.
        app.router.routes.extend(router.routes)
    install_middleware(app, authenticator, settings=settings, observers=observers)
    return app
