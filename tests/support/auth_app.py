"""A small app behind the gateway's guards, on a real server: what the guards do is seen over real connections."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, Request, WebSocket
from starlette.responses import StreamingResponse

from perdure.config.settings import GatewaySettings
from perdure.core.ports import Clock
from perdure.core.visibility import user_from_key
from perdure.gateway.api.middleware import install_middleware
from perdure.gateway.auth.middleware import require_scope
from perdure.gateway.auth.principal import SCOPES, Authenticator, Principal
from perdure.gateway.observability.base import Observer

CAN_CHAT = Depends(require_scope("chat"))


class FixedTokens:
    """Persons by token, changed while the app runs."""

    is_fresh = True

    def __init__(self, **persons: Principal) -> None:
        self.persons = dict(persons)

    def authenticate(self, token: str | None) -> Principal | None:
        return self.persons.get(token or "")


def everything(user_key: str) -> Principal:
    return Principal(user_from_key(user_key), frozenset(SCOPES))


def make_app(
    authenticator: Authenticator, *, clock: Clock | None = None, observers: Sequence[Observer] = (), **settings: Any
) -> FastAPI:
    """Three routes: one answers, one streams, one is a WebSocket that echoes."""
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/healthz")
    def healthz() -> dict[str, bool]:
        return {"ok": True}

    @app.get("/who")
    def who(person: Principal = CAN_CHAT) -> dict[str, str]:
        return {"user": person.user.stored_key}

    @app.post("/echo")
    async def echo(request: Request, person: Principal = CAN_CHAT) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    @app.post("/json")
    async def given(body: dict[str, Any], person: Principal = CAN_CHAT) -> dict[str, int]:
        return {"keys": len(body)}

    @app.get("/boom")
    def boom(person: Principal = CAN_CHAT) -> None:
        raise RuntimeError("the secret is hunter2")

    @app.get("/stream")
    async def stream(person: Principal = CAN_CHAT) -> StreamingResponse:
        async def ticks() -> AsyncIterator[bytes]:
            for number in range(200):
                yield f"data: {number}\n\n".encode()
                await asyncio.sleep(0.02)

        return StreamingResponse(ticks(), media_type="text/event-stream")

    @app.websocket("/ws")
    async def ws(socket: WebSocket, person: Principal = CAN_CHAT) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(f"{person.user.stored_key}: {text[:20]}")

    install_middleware(app, authenticator, settings=GatewaySettings(**settings), clock=clock, observers=observers)
    return app


@contextmanager
def served(app: Any) -> Iterator[int]:
    """The app on a real server of its own: the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def raw(port: int, *pieces: bytes, pause_s: float = 0.0, timeout_s: float = 5.0) -> bytes:
    """Whatever the server says to exactly these bytes, until it hangs up or is silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        said = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause_s)
            connection.settimeout(timeout_s)
            while chunk := connection.recv(65_536):
                said += chunk
                if _is_whole(said):
                    break
        except (TimeoutError, ConnectionError):
            pass
        return said


def _is_whole(said: bytes) -> bool:
    head, separator, body = said.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(separator and lengths) and len(body) >= int(lengths[0])
