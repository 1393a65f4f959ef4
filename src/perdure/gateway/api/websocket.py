"""The WebSocket: the same JSON as everywhere, both ways over one connection.

in    {"type": "message", "content": "…", "chat": "main", …}   {"type": "follow", "chat": "main", "after": 7}
      {"type": "stop", "chat": "main"}   {"type": "answer", "question_id": "q_…", "answer": "once"}
out   {"type": "ticket", …}   {"type": "error", "error": {…}}   and every event of the chats one follows

Whoever sends to a chat follows it from then on. An "id" in what comes in is given back in what answers it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, WebSocket
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.websockets import WebSocketDisconnect

from perdure.core.errors import InvalidMessage, PerdureError
from perdure.gateway.api.messages import incoming_of
from perdure.gateway.api.schemas import MessageBody, Name, Platform
from perdure.gateway.auth.middleware import needs
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import refusal_of
from perdure.gateway.events.serialize import encoded, json_text, ticket_dict
from perdure.gateway.events.types import ChatKey
from perdure.gateway.executor import in_thread
from perdure.gateway.hub import Hub

MOST_FOLLOWED = 100
# Parsing a longer message takes long enough to hold others up.
_LONG_CHARS = 262_144
# A frame of a kind that is not taken, as a WebSocket's close code.
_UNSUPPORTED = 1003


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str | int | None = None


class MessageIn(MessageBody):
    type: Literal["message"]
    id: str | int | None = None


class FollowIn(_In):
    type: Literal["follow"]
    chat: Name = "main"
    platform: Platform = "http"
    after: int | None = None


class StopIn(_In):
    type: Literal["stop"]
    chat: Name = "main"
    platform: Platform = "http"


class AnswerIn(_In):
    type: Literal["answer"]
    question_id: Name
    answer: Annotated[str, Field(min_length=1, max_length=10_000)]


AnyIn = Annotated[MessageIn | FollowIn | StopIn | AnswerIn, Field(discriminator="type")]
_READ: TypeAdapter[MessageIn | FollowIn | StopIn | AnswerIn] = TypeAdapter(AnyIn)


def socket_router(hub: Hub) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.websocket("/ws")
    async def connect(socket: WebSocket, person: Annotated[Principal, Depends(needs("chat"))]) -> None:
        await socket.accept()
        await _SocketSession(socket, person, hub).run()

    return router


class _SocketSession:
    """One open socket: what it follows, and one message out at a time."""

    def __init__(self, socket: WebSocket, person: Principal, hub: Hub) -> None:
        self._socket = socket
        self._person = person
        self._hub = hub
        self._sending = asyncio.Lock()
        self._following: dict[ChatKey, asyncio.Task[None]] = {}

    async def run(self) -> None:
        try:
            while (text := await self._next_text()) is not None:
                await self._hear(text)
        except WebSocketDisconnect:
            pass
        finally:
            for task in self._following.values():
                task.cancel()
            await asyncio.gather(*self._following.values(), return_exceptions=True)

    async def _next_text(self) -> str | None:
        """The next text frame; None once the connection is over. Bytes are refused, and end it."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        if text is None:
            await self._refuse(InvalidMessage("this takes JSON in text frames, not binary frames"), None)
            await self._socket.close(_UNSUPPORTED, "binary frames are not taken")
        return text

    async def _hear(self, text: str) -> None:
        ident: Any = None
        try:
            raw = json.loads(text) if len(text) < _LONG_CHARS else await in_thread(json.loads, text)
            ident = raw.get("id") if isinstance(raw, dict) else None
            await self._do(_READ.validate_python(raw))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"][1:])
            await self._refuse(InvalidMessage(f"{where}: {first['msg']}" if where else first["msg"]), ident)
        except RecursionError:
            await self._refuse(InvalidMessage("this JSON is nested too deeply"), ident)
        except ValueError:
            await self._refuse(InvalidMessage("this is no JSON"), ident)
        except PerdureError as error:
            await self._refuse(error, ident)

    async def _do(self, heard: MessageIn | FollowIn | StopIn | AnswerIn) -> None:
        done: dict[str, Any] = {"type": "done", "id": heard.id}
        match heard:
            case MessageIn():
                incoming = incoming_of(heard, self._person, key=heard.key)
                self._follow(incoming.chat, None)
                ticket = await self._hub.submit(incoming, self._person)
                done = {"type": "ticket", "id": heard.id, **ticket_dict(ticket)}
            case FollowIn():
                self._follow(ChatKey(heard.platform, self._person.user_key, heard.chat), heard.after)
            case StopIn():
                chat = ChatKey(heard.platform, self._person.user_key, heard.chat)
                done["was_running"] = await self._hub.stop(chat, self._person)
            case AnswerIn():
                await self._hub.answer(heard.question_id, heard.answer, self._person)
        await self._send(done)

    def _follow(self, chat: ChatKey, after: int | None) -> None:
        if chat in self._following:
            return
        if len(self._following) >= MOST_FOLLOWED:
            raise InvalidMessage(f"one connection follows at most {MOST_FOLLOWED} chats")
        # Followed from this very moment: nothing that happens before the task has begun is missed.
        batches = self._hub.following.chat(chat, after=after)

        async def pass_on() -> None:
            async for batch in batches:
                for numbered in batch:
                    await self._send({"chat": chat.chat, **encoded(numbered)})

        self._following[chat] = asyncio.create_task(pass_on())

    async def _refuse(self, error: PerdureError, ident: Any) -> None:
        await self._send({"type": "error", "id": ident, **refusal_of(error).body})

    async def _send(self, value: dict[str, Any]) -> None:
        async with self._sending:
            await self._socket.send_text(json_text(value))
