"""Process one model request: validate, count, look up the cache, run the script step, record usage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from perdure.core.usage import CanonicalUsage
from perdure.testing.simulator import chat, messages, responses
from perdure.testing.simulator.http import ClientGone, Connection, HttpRequest
from perdure.testing.simulator.oauth import AuthorizationServer
from perdure.testing.simulator.rules import Issued, Rules, RuleViolation, SimulatedRefusal
from perdure.testing.simulator.script import Drop, Fail, Prompter, Raw, Say, ScriptRequest, Step
from perdure.testing.simulator.tokens import CacheUse, MarkCache, PrefixCache, PromptBlock, count_blocks
from perdure.testing.simulator.turn import Scene, SimulatedTurn, take_turn

# A module that validates requests of one endpoint and renders its replies.
Protocol = ModuleType

PROTOCOLS: dict[str, Protocol] = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
}


@dataclass(slots=True)
class ReceivedRequest:
    """A received request and its outcome, updated while it is processed."""

    number: int
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Mapping[str, Any]
    is_streaming: bool = False
    prompt_tokens: int = 0
    status: int | None = None
    usage: CanonicalUsage | None = None
    # The client disconnected before the response was complete.
    was_abandoned: bool = False


class SimulatedService:
    """State of the three endpoints: caches, script, requests and usage."""

    def __init__(self, rules: Rules, prompter: Prompter, now_s: Callable[[], float]) -> None:
        self.rules = rules
        self.prompter = prompter
        self.requests: list[ReceivedRequest] = []
        self.violations: list[RuleViolation] = []
        self.billed: list[CanonicalUsage] = []
        self._now_s = now_s
        self.oauth = AuthorizationServer(now_s)
        self._issued = Issued()
        self._prefixes = PrefixCache(now_s)
        self._marks = MarkCache(now_s)

    async def answer(self, request: HttpRequest, connection: Connection) -> None:
        """Respond to a request to one of the three endpoints."""
        protocol = PROTOCOLS[request.path]
        received = ReceivedRequest(
            len(self.requests) + 1, request.path, request.headers, request.body, _parse_object(request.body)
        )
        self.requests.append(received)
        try:
            await self._answer(protocol, request, received, connection)
        except SimulatedRefusal as refusal:
            await self._refuse(protocol, received, refusal, connection)
        except (ClientGone, asyncio.CancelledError):
            received.was_abandoned = True
            raise

    def count(self, path: str, body: Mapping[str, Any]) -> int:
        """Return the tokens of a prompt, exactly as billed."""
        return count_blocks(PROTOCOLS[path].blocks(body))

    def check(self, request: HttpRequest) -> Mapping[str, Any]:
        """Return the body; raise SimulatedRefusal for repeated headers, a bad key, bad JSON or an unknown model."""
        if request.repeated_headers:
            raise SimulatedRefusal(f"Duplicate {request.repeated_headers[0]!r} header found.", rule="headers")
        self.check_key(request)
        is_messages = request.path.startswith("/v1/messages")
        if is_messages and "anthropic-version" not in request.headers:
            raise SimulatedRefusal("anthropic-version: header is required", rule="headers")
        body = _parse_object(request.body)
        if not body:
            raise SimulatedRefusal("We could not parse the JSON body of your request.", rule="json")
        model = body.get("model")
        if self.rules.models and model not in self.rules.models:
            text = f"The model `{model}` does not exist or you do not have access to it."
            kind = "not_found_error" if is_messages else "invalid_request_error"
            text = f"model: {model}" if is_messages else text
            raise SimulatedRefusal(text, rule=None, status=404, error_type=kind, code="model_not_found")
        return body

    def check_key(self, request: HttpRequest) -> None:
        """Raise SimulatedRefusal for any key but that of the rules, or an access token of a sign-in."""
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.oauth.check(key, request.headers) or self.rules.api_key is None or key == self.rules.api_key:
            return
        is_messages = request.path.startswith("/v1/messages")
        text = "invalid x-api-key" if is_messages else f"Incorrect API key provided: {key[:6]}***."
        kind = "authentication_error" if is_messages else "invalid_request_error"
        raise SimulatedRefusal(text, rule=None, status=401, error_type=kind, code="invalid_api_key")

    async def _answer(
        self, protocol: Protocol, request: HttpRequest, received: ReceivedRequest, connection: Connection
    ) -> None:
        body = self.check(request)
        received.is_streaming = bool(body.get("stream"))
        protocol.check(body, self.rules, self._issued)
        blocks = protocol.blocks(body)
        received.prompt_tokens = count_blocks(blocks)
        protocol.check_size(body, blocks, self.rules)
        use, reports_writes = self._look_up(received, body, blocks)
        step = self.prompter.next(ScriptRequest(received.path, body, received.number))
        await connection.pause(step.delay_s)
        if isinstance(step, Say):
            turn = self._turn(protocol, received, step, use)
            # The response has begun: its cache entries become readable.
            self._store_cache(received, body, use)
            scene = Scene(body, self.rules, self._issued, reports_writes)
            await self._send_reply(protocol, received, step, turn, scene, connection)
        else:
            await self._run_fault(received, step, connection)

    def _look_up(
        self, received: ReceivedRequest, body: Mapping[str, Any], blocks: list[PromptBlock]
    ) -> tuple[CacheUse, bool]:
        """Look up the cache; return its use, and whether the reply reports cache writes."""
        if _uses_cache_control(received.path, body):
            seed = messages.messages_seed(body, blocks)
            return self._marks.look_up(blocks, minimum=self.rules.cache_minimum, messages_seed=seed), True
        use = self._prefixes.look_up(blocks)
        return use, self.rules.reports_cache_writes

    def _store_cache(self, received: ReceivedRequest, body: Mapping[str, Any], use: CacheUse) -> None:
        (self._marks if _uses_cache_control(received.path, body) else self._prefixes).keep(use)

    def _turn(self, protocol: Protocol, received: ReceivedRequest, say: Say, use: CacheUse) -> SimulatedTurn:
        room = self.rules.window - received.prompt_tokens
        max_tokens = protocol.requested_output(received.body) or self.rules.max_output
        turn = take_turn(
            say,
            number=received.number,
            model=str(received.body["model"]),
            created_s=int(self._now_s()),
            max_output=min(room, max_tokens),
            ending="window" if room < max_tokens else "length",
        )
        is_billed = _uses_cache_control(received.path, received.body) or self.rules.reports_cache_writes
        written = use.write_tokens if is_billed else 0
        used = CanonicalUsage(
            input_tokens=received.prompt_tokens - use.read_tokens - written,
            output_tokens=turn.output_tokens,
            cache_read_tokens=use.read_tokens,
            cache_write_tokens=written,
            cache_write_1h_tokens=use.write_1h_tokens,
            reasoning_tokens=turn.thinking_tokens,
        )
        return replace(turn, usage=used)

    async def _send_reply(
        self,
        renderer: ModuleType,
        received: ReceivedRequest,
        say: Say,
        turn: SimulatedTurn,
        scene: Scene,
        connection: Connection,
    ) -> None:
        received.status, received.usage = 200, turn.usage
        self.billed.append(turn.usage)
        streams = received.is_streaming if say.form == "as_asked" else say.form == "stream"
        if not streams:
            await connection.answer_json(200, renderer.render_body(turn, scene), headers=_request_id_headers(received))
            return
        await connection.begin_stream(_request_id_headers(received))
        for number, piece in enumerate(renderer.render_stream(turn, scene)):
            if number == say.drop_after:
                connection.drop()
                return
            if number == say.fail_after:
                await connection.send(renderer.error_event(turn, scene))
                break
            await connection.send(piece)
            if say.chunk_delay_s:
                await connection.pause(say.chunk_delay_s)
        await connection.end_stream()

    async def _run_fault(self, received: ReceivedRequest, step: Step, connection: Connection) -> None:
        if isinstance(step, Drop):
            connection.drop()
        elif isinstance(step, Raw):
            received.status = step.status
            await connection.answer(step.status, step.body, content_type=step.content_type)
        elif isinstance(step, Fail):
            received.status, body = step.answer()
            text = body if isinstance(body, str) else json.dumps(body)
            kind = "text/html" if text.startswith("<") else "application/json"
            await connection.answer(received.status, text.encode(), content_type=kind, headers=step.headers)

    async def _refuse(
        self, protocol: Protocol, received: ReceivedRequest, refusal: SimulatedRefusal, connection: Connection
    ) -> None:
        if refusal.rule is not None:
            self.violations.append(RuleViolation(received.path, refusal.rule, refusal.message))
        is_overflow = refusal.code == "context_length_exceeded"
        if is_overflow and self.rules.overflows_in_stream and received.is_streaming and protocol is responses:
            await self._overflow_in_stream(received, refusal, connection)
            return
        received.status = refusal.status
        await connection.answer_json(
            refusal.status, protocol.error_body(refusal), headers=_request_id_headers(received)
        )

    async def _overflow_in_stream(
        self, received: ReceivedRequest, refusal: SimulatedRefusal, connection: Connection
    ) -> None:
        received.status = 200
        turn = SimulatedTurn(received.number, str(received.body["model"]), int(self._now_s()))
        scene = Scene(received.body, self.rules, self._issued)
        await connection.begin_stream(_request_id_headers(received))
        opening = responses.render_stream(turn, scene)
        for _ in range(2):
            await connection.send(next(opening))
        await connection.send(responses.failure_event(turn, scene, code=refusal.code or "", message=refusal.message))
        await connection.end_stream()


def _uses_cache_control(path: str, body: Mapping[str, Any]) -> bool:
    """Whether this request uses cache_control: Anthropic's endpoint, and Claude models on chat completions."""
    is_claude = "claude" in str(body.get("model", "")).lower()
    return path == "/v1/messages" or (path == "/v1/chat/completions" and is_claude)


def _request_id_headers(received: ReceivedRequest) -> dict[str, str]:
    number = f"req_sim{received.number:06d}"
    return {"x-request-id": number, "request-id": number}


def _parse_object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
