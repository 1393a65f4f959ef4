"""The routes: `/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from perdure.core.ports import Clock
from perdure.gateway.auth.middleware import needs
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import ApiError, ApiException
from perdure.gateway.events.types import ChatMessage
from perdure.gateway.executor import in_thread
from perdure.gateway.hub import Hub
from perdure.gateway.openai_api.conversation_match import Threads
from perdure.gateway.openai_api.request import MAX_NAME_CHARS, MODEL, CompletionRequest, read_request, wrong
from perdure.gateway.openai_api.response import Shapes, models
from perdure.gateway.openai_api.turn import Answering
from perdure.store.ids import IdSource

_NAMES = ("x-perdure-conversation", "x-conversation-id")
_LONG_BYTES = 200_000
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
Talker = Annotated[Principal, Depends(needs("chat"))]

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
    """OpenAI's API, as far as an agent can have one."""
    router = APIRouter(prefix="/v1", tags=["openai"])
    threads = Threads(hub.store, hub.pool, ids)

    @router.post(
        "/chat/completions",
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _BODY}}}},
    )
    async def complete(request: Request, person: Talker) -> Response:
        """The agent's answer to what is new in `messages`; with `stream`, as it comes."""
        asked = await _read(await request.body())
        name, key = _name(request), request.headers.get("idempotency-key", "")
        thread = await in_thread(threads.find, asked, person, name)
        ticket = await hub.submit(ChatMessage(thread.chat, _said(asked), thread.conversation_id, key), person)
        answering = Answering(hub, threads, asked, person, ticket)
        shapes = Shapes(ticket.turn_id, clock.now_ms() // 1000)
        headers = {"x-perdure-ignored": ", ".join(asked.ignored)} if asked.ignored else {}
        if asked.is_stream:
            return StreamingResponse(
                answering.stream(shapes), media_type="text/event-stream", headers={**_STREAM_HEADERS, **headers}
            )
        text = await _unless_gone(request, answering)
        if (failure := answering.failure) is not None:
            raise ApiException(failure)
        if answering.conversation_id is not None:
            headers["x-perdure-conversation"] = answering.conversation_id
        whole = shapes.whole(text, answering.outcome, answering.usage, answering.conversation_id)
        return JSONResponse(whole, headers=headers)

    @router.get("/models")
    async def list_models(person: Talker) -> Any:
        """The agent, as the one model there is."""
        return {"object": "list", "data": models(clock.now_ms() // 1000)}

    @router.get("/models/{model}")
    async def get_model(model: str, person: Talker) -> Any:
        if model != MODEL:
            raise ApiException(ApiError(404, "model_not_found", f"there is no such model here; there is one: {MODEL}"))
        return models(clock.now_ms() // 1000)[0]

    return router


async def _read(body: bytes) -> CompletionRequest:
    """What is asked; a long body is read in a thread, so that nobody else waits for it."""
    if len(body) < _LONG_BYTES:
        return read_request(_parsed(body))
    return await in_thread(lambda: read_request(_parsed(body)))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise wrong("the body is no JSON") from None


def _name(request: Request) -> str | None:
    """The conversation's name in the headers."""
    given = next((request.headers[name] for name in _NAMES if request.headers.get(name)), None)
    if given is not None and len(given) > MAX_NAME_CHARS:
        raise wrong(f"the name of a conversation has at most {MAX_NAME_CHARS} characters")
    return given


def _said(asked: CompletionRequest) -> str | Mapping[str, Any]:
    """The new message; plain text as text, so that slash commands are seen as such."""
    content = asked.new["content"]
    return content if isinstance(content, str) else asked.new


async def _unless_gone(request: Request, answering: Answering) -> str:
    """The answer, unless the client hangs up first: then the turn is stopped, as it is for a stream."""
    answer = asyncio.create_task(answering.text())
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ApiException(ApiError(499, "client_gone", "the client hung up"))
    finally:
        for task in (answer, gone):
            task.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
