"""The routes `/v1/chat/completions`, `/v1/responses` and `/v1/models`."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from json import JSONDecodeError
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from perdure.core.ports import Clock
from perdure.gateway.auth.middleware import require_scope
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import ApiError, ApiException
from perdure.gateway.events.serialize import finished_event
from perdure.gateway.events.types import ChatMessage, Ticket
from perdure.gateway.executor import run_blocking
from perdure.gateway.openai_api.conversation_match import ConversationMatch, ConversationMatcher
from perdure.gateway.openai_api.parameters import MAX_NAME_CHARS, MODEL, invalid_request
from perdure.gateway.openai_api.request import CompletionRequest, parse_request
from perdure.gateway.openai_api.response import ResponseBuilder, list_model_objects
from perdure.gateway.openai_api.responses_format import ResponseObject
from perdure.gateway.openai_api.responses_request import parse_responses_request
from perdure.gateway.openai_api.turn import CompletionTurn
from perdure.gateway.workers.hub import Hub
from perdure.store.encoding import IdSource
from perdure.store.inbox import ConversationBusy
from perdure.tools.json_schema import JsonTooLarge, parse_json

_CONVERSATION_HEADERS = ("x-perdure-conversation", "x-conversation-id")
# Schemas are checked with the body, which takes longer than parsing it.
_LONG_BYTES = 20_000
OPENAI_ENDPOINTS = "POST /v1/chat/completions, POST /v1/responses and GET /v1/models"
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
ChatPrincipal = Annotated[Principal, Depends(require_scope("chat"))]

_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]},
        "tool_calls": {"type": "array", "items": {"type": "object"}},
        "tool_call_id": {"type": "string"},
    },
}
_TOOLS = {
    "tools": {"type": "array", "items": {"type": "object"}},
    "tool_choice": {"oneOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}]},
    "parallel_tool_calls": {"type": "boolean"},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "stream": {"type": "boolean"},
    "user": {"type": "string", "maxLength": MAX_NAME_CHARS},
}
_CHAT_BODY = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {"type": "string", "enum": [MODEL]},
        "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
        "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
        "response_format": {"type": "object"},
        "max_completion_tokens": {"type": "integer", "minimum": 1},
        "max_tokens": {"type": "integer", "minimum": 1},
        "stop": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        **_TOOLS,
    },
}
_RESPONSES_BODY = {
    "type": "object",
    "required": ["model", "input"],
    "properties": {
        "model": {"type": "string", "enum": [MODEL]},
        "input": {"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "object"}}]},
        "instructions": {"type": "string"},
        "previous_response_id": {"type": "string"},
        "store": {"type": "boolean"},
        "text": {"type": "object"},
        "max_output_tokens": {"type": "integer", "minimum": 1},
        **_TOOLS,
    },
}


class CompletionService:
    """Runs the turns of requests, whichever API they came through."""

    def __init__(self, hub: Hub, *, ids: IdSource, clock: Clock) -> None:
        self.hub = hub
        self._clock = clock
        self.matcher = ConversationMatcher(hub.store, hub.pool, ids)

    @property
    def now_s(self) -> int:
        return self._clock.now_ms() // 1000

    async def start(
        self, request: Request, completion: CompletionRequest, principal: Principal
    ) -> tuple[Ticket, CompletionTurn]:
        """Find the conversation and submit the message."""
        name = _conversation_name(request)
        key = _scoped_key(request.headers.get("idempotency-key", ""), completion, name)
        target = await run_blocking(self.matcher.find, completion, principal, name)
        try:
            ticket = await self._submit(target, completion, principal, key)
        except ConversationBusy:
            if name is not None:
                raise
            target = await run_blocking(self.matcher.branch, target, principal)
            ticket = await self._submit(target, completion, principal, key)
        turn = CompletionTurn(self.hub, self.matcher, completion, principal, ticket, can_be_repeated=bool(key))
        return ticket, turn

    async def _submit(
        self, target: ConversationMatch, completion: CompletionRequest, principal: Principal, key: str
    ) -> Ticket:
        message = ChatMessage(
            target.chat,
            _new_content(completion),
            target.conversation_id,
            key,
            options=completion.options,
            only_at=target.position,
        )
        return await self.hub.submit(message, principal)


def openai_router(hub: Hub, *, ids: IdSource, clock: Clock) -> APIRouter:
    """Router for the supported subset of OpenAI's API."""
    router = APIRouter(prefix="/v1", tags=["openai"])
    service = CompletionService(hub, ids=ids, clock=clock)

    @router.post("/chat/completions", openapi_extra=_body_schema(_CHAT_BODY))
    async def complete(request: Request, principal: ChatPrincipal) -> Response:
        """Run a turn with the new messages and return its answer; with `stream`, as chunks."""
        completion, _ = await _read(request, parse_request)
        ticket, turn = await service.start(request, completion, principal)
        builder = ResponseBuilder(ticket.turn_id, service.now_s)
        if completion.is_stream:
            return _stream(builder.stream(turn, with_usage=completion.wants_usage), completion)
        await _wait_unless_disconnected(request, turn)
        return _respond(builder.build_completion(turn), turn, completion)

    @router.post("/responses", openapi_extra=_body_schema(_RESPONSES_BODY))
    async def respond(request: Request, principal: ChatPrincipal) -> Response:
        """Run a turn with the new items and return its response; with `stream`, as events."""
        completion, body = await _read(request, parse_responses_request)
        ticket, turn = await service.start(request, completion, principal)
        response = ResponseObject(ticket.turn_id, service.now_s, body)
        if completion.is_stream:
            return _stream(response.stream(turn), completion)
        await _wait_unless_disconnected(request, turn)
        return _respond(response.build(turn), turn, completion)

    _add_lookups(router, service)
    return router


def _add_lookups(router: APIRouter, service: CompletionService) -> None:
    """Add the endpoints that run no turn."""

    @router.get("/responses/{response_id}")
    async def get_response(
        response_id: Annotated[str, Path(max_length=MAX_NAME_CHARS)], principal: ChatPrincipal
    ) -> Any:
        """Return a stored response; its text is stored for a week."""
        turn_id = response_id.removeprefix("resp_")
        missing = ApiException(ApiError(404, "not_found", f"no response {response_id!r}", param="response_id"))
        if not await run_blocking(service.matcher.is_stored_response, response_id, principal):
            raise missing
        queued = await service.hub.get_message(turn_id, principal)
        event = finished_event(queued.result, queued.conversation_id)
        return ResponseObject(turn_id, (queued.done_at_ms or 0) // 1000, {}).rebuild(event)

    @router.get("/models")
    async def list_models(principal: ChatPrincipal) -> Any:
        """List the agent as the only model."""
        return {"object": "list", "data": list_model_objects(service.now_s)}

    @router.get("/models/{model}")
    async def get_model(model: str, principal: ChatPrincipal) -> Any:
        if model != MODEL:
            raise ApiException(ApiError(404, "model_not_found", f"model not found; available: {MODEL}"))
        return list_model_objects(service.now_s)[0]


def _body_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _stream(chunks: AsyncIterator[bytes], completion: CompletionRequest) -> Response:
    headers = {**_STREAM_HEADERS, **_ignored_header(completion)}
    return StreamingResponse(chunks, media_type="text/event-stream", headers=headers)


def _respond(body: Mapping[str, Any], turn: CompletionTurn, completion: CompletionRequest) -> Response:
    headers = _ignored_header(completion)
    if turn.conversation_id is not None:
        headers["x-perdure-conversation"] = turn.conversation_id
    return JSONResponse(body, headers=headers)


def _ignored_header(completion: CompletionRequest) -> dict[str, str]:
    return {"x-perdure-ignored": ", ".join(completion.ignored)} if completion.ignored else {}


async def _read(
    request: Request, parse: Callable[..., CompletionRequest]
) -> tuple[CompletionRequest, Mapping[str, Any]]:
    """Parse the body; a long one in a worker thread, so that it does not block other requests."""
    raw, is_named = await request.body(), _conversation_name(request) is not None

    def work() -> tuple[CompletionRequest, Mapping[str, Any]]:
        body = _parse_json(raw)
        return parse(body, is_named=is_named), body

    return work() if len(raw) < _LONG_BYTES else await run_blocking(work)


def _parse_json(body: bytes) -> Any:
    try:
        return parse_json(body)
    except ValueError as error:
        detail = (
            f"{error.msg} at line {error.lineno}, column {error.colno}" if isinstance(error, JSONDecodeError) else ""
        )
        raise invalid_request(f"the body is not valid JSON{f' ({detail})' if detail else ''}") from None
    except JsonTooLarge as error:
        raise invalid_request(f"the body cannot be read: {error}") from None


def _conversation_name(request: Request) -> str | None:
    """Return the conversation name from the headers."""
    name = next((request.headers[name] for name in _CONVERSATION_HEADERS if request.headers.get(name)), None)
    if name is not None and len(name) > MAX_NAME_CHARS:
        raise invalid_request(f"a conversation name has at most {MAX_NAME_CHARS} characters")
    return name


def _scoped_key(key: str, completion: CompletionRequest, name: str | None) -> str:
    """Return an idempotency key that is valid for this conversation only: its name, or the history that identifies it.

    The same key in another conversation would otherwise be answered with words of this one.
    """
    if len(key) > MAX_NAME_CHARS:
        raise invalid_request(f"an idempotency key has at most {MAX_NAME_CHARS} characters")
    if not key:
        return ""
    address = [name] if name is not None else [completion.user, completion.system, completion.history]
    if completion.previous_response_id is not None:
        address = [completion.previous_response_id]
    text = json.dumps([key, *address], ensure_ascii=True, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _new_content(completion: CompletionRequest) -> str | Mapping[str, Any] | None:
    """Return the new message, plain text as str, so that slash commands are recognized."""
    if completion.new is None:
        return None
    content = completion.new["content"]
    return content if isinstance(content, str) else completion.new


async def _wait_unless_disconnected(request: Request, turn: CompletionTurn) -> None:
    """Run the turn; if the client disconnects first, it is stopped unless it has a key.

    Raises ApiException for a failed turn.
    """
    running = asyncio.create_task(turn.run())
    disconnect = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait({running, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ApiException(ApiError(499, "client_gone", "the client disconnected"))
        running.result()
    finally:
        for task in (running, disconnect):
            task.cancel()
        await asyncio.gather(running, disconnect, return_exceptions=True)
    if (failure := turn.failure) is not None:
        raise ApiException(failure)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
