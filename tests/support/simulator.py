"""Talking to the simulator through our own transport: endpoints, requests, and one call in a loop of its own."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import httpx

from perdure.core.messages import Entry, Message, user
from perdure.providers.http import certificates_for
from perdure.providers.transport import OnEvent, Retries, Transport
from perdure.providers.types import ApiMode, Endpoint, ModelRequest, Quirks, Reply
from perdure.testing.simulator import Simulator

MODES: tuple[ApiMode, ...] = ("chat_completions", "codex_responses", "anthropic_messages")
PATHS = {
    "chat_completions": "/v1/chat/completions",
    "codex_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}


@cache
def http() -> httpx.Client:
    """A plain client of its own kind; it loads no certificates, which would cost more than most tests."""
    return httpx.Client(trust_env=False, timeout=20, verify=certificates_for("http://127.0.0.1"))


class FakeClock:
    """Seconds that pass only when told to."""

    def __init__(self, now_s: float = 1_800_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def endpoint(sim: Simulator, mode: ApiMode, *, model: str = "m-1", key: str = "k") -> Endpoint:
    base = sim.root_url if mode == "anthropic_messages" else sim.base_url
    return Endpoint("custom", base, mode, model, api_key=key)


def request(*messages: Message | str, **fields: Any) -> ModelRequest:
    """A request with the messages as its history; texts are user messages."""
    row = tuple(Entry(i, user(m) if isinstance(m, str) else m) for i, m in enumerate(messages))
    defaults: dict[str, Any] = {"max_tokens": 1000, "quirks": Quirks(reasoning_field="reasoning_content")}
    return ModelRequest(**{"model": "m-1", "entries": row, **defaults, **fields})


def once() -> Transport:
    """A transport that never tries twice."""
    return Transport(retries=Retries(attempts=1))


def send(
    sim: Simulator,
    mode: ApiMode,
    asked: ModelRequest,
    *,
    transport: Transport | None = None,
    on_event: OnEvent | None = None,
) -> Reply:
    """One call, from a loop of its own."""

    async def call() -> Reply:
        way = transport or once()
        try:
            return await way.send(endpoint(sim, mode, model=asked.model), asked, on_event=on_event)
        finally:
            await way.aclose()

    return asyncio.run(call())
