"""Messages and chats over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from perdure.core.errors import InvalidMessage
from perdure.core.messages import Message
from perdure.gateway.api.schemas import AnswerBody, MessageBody, Platform, StoppedBody, TicketBody, UnansweredBody
from perdure.gateway.api.sse import IDLE_S, sse
from perdure.gateway.auth.middleware import needs
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.serialize import is_last, ticket_dict
from perdure.gateway.events.types import ChatKey, ChatMessage, Ticket
from perdure.gateway.hub import Hub
from perdure.store.inbox import QueuedMessage

Talker = Annotated[Principal, Depends(needs("chat"))]
Name = Annotated[str, Path(min_length=1, max_length=200)]
LastEventId = Annotated[str, Header(max_length=40)]
_STATES = {"waiting": "queued", "running": "running", "done": "done"}


def message_router(hub: Hub) -> APIRouter:
    """Sending a message, and whatever becomes of it."""
    router = APIRouter(prefix="/api", tags=["messages"])

    @router.post("/messages", status_code=202, response_model=TicketBody, responses={200: {"model": AnswerBody}})
    async def send(
        request: Request,
        body: MessageBody,
        person: Talker,
        wait: Annotated[bool, Query(description="Answer with what came of it, once it is there.")] = False,
        idempotency_key: Annotated[str, Header(max_length=200)] = "",
    ) -> Response:
        """Takes a message: it is on disk when this answers. `Accept: text/event-stream` asks for its events instead."""
        ticket = await hub.submit(incoming_of(body, person, key=body.key or idempotency_key), person)
        if "text/event-stream" in request.headers.get("accept", ""):
            return sse(lambda sink: hub.following.turn(ticket, idle_s=IDLE_S, sink=sink))
        if wait:
            async for batch in hub.following.turn(ticket):
                if any(is_last(n.event) for n in batch):
                    break
            taken = await hub.taken(ticket.turn_id, person)
            return JSONResponse(answer_dict(taken))
        return JSONResponse(ticket_dict(ticket), status_code=202)

    @router.get("/messages/{turn_id}", response_model=AnswerBody)
    async def look_up(turn_id: Name, person: Talker) -> Any:
        """How far a message of one's own is, and what came of it; for a week."""
        return answer_dict(await hub.taken(turn_id, person))

    @router.get("/messages/{turn_id}/events")
    async def follow_message(turn_id: Name, person: Talker, last_event_id: LastEventId = "") -> Response:
        """The events of one message, up to its last; with `Last-Event-ID`, those since then."""
        taken, after = await hub.taken(turn_id, person), _number(last_event_id)
        ticket = Ticket(taken.id, taken.conversation_id, "queued")
        return sse(lambda sink: hub.following.turn(ticket, after=after, idle_s=IDLE_S, sink=sink))

    @router.post("/messages/{turn_id}/stop", response_model=StoppedBody)
    async def stop_message(turn_id: Name, person: Talker) -> Any:
        """Interrupts one message of one's own, in whichever chat and process it is worked on."""
        return {"was_running": await hub.stop_message(turn_id, person)}

    return router


def chat_router(hub: Hub) -> APIRouter:
    """Where messages are said: what waits there, following it, and stopping it."""
    router = APIRouter(prefix="/api", tags=["messages"])

    @router.get("/conversations/{conversation_id}/messages", response_model=list[UnansweredBody])
    async def unanswered(conversation_id: Name, person: Talker) -> Any:
        """What one said in a conversation that is worked on or waits, oldest first."""
        return [unanswered_dict(taken) for taken in await hub.unanswered(conversation_id, person)]

    @router.get("/chats/{chat}/events")
    async def follow(
        chat: Name, person: Talker, platform: Platform = "http", last_event_id: LastEventId = ""
    ) -> Response:
        """What happens in a chat, live; with `Last-Event-ID`, first what was missed since then."""
        after = _number(last_event_id)
        followed = ChatKey(platform, person.user_key, chat)
        return sse(lambda sink: hub.following.chat(followed, after=after, idle_s=IDLE_S, sink=sink))

    @router.post("/chats/{chat}/stop", response_model=StoppedBody)
    async def stop(chat: Name, person: Talker, platform: Platform = "http") -> Any:
        """Interrupts the turn under way, in whichever process it runs."""
        return {"was_running": await hub.stop(ChatKey(platform, person.user_key, chat), person)}

    return router


def incoming_of(body: MessageBody, person: Principal, *, key: str) -> ChatMessage:
    """A message as the hub takes it."""
    content: Any = body.content
    if not isinstance(content, str):
        if not all(isinstance(part.get("type"), str) for part in content):
            raise InvalidMessage('each part needs a "type", such as text or image_url')
        content = {"role": "user", "content": content}
    chat = ChatKey(body.platform, person.user_key, body.chat)
    return ChatMessage(chat, content, body.conversation_id, key)


def answer_dict(taken: QueuedMessage) -> dict[str, Any]:
    """A message with what came of it."""
    known = {"turn_id": taken.id, "conversation_id": taken.conversation_id, "state": _STATES[taken.state]}
    result = taken.result or {}
    return {**known, **{name: result.get(name) for name in ("kind", "outcome", "text", "error", "level", "usage")}}


def unanswered_dict(taken: QueuedMessage) -> dict[str, Any]:
    """A message that is not answered yet, with its words: those that wait stand nowhere else."""
    said = Message.from_dict(taken.inbound.content).text
    known = {"turn_id": taken.id, "conversation_id": taken.conversation_id, "state": _STATES[taken.state]}
    return {**known, "platform": taken.inbound.platform, "chat": taken.inbound.chat, "text": said}


def _number(last_event_id: str) -> int | None:
    return int(last_event_id) if last_event_id.isascii() and last_event_id.isdecimal() else None
