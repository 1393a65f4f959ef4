"""The whole gateway on a real server in a thread of this process, so that its app, hub and store can be looked at."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from perdure.config.load import validate_settings
from perdure.core.concurrency import SystemClock
from perdure.core.visibility import user_from_key
from perdure.gateway.app import build_gateway_config
from perdure.gateway.auth.principal import Scope
from perdure.gateway.auth.tokens import AccessTokens, TokenAuthenticator
from perdure.gateway.observability.logging import LogWriter
from perdure.gateway.server import serve
from perdure.gateway.workers.hub import Hub
from perdure.store import SessionStore, open_store
from perdure.testing.simulator import Simulator

START_S = 30.0


@dataclass
class Running:
    """A gateway at work."""

    url: str
    app: FastAPI
    hub: Hub
    store: SessionStore
    tokens: AccessTokens
    users: Mapping[str, str]
    log: io.StringIO = field(default_factory=io.StringIO)

    def headers(self, user: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.users[user]}"}


@contextmanager
def running_gateway(
    home: Path,
    sim: Simulator,
    *,
    users: Mapping[str, Sequence[Scope]],
    gateway: Mapping[str, Any] | None = None,
    database: str | Path | None = None,
    model: Mapping[str, Any] | None = None,
    others: Mapping[str, Any] | None = None,
    tokens: Mapping[str, tuple[str, Sequence[Scope]]] | None = None,
) -> Iterator[Running]:
    """Serves until the block ends; each user has a token with these scopes. `tokens` are more of them, by a label:
    whose each one is, and its scopes."""
    settings = validate_settings(
        {
            "model": {"name": "gpt-5-mini", "base_url": sim.base_url, "provider": "custom", **(model or {})},
            # With a database that several machines share, memory lies in it too.
            "store": {"url": str(database) if str(database).startswith("postgres") else None},
            "gateway": {"port": 0, "drain_timeout_s": 2, "requests_per_minute": None, **(gateway or {})},
            **(others or {}),
        }
    )
    clock, log, made = SystemClock(), io.StringIO(), []
    loops: list[asyncio.AbstractEventLoop] = []
    addresses: list[str] = []
    is_up, stopped = threading.Event(), asyncio.Event()
    with open_store(database or home / "perdure.db") as store:
        issued = AccessTokens(store, clock)
        wanted = {user: (user, scopes) for user, scopes in users.items()} | dict(tokens or {})
        known = {label: issued.add(user_from_key(user), scopes).text for label, (user, scopes) in wanted.items()}
        authenticator = TokenAuthenticator(issued, clock, is_open=True)
        whole = build_gateway_config(settings, home, store, authenticator, log_writer=LogWriter("json", clock, log))

        def finish(app: FastAPI, hub: Hub) -> None:
            whole.configure_app(app, hub)
            made.append((app, hub))

        def up(host: str, port: int) -> None:
            addresses.append(f"http://{host}:{port}")
            is_up.set()

        async def main() -> None:
            loops.append(asyncio.get_running_loop())
            await serve(replace(whole, configure_app=finish, on_ready=up), stopped=stopped)

        thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
        thread.start()
        if not is_up.wait(START_S):
            raise RuntimeError("the gateway did not start")
        try:
            yield Running(addresses[0], *made[0], store, issued, known, log)
        finally:
            loops[0].call_soon_threadsafe(stopped.set)
            thread.join(20)


def operations(app: FastAPI) -> list[tuple[str, str]]:
    """Every (method, path) the app's own route table has; a WebSocket's method is WS, a mounted folder's MOUNT."""
    return sorted(set(_walk(app.routes)))


def _walk(routes: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for route in routes:
        if hasattr(route, "effective_candidates"):  # a router that was included
            yield from _walk(route.effective_candidates())
            continue
        original = getattr(route, "original_route", route)
        kind, path = type(original).__name__, route.path or original.path
        if kind == "Mount":
            yield "MOUNT", path
        elif "WebSocket" in kind:
            yield "WS", path
        else:
            yield from ((method, path) for method in route.methods or ("GET",))
