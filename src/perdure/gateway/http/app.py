"""The application: every route of a gateway process behind one guard."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI

import perdure
from perdure.config.gateway import GatewaySettings
from perdure.gateway.guards.guarding import protect
from perdure.gateway.guards.people import Authenticator
from perdure.gateway.http.health import health_router
from perdure.gateway.http.messages import chat_router, message_router
from perdure.gateway.http.outputs import output_router
from perdure.gateway.http.questions import question_router
from perdure.gateway.http.socket import socket_router
from perdure.gateway.hub import Hub
from perdure.gateway.watchers.watching import Watcher
from perdure.store.store import SessionStore


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
