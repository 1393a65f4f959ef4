"""Routes to send messages, follow their events and stop turns."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from perdure.commands.command import is_command
from perdure.core.errors import InvalidMessage
from perdure.core.messages import with_pastes
from perdure.gateway.api.schemas import AnswerBody, MessageBody, Platform, StoppedBody, TicketBody, UnansweredBody
from perdure.gateway.api.sse import IDLE_S, event_stream
from perdure.gateway.auth.middleware import require_scope
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.serialize import is_final, ticket_to_dict
from perdure.gateway.events.types import ChatKey, ChatMessage, Ticket
from perdure.gateway.workers.hub import Hub

ChatPrincipal = Annotated[Principal, Depends(require_scope("chat"))]
Name = Annotated[str, Path(min_length=1, max_length=200)]
LastEventId = Annotated[str, Header(max_length=40)]


def message_router(hub: Hub) -> APIRouter:
    """Endpoints to send a message and get its result."""
    router = APIRouter(prefix="/api", tags=["messages"])

    @router.post("/messages", status_code=202, response_model=TicketBody, responses={200: {"model": AnswerBody}})
    async def send(
        request: Request,
        body: MessageBody,
        principal: ChatPrincipal,
        wait: Annotated[bool, Query(description="Wait for the result and return it.")] = False,
        idempotency_key: Annotated[str, Header(max_length=200)] = "",
    ) -> Response:
        """Store a message and return its ticket; with `Accept: text/event-stream`, stream its events instead."""
        ticket = await hub.submit(to_chat_message(body, principal, key=body.key or idempotency_key), principal)
        visibility = principal.visibility
        if "text/event-stream" in request.headers.get("accept", ""):
            return event_stream(lambda sink: hub.feeds.turn(ticket, visibility=visibility, idle_s=IDLE_S, sink=sink))
        if wait:
            async for batch in hub.feeds.turn(ticket, visibility=visibility):
                if any(is_final(n.event) for n in batch):
                    break
            queued = await hub.get_message(ticket.turn_id, principal)
            return JSONResponse(AnswerBody.model_validate(queued).model_dump())
        return JSONResponse(ticket_to_dict(ticket), status_code=202)

    @router.get("/messages/{turn_id}")
    async def get_message(turn_id: Name, principal: ChatPrincipal) -> AnswerBody:
        """Return the state and result of one of your messages; results are stored for a week."""
        return AnswerBody.model_validate(await hub.get_message(turn_id, principal))

    @router.get("/messages/{turn_id}/events")
    async def follow_message(turn_id: Name, principal: ChatPrincipal, last_event_id: LastEventId = "") -> Response:
        """Stream the events of one message to its final one; with `Last-Event-ID`, resume after that event."""
        queued, after = await hub.get_message(turn_id, principal), _parse_event_id(last_event_id)
        ticket = Ticket(queued.id, queued.conversation_id, "queued")
        visibility = principal.visibility
        return event_stream(
            lambda sink: hub.feeds.turn(ticket, visibility=visibility, after=after, idle_s=IDLE_S, sink=sink)
        )

    @router.post("/messages/{turn_id}/stop", response_model=StoppedBody)
    async def stop_message(turn_id: Name, principal: ChatPrincipal) -> Any:
        """Interrupt one of your messages, in whichever process it runs."""
        return {"was_running": await hub.stop_message(turn_id, principal)}

    return router


def chat_router(hub: Hub) -> APIRouter:
    """Endpoints of a chat: list unanswered messages, stream events, stop."""
    router = APIRouter(prefix="/api", tags=["messages"])

    @router.get("/conversations/{conversation_id}/messages")
    async def unanswered(conversation_id: Name, principal: ChatPrincipal) -> list[UnansweredBody]:
        """List your running and queued messages of a conversation, oldest first."""
        messages = await hub.list_unanswered(conversation_id, principal)
        return [UnansweredBody.model_validate(queued) for queued in messages]

    @router.get("/chats/{chat}/events")
    async def subscribe(
        chat: Name, principal: ChatPrincipal, platform: Platform = "http", last_event_id: LastEventId = ""
    ) -> Response:
        """Stream the events of a chat; with `Last-Event-ID`, first replay those that were missed."""
        after = _parse_event_id(last_event_id)
        chat_key, visibility = ChatKey(platform, principal.user, chat), principal.visibility
        return event_stream(
            lambda sink: hub.feeds.chat(chat_key, visibility=visibility, after=after, idle_s=IDLE_S, sink=sink)
        )

    @router.post("/chats/{chat}/stop", response_model=StoppedBody)
    async def stop(chat: Name, principal: ChatPrincipal, platform: Platform = "http") -> Any:
        """Interrupt the running turn, in whichever process it runs."""
        return {"was_running": await hub.stop(ChatKey(platform, principal.user, chat), principal)}

    return router


def to_chat_message(body: MessageBody, principal: Principal, *, key: str) -> ChatMessage:
    """Convert a request body to the hub's message. Raises InvalidMessage."""
    content: Any = body.content
    if not isinstance(content, str):
        if not all(isinstance(part.get("type"), str) for part in content):
            raise InvalidMessage('each part needs a "type", such as text or image_url')
        content = {"role": "user", "content": content}
    chat = ChatKey(body.platform, principal.user, body.chat)
    if not (isinstance(content, str) and is_command(content)):
        content = with_pastes(content, body.pasted)
    return ChatMessage(chat, content, body.conversation_id, key)


def _parse_event_id(last_event_id: str) -> int | None:
    return int(last_event_id) if last_event_id.isascii() and last_event_id.isdecimal() else None
