"""The routes `/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from perdure.core.ports import Clock
from perdure.gateway.auth.middleware import require_scope
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import ApiError, ApiException
from perdure.gateway.events.types import ChatMessage
from perdure.gateway.executor import run_blocking
from perdure.gateway.openai_api.conversation_match import ConversationMatcher
from perdure.gateway.openai_api.request import MAX_NAME_CHARS, MODEL, CompletionRequest, invalid_request, parse_request
from perdure.gateway.openai_api.response import ResponseBuilder, list_model_objects
from perdure.gateway.openai_api.turn import CompletionTurn
from perdure.gateway.workers.hub import Hub
from perdure.store.encoding import IdSource

_CONVERSATION_HEADERS = ("x-perdure-conversation", "x-conversation-id")
_LONG_BYTES = 200_000
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
ChatPrincipal = Annotated[Principal, Depends(require_scope("chat"))]

_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant"]},
        "content": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
    },
}
_BODY = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {"type": "string", "enum": [MODEL]},
        "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
        "stream": {"type": "boolean"},
        "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
        "user": {"type": "string", "maxLength": MAX_NAME_CHARS},
    },
}


def openai_router(hub: Hub, *, ids: IdSource, clock: Clock) -> APIRouter:
    """Router for the supported subset of OpenAI's API."""
    router = APIRouter(prefix="/v1", tags=["openai"])
    matcher = ConversationMatcher(hub.store, hub.pool, ids)

    @router.post(
        "/chat/completions",
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _BODY}}}},
    )
    async def complete(request: Request, principal: ChatPrincipal) -> Response:
        """Run a turn with the new messages and return its answer; with `stream`, as chunks."""
        completion = await _read(await request.body())
        name = _conversation_name(request)
        key = _scoped_key(request.headers.get("idempotency-key", ""), completion, name)
        target = await run_blocking(matcher.find, completion, principal, name)
        ticket = await hub.submit(
            ChatMessage(target.chat, _new_content(completion), target.conversation_id, key), principal
        )
        turn = CompletionTurn(hub, matcher, completion, principal, ticket)
        builder = ResponseBuilder(ticket.turn_id, clock.now_ms() // 1000)
        headers = {"x-perdure-ignored": ", ".join(completion.ignored)} if completion.ignored else {}
        if completion.is_stream:
            return StreamingResponse(
                turn.stream(builder), media_type="text/event-stream", headers={**_STREAM_HEADERS, **headers}
            )
        text = await _wait_unless_disconnected(request, turn)
        if (failure := turn.failure) is not None:
            raise ApiException(failure)
        if turn.conversation_id is not None:
            headers["x-perdure-conversation"] = turn.conversation_id
        build_completion = builder.build_completion(text, turn.outcome, turn.usage, turn.conversation_id)
        return JSONResponse(build_completion, headers=headers)

    @router.get("/models")
    async def list_models(principal: ChatPrincipal) -> Any:
        """List the agent as the only model."""
        return {"object": "list", "data": list_model_objects(clock.now_ms() // 1000)}

    @router.get("/models/{model}")
    async def get_model(model: str, principal: ChatPrincipal) -> Any:
        if model != MODEL:
            raise ApiException(ApiError(404, "model_not_found", f"model not found; available: {MODEL}"))
        return list_model_objects(clock.now_ms() // 1000)[0]

    return router


async def _read(body: bytes) -> CompletionRequest:
    """Parse the body; a long one in a worker thread, so that it does not block other requests."""
    if len(body) < _LONG_BYTES:
        return parse_request(_parse_json(body))
    return await run_blocking(lambda: parse_request(_parse_json(body)))


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise invalid_request("the body is not valid JSON") from None


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
    text = json.dumps([key, *address], ensure_ascii=True, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _new_content(completion: CompletionRequest) -> str | Mapping[str, Any]:
    """Return the new message, plain text as str, so that slash commands are recognized."""
    content = completion.new["content"]
    return content if isinstance(content, str) else completion.new


async def _wait_unless_disconnected(request: Request, turn: CompletionTurn) -> str:
    """Return the answer; if the client disconnects first, the turn is stopped."""
    text_task = asyncio.create_task(turn.text())
    disconnect = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait({text_task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if text_task.done():
            return text_task.result()
        raise ApiException(ApiError(499, "client_gone", "the client disconnected"))
    finally:
        for task in (text_task, disconnect):
            task.cancel()
        await asyncio.gather(text_task, disconnect, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
