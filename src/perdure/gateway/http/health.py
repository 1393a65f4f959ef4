"""Whether the process lives, and whether it takes messages."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from perdure.core.errors import StoreError
from perdure.gateway.http.bodies import HealthBody
from perdure.gateway.hub import Hub
from perdure.gateway.threads import in_thread

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
