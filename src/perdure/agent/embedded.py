"""Calls to the embedded model: its server is started by the first one, everyone else's calls pass through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from perdure.agent.deps import Send
from perdure.providers.local import DEFAULT_N_CTX, LocalModel, LocalServers, OnProgress, is_packaged
from perdure.providers.types import ApiMode, Delta, Endpoint, ModelRequest, Reply

PROVIDER = "local"
# Where nothing listens yet: the real address is known once the server has started.
UNSTARTED = "embedded:"
# A very small model does not know when to stop: left alone it talks until its window is full.
REPLY_TOKENS = 400


def embedded_endpoint(model: str, api_mode: ApiMode = "chat_completions") -> Endpoint:
    """The embedded model before it is started: naming it touches nothing."""
    return Endpoint(PROVIDER, UNSTARTED, api_mode, model)


class EmbeddedSend:
    """The Send of a process that may have to start its own model first."""

    def __init__(
        self, send: Send, servers: LocalServers, *, n_ctx: int | None = None, on_progress: OnProgress | None = None
    ) -> None:
        self._send = send
        self._servers = servers
        self.n_ctx = n_ctx or DEFAULT_N_CTX
        self._on_progress = on_progress

    async def __call__(
        self, endpoint: Endpoint, request: ModelRequest, *, on_event: Callable[[Delta], None] | None = None
    ) -> Reply:
        if endpoint.base_url != UNSTARTED:
            return await self._send(endpoint, request, on_event=on_event)
        model = await asyncio.to_thread(self._started, endpoint.model)
        if request.tools and not model.can_call_tools:
            request = replace(request, tools=())
        if request.max_tokens is None and is_packaged(model.path):
            request = replace(request, max_tokens=REPLY_TOKENS)
        return await self._send(model.endpoint(endpoint.api_mode), request, on_event=on_event)

    def _started(self, model: str) -> LocalModel:
        return self._servers.get(model, n_ctx=self.n_ctx, on_progress=self._on_progress)
