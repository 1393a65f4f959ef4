"""The WebSocket endpoint: commands in, events out, in the same JSON as the other endpoints.

in    {"type": "message", "content": "…", "chat": "main", …}   {"type": "follow", "chat": "main", "after": 7}
      {"type": "stop", "chat": "main"}   {"type": "answer", "question_id": "q_…", "answer": "once"}
out   {"type": "ticket", …}   {"type": "error", "error": {…}}   and the events of every subscribed chat

Sending to a chat subscribes to it. The "id" of a command is returned in its response.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, WebSocket
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.websockets import WebSocketDisconnect

from perdure.core.errors import InvalidMessage, PerdureError
from perdure.gateway.api.messages import to_chat_message
from perdure.gateway.api.schemas import MessageBody, Name, Platform
from perdure.gateway.auth.middleware import require_scope
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import ApiException, to_api_error
from perdure.gateway.events.serialize import encode_event, ticket_to_dict, to_json
from perdure.gateway.events.types import ChatKey
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.hub import Hub

MAX_SUBSCRIPTIONS = 100
# Parse longer messages in a worker thread.
_LONG_CHARS = 262_144
# WebSocket close code: unsupported data.
_UNSUPPORTED = 1003


class _SocketCommand(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str | int | None = None


class MessageIn(MessageBody):
    type: Literal["message"]
    id: str | int | None = None


class FollowIn(_SocketCommand):
    type: Literal["follow"]
    chat: Name = "main"
    platform: Platform = "http"
    after: int | None = None


class StopIn(_SocketCommand):
    type: Literal["stop"]
    chat: Name = "main"
    platform: Platform = "http"


class AnswerIn(_SocketCommand):
    type: Literal["answer"]
    question_id: Name
    answer: Annotated[str, Field(min_length=1, max_length=10_000)]


AnyIn = Annotated[MessageIn | FollowIn | StopIn | AnswerIn, Field(discriminator="type")]
_COMMAND: TypeAdapter[MessageIn | FollowIn | StopIn | AnswerIn] = TypeAdapter(AnyIn)


def socket_router(hub: Hub) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.websocket("/ws")
    async def connect(socket: WebSocket, principal: Annotated[Principal, Depends(require_scope("chat"))]) -> None:
        await socket.accept()
        await _SocketSession(socket, principal, hub).run()

    return router


class _SocketSession:
    """A WebSocket connection: its subscriptions, and a lock that serializes writes."""

    def __init__(self, socket: WebSocket, principal: Principal, hub: Hub) -> None:
        self._socket = socket
        self._principal = principal
        self._hub = hub
        self._send_lock = asyncio.Lock()
        self._feeds: dict[ChatKey, asyncio.Task[None]] = {}

    async def run(self) -> None:
        try:
            while (text := await self._next_text()) is not None:
                await self._handle_text(text)
        except WebSocketDisconnect:
            pass
        finally:
            for task in self._feeds.values():
                task.cancel()
            await asyncio.gather(*self._feeds.values(), return_exceptions=True)

    async def _next_text(self) -> str | None:
        """Return the next text frame; None once the connection is closed. Binary frames are rejected."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        if text is None:
            await self._send_error(InvalidMessage("send JSON in text frames, not binary frames"), None)
            await self._socket.close(_UNSUPPORTED, "binary frames are not supported")
        return text

    async def _handle_text(self, text: str) -> None:
        request_id: Any = None
        try:
            raw = json.loads(text) if len(text) < _LONG_CHARS else await run_blocking(json.loads, text)
            request_id = raw.get("id") if isinstance(raw, dict) else None
            await self._run_command(_COMMAND.validate_python(raw))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            path = ".".join(str(part) for part in first["loc"][1:])
            await self._send_error(InvalidMessage(f"{path}: {first['msg']}" if path else first["msg"]), request_id)
        except RecursionError:
            await self._send_error(InvalidMessage("the JSON is nested too deeply"), request_id)
        except ValueError:
            await self._send_error(InvalidMessage("invalid JSON"), request_id)
        except (PerdureError, ApiException) as error:
            await self._send_error(error, request_id)

    async def _run_command(self, command: MessageIn | FollowIn | StopIn | AnswerIn) -> None:
        reply: dict[str, Any] = {"type": "done", "id": command.id}
        match command:
            case MessageIn():
                incoming = to_chat_message(command, self._principal, key=command.key)
                self._follow(incoming.chat, None)
                ticket = await self._hub.submit(incoming, self._principal)
                reply = {"type": "ticket", "id": command.id, **ticket_to_dict(ticket)}
            case FollowIn():
                self._follow(ChatKey(command.platform, self._principal.user, command.chat), command.after)
            case StopIn():
                chat = ChatKey(command.platform, self._principal.user, command.chat)
                reply["was_running"] = await self._hub.stop(chat, self._principal)
            case AnswerIn():
                await self._hub.answer(command.question_id, command.answer, self._principal)
        await self._send(reply)

    def _follow(self, chat: ChatKey, after: int | None) -> None:
        if chat in self._feeds:
            return
        if len(self._feeds) >= MAX_SUBSCRIPTIONS:
            raise InvalidMessage(f"one connection can subscribe to {MAX_SUBSCRIPTIONS} chats at most")
        # Subscribe before the task starts, so that no event is missed.
        batches = self._hub.feeds.chat(chat, visibility=self._principal.visibility, after=after)

        async def forward() -> None:
            async for batch in batches:
                for sequenced in batch:
                    await self._send({"chat": chat.chat, **encode_event(sequenced)})

        self._feeds[chat] = asyncio.create_task(forward())

    async def _send_error(self, error: PerdureError | ApiException, request_id: Any) -> None:
        await self._send({"type": "error", "id": request_id, **to_api_error(error).body})

    async def _send(self, value: dict[str, Any]) -> None:
        async with self._send_lock:
            await self._socket.send_text(to_json(value))
