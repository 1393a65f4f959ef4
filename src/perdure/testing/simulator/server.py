"""The simulator as a server on loopback: a context manager for tests, a blocking call for the command line."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from perdure.core.errors import ConfigError, PerdureError
from perdure.core.usage import CanonicalUsage
from perdure.testing.simulator.http import (
    AWS_STREAM,
    MAX_HEAD_BYTES,
    SSE,
    ClientGone,
    Connection,
    HttpRequest,
    read_request,
    resolve_address,
)
from perdure.testing.simulator.messages import error_body as messages_error
from perdure.testing.simulator.oauth import AuthorizationServer, OAuthRefusal
from perdure.testing.simulator.rules import Rules, RuleViolation, SimulatedRefusal
from perdure.testing.simulator.script import Prompter, Script, Step, parse_step
from perdure.testing.simulator.service import PROTOCOLS, ReceivedRequest, SimulatedService

_START_S = 10.0


class Simulator:
    """A strict simulator of model services.

    `with Simulator(window=8_000, script=["Hello."]) as sim:` serves at `sim.base_url` from its own thread.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        script: Script = (),
        port: int = 0,
        now_s: Callable[[], float] = time.time,
        **changes: Any,
    ) -> None:
        self._service = SimulatedService(replace(rules or Rules(), **changes), Prompter(script), now_s)
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ready = threading.Event()
        self._failure: OSError | None = None
        self._stop: asyncio.Event | None = None
        # Connections opened so far: a keep-alive client needs few.
        self.connections = 0

    @property
    def rules(self) -> Rules:
        return self._service.rules

    @property
    def base_url(self) -> str:
        """Base URL for OpenAI-style clients; Anthropic clients use `root_url`."""
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> list[ReceivedRequest]:
        """Every request to a model, oldest first."""
        return self._service.requests

    @property
    def violations(self) -> list[RuleViolation]:
        """Every rule a request violated; limits and wrong keys are not violations."""
        return self._service.violations

    @property
    def billed(self) -> list[CanonicalUsage]:
        """Usage of each request with a reply, whether or not it was reported or received."""
        return self._service.billed

    @property
    def total(self) -> CanonicalUsage:
        return sum(self.billed, CanonicalUsage())

    @property
    def oauth(self) -> AuthorizationServer:
        """The authorization server, below `/oauth`."""
        return self._service.oauth

    def add(self, *steps: Step | str) -> None:
        """Append steps to the script."""
        self._service.prompter.add(*steps)

    def change(self, **changes: Any) -> None:
        """Change rules from the next request on: a smaller window, another key."""
        self._service.rules = replace(self._service.rules, **changes)

    def count(self, path: str, body: Mapping[str, Any]) -> int:
        """Return the exact prompt tokens of a request body."""
        return self._service.count(path, body)

    def __enter__(self) -> Simulator:
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), name="simulator", daemon=True)
        self._thread.start()
        if not self._is_ready.wait(_START_S) or self._failure is not None:
            raise PerdureError(f"the simulator cannot listen on port {self._port}: {self._failure}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(_START_S)

    def serve_forever(self, on_ready: Callable[[], None]) -> None:
        """Serve in this thread until interrupted; `on_ready` is called once it listens."""
        asyncio.run(self._serve(on_ready))
        if self._failure is not None:
            raise PerdureError(f"cannot listen on port {self._port}: {self._failure.strerror or self._failure}")

    async def _serve(self, on_ready: Callable[[], None] | None = None) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await asyncio.start_server(self._handle_connection, "127.0.0.1", self._port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            self._failure = error
            self._is_ready.set()
            return
        self._port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        if on_ready is not None:
            on_ready()
        await self._stop.wait()
        server.close()

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = Connection(reader, writer)
        try:
            while (request := await read_request(reader)) is not None:
                await self._answer(request, connection)
        except (ClientGone, ConnectionError, asyncio.IncompleteReadError, ValueError, asyncio.LimitOverrunError):
            # A client that disconnected or sent invalid HTTP gets no response.
            pass
        except asyncio.CancelledError:
            # The simulator is stopped during a response.
            pass
        finally:
            writer.close()

    async def _answer(self, request: HttpRequest, connection: Connection) -> None:
        request, connection.reframe = resolve_address(request)
        connection.stream_type = AWS_STREAM if connection.reframe is not None else SSE
        if request.method == "POST" and request.path in PROTOCOLS:
            await self._service.answer(request, connection)
            return
        if request.path in ("/oauth/authorize", "/oauth/token", "/oauth/device", "/oauth/device/code"):
            await self._handle_sign_in(request, connection)
            return
        try:
            await connection.answer_json(200, self._handle_other(request))
        except SimulatedRefusal as refusal:
            await connection.answer_json(refusal.status, messages_error(refusal))

    async def _handle_sign_in(self, request: HttpRequest, connection: Connection) -> None:
        try:
            match request.path:
                case "/oauth/token":
                    await connection.answer_json(200, await self.oauth.answer_token_request(request.body))
                    return
                case "/oauth/device/code":
                    await connection.answer_json(200, self.oauth.begin_device(self.root_url))
                    return
                case "/oauth/device":
                    self.oauth.approve_device(request.query)
                    await connection.answer(
                        200, b"Signed in. You can go back to the other device.", content_type="text/plain"
                    )
                    return
            location = self.oauth.authorize(request.query)
        except OAuthRefusal as refusal:
            await connection.answer_json(400, {"error": str(refusal)})
            return
        await connection.answer(302, b"", headers={"location": location})

    def _handle_other(self, request: HttpRequest) -> Any:
        """Handle everything but model calls: model list, token counts, and the simulator's report."""
        path, is_post = request.path, request.method == "POST"
        if path in ("/v1/messages/count_tokens", "/v1/responses/input_tokens") and is_post:
            body = self._service.check(request)
            count = self._service.count(path.rpartition("/")[0], body)
            is_messages = path.startswith("/v1/messages")
            return {"input_tokens": count, **({} if is_messages else {"object": "response.input_tokens"})}
        if path == "/v1/models" or path.startswith("/v1/models/"):
            return self._models(path.removeprefix("/v1/models").strip("/"), request)
        if path == "/simulator/report":
            return self._report()
        if path == "/simulator/script" and is_post:
            return self._add_steps(request.body)
        raise SimulatedRefusal(
            f"no such address: {request.method} {path}", rule=None, status=404, error_type="not_found_error"
        )

    def _models(self, name: str, request: HttpRequest) -> dict[str, Any]:
        self._service.check_key(request)
        rules = self.rules
        models = rules.models or ("simulator",)
        is_anthropic = "anthropic-version" in request.headers
        rows = [_model_row(model, rules.window, is_anthropic=is_anthropic) for model in models]
        if name:
            row = next((r for r in rows if r["id"] == name), None)
            if row is None:
                raise SimulatedRefusal(f"model: {name}", rule=None, status=404, error_type="not_found_error")
            return row
        if is_anthropic:
            return {"data": rows, "has_more": False, "first_id": models[0], "last_id": models[-1]}
        return {"object": "list", "data": rows}

    def _report(self) -> dict[str, Any]:
        requests = [
            {
                "path": r.path,
                "model": r.body.get("model"),
                "prompt_tokens": r.prompt_tokens,
                "status": r.status,
                "usage": asdict(r.usage) if r.usage else None,
                "was_abandoned": r.was_abandoned,
            }
            for r in self.requests
        ]
        return {
            "requests": requests,
            "violations": [asdict(v) for v in self.violations],
            "billed": asdict(self.total),
        }

    def _add_steps(self, raw: bytes) -> dict[str, Any]:
        try:
            payload = json.loads(raw)
            steps = [
                parse_step(s, at=f"step {n}")
                for n, s in enumerate(payload if isinstance(payload, list) else [payload], 1)
            ]
        except (ValueError, ConfigError) as error:
            raise SimulatedRefusal(str(error), rule=None) from error
        self.add(*steps)
        return {"added": len(steps)}


def _model_row(model: str, window: int, *, is_anthropic: bool) -> dict[str, Any]:
    if is_anthropic:
        return {"type": "model", "id": model, "display_name": model, "created_at": "2025-01-01T00:00:00Z"}
    return {
        "id": model,
        "object": "model",
        "created": 1_735_689_600,
        "owned_by": "simulator",
        "context_length": window,
        "max_model_len": window,
    }
