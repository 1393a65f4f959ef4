"""What happens to one model request: checked, sized, looked up in the cache, answered by the script, billed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import perdure.testing.simulator.chat as chat
import perdure.testing.simulator.chat_rules as chat_rules
import perdure.testing.simulator.messages as messages
import perdure.testing.simulator.messages_rules as messages_rules
import perdure.testing.simulator.responses as responses
import perdure.testing.simulator.responses_rules as responses_rules
from perdure.core.usage import CanonicalUsage
from perdure.testing.simulator.cache import CacheUse, MarkCache, PrefixCache
from perdure.testing.simulator.http import ClientGone, Connection, HttpRequest
from perdure.testing.simulator.rules import Issued, Rules, RuleViolation, SimulatedRefusal
from perdure.testing.simulator.script import Drop, Fail, Prompter, Raw, Say, ScriptRequest, Step
from perdure.testing.simulator.tokens import PromptBlock, count_blocks
from perdure.testing.simulator.turn import Scene, SimulatedTurn, take_turn


@dataclass(frozen=True, slots=True)
class Protocol:
    """One endpoint: how it looks, and what it refuses."""

    look: ModuleType
    law: ModuleType


PROTOCOLS: dict[str, Protocol] = {
    "/v1/chat/completions": Protocol(chat, chat_rules),
    "/v1/responses": Protocol(responses, responses_rules),
    "/v1/messages": Protocol(messages, messages_rules),
}


@dataclass(slots=True)
class Received:
    """A request as it came, and what became of it; filled in while it is answered."""

    number: int
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Mapping[str, Any]
    is_streaming: bool = False
    prompt_tokens: int = 0
    status: int | None = None
    usage: CanonicalUsage | None = None
    # The client hung up before the answer was whole.
    was_abandoned: bool = False


class SimulatedService:
    """The state behind the three endpoints: caches, script, and the books."""

    def __init__(self, rules: Rules, prompter: Prompter, now_s: Callable[[], float]) -> None:
        self.rules = rules
        self.prompter = prompter
        self.requests: list[Received] = []
        self.violations: list[RuleViolation] = []
        self.billed: list[CanonicalUsage] = []
        self._now_s = now_s
        self._issued = Issued()
        self._prefixes = PrefixCache(now_s)
        self._marks = MarkCache(now_s)

    async def answer(self, request: HttpRequest, line: Connection) -> None:
        """Answers a request to one of the three endpoints."""
        protocol = PROTOCOLS[request.path]
        received = Received(len(self.requests) + 1, request.path, request.headers, request.body, _object(request.body))
        self.requests.append(received)
        try:
            await self._answer(protocol, received, line)
        except SimulatedRefusal as refusal:
            await self._refuse(protocol, received, refusal, line)
        except (ClientGone, asyncio.CancelledError):
            received.was_abandoned = True
            raise

    def count(self, path: str, body: Mapping[str, Any]) -> int:
        """The tokens of a prompt, exactly as a request with it would be billed."""
        return count_blocks(PROTOCOLS[path].look.blocks(body))

    def check(self, request: HttpRequest) -> Mapping[str, Any]:
        """Return the body of a request; raise SimulatedRefusal for a bad key, bad JSON or an unknown model."""
        self.check_key(request)
        is_messages = request.path.startswith("/v1/messages")
        if is_messages and "anthropic-version" not in request.headers:
            raise SimulatedRefusal("anthropic-version: header is required", rule="headers")
        body = _object(request.body)
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
        """Raises SimulatedRefusal for any key but the one the rules name."""
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.rules.api_key is None or key == self.rules.api_key:
            return
        is_messages = request.path.startswith("/v1/messages")
        text = "invalid x-api-key" if is_messages else f"Incorrect API key provided: {key[:6]}***."
        kind = "authentication_error" if is_messages else "invalid_request_error"
        raise SimulatedRefusal(text, rule=None, status=401, error_type=kind, code="invalid_api_key")

    async def _answer(self, protocol: Protocol, received: Received, line: Connection) -> None:
        body = self.check(HttpRequest("POST", received.path, received.headers, received.raw))
        received.is_streaming = bool(body.get("stream"))
        protocol.law.check(body, self.rules, self._issued)
        found = protocol.look.blocks(body)
        received.prompt_tokens = count_blocks(found)
        protocol.look.check_size(body, found, self.rules)
        use, reports_writes = self._look_up(received, body, found)
        step = self.prompter.next(ScriptRequest(received.path, body, received.number))
        await line.pause(step.delay_s)
        if isinstance(step, Say):
            turn = self._turn(protocol, received, step, use)
            # From here on the response has begun: what it wrote to the cache can be read.
            self._keep(received, body, use)
            scene = Scene(body, self.rules, self._issued, reports_writes)
            await self._say(protocol.look, received, step, turn, scene, line)
        else:
            await self._misbehave(received, step, line)

    def _look_up(self, received: Received, body: Mapping[str, Any], found: list[PromptBlock]) -> tuple[CacheUse, bool]:
        """What the cache gives, and whether the reply states what was written to it."""
        if _is_marked(received.path, body):
            seed = messages.messages_seed(body, found)
            return self._marks.look_up(found, minimum=self.rules.cache_minimum, messages_seed=seed), True
        use = self._prefixes.look_up(found)
        return use, self.rules.reports_cache_writes

    def _keep(self, received: Received, body: Mapping[str, Any], use: CacheUse) -> None:
        (self._marks if _is_marked(received.path, body) else self._prefixes).keep(use)

    def _turn(self, protocol: Protocol, received: Received, say: Say, use: CacheUse) -> SimulatedTurn:
        room = self.rules.window - received.prompt_tokens
        asked = protocol.look.allowance(received.body) or self.rules.max_output
        turn = take_turn(
            say,
            number=received.number,
            model=str(received.body["model"]),
            created_s=int(self._now_s()),
            max_output=min(room, asked),
            ending="window" if room < asked else "length",
        )
        is_billed = _is_marked(received.path, received.body) or self.rules.reports_cache_writes
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

    async def _say(
        self, look: ModuleType, received: Received, say: Say, turn: SimulatedTurn, scene: Scene, line: Connection
    ) -> None:
        received.status, received.usage = 200, turn.usage
        self.billed.append(turn.usage)
        streams = received.is_streaming if say.form == "as_asked" else say.form == "stream"
        if not streams:
            await line.answer_json(200, look.whole(turn, scene), headers=_ids(received))
            return
        await line.begin_stream(_ids(received))
        for number, piece in enumerate(look.stream(turn, scene)):
            if number == say.drop_after:
                line.drop()
                return
            if number == say.fail_after:
                await line.send(look.interrupted(turn, scene))
                break
            await line.send(piece)
            if say.chunk_delay_s:
                await line.pause(say.chunk_delay_s)
        await line.end_stream()

    async def _misbehave(self, received: Received, step: Step, line: Connection) -> None:
        if isinstance(step, Drop):
            line.drop()
        elif isinstance(step, Raw):
            received.status = step.status
            await line.answer(step.status, step.body, content_type=step.content_type)
        elif isinstance(step, Fail):
            received.status, body = step.answer()
            text = body if isinstance(body, str) else json.dumps(body)
            kind = "text/html" if text.startswith("<") else "application/json"
            await line.answer(received.status, text.encode(), content_type=kind, headers=step.headers)

    async def _refuse(
        self, protocol: Protocol, received: Received, refusal: SimulatedRefusal, line: Connection
    ) -> None:
        if refusal.rule is not None:
            self.violations.append(RuleViolation(received.path, refusal.rule, refusal.message))
        is_overflow = refusal.code == "context_length_exceeded"
        if is_overflow and self.rules.overflows_in_stream and received.is_streaming and protocol.look is responses:
            await self._overflow_in_stream(received, refusal, line)
            return
        received.status = refusal.status
        await line.answer_json(refusal.status, protocol.look.error_body(refusal), headers=_ids(received))

    async def _overflow_in_stream(self, received: Received, refusal: SimulatedRefusal, line: Connection) -> None:
        received.status = 200
        turn = SimulatedTurn(received.number, str(received.body["model"]), int(self._now_s()))
        scene = Scene(received.body, self.rules, self._issued)
        await line.begin_stream(_ids(received))
        opening = responses.stream(turn, scene)
        for _ in range(2):
            await line.send(next(opening))
        await line.send(responses.failed(turn, scene, code=refusal.code or "", message=refusal.message))
        await line.end_stream()


def _is_marked(path: str, body: Mapping[str, Any]) -> bool:
    """Whether this request's cache works by marks: Anthropic's own endpoint, and Claude models behind a chat one."""
    is_claude = "claude" in str(body.get("model", "")).lower()
    return path == "/v1/messages" or (path == "/v1/chat/completions" and is_claude)


def _ids(received: Received) -> dict[str, str]:
    number = f"req_sim{received.number:06d}"
    return {"x-request-id": number, "request-id": number}


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
