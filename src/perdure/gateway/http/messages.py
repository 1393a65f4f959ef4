"""Messages and chats over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from perdure.core.errors import InvalidMessage
from perdure.gateway.guards.entrance import needs
from perdure.gateway.guards.people import Person
from perdure.gateway.http.bodies import AnswerBody, MessageBody, Platform, StoppedBody, TicketBody
from perdure.gateway.http.streaming import IDLE_S, sse
from perdure.gateway.hub import Hub
from perdure.gateway.telling.chats import ChatKey, Incoming, Ticket
from perdure.gateway.telling.wire import is_last, ticket_dict
from perdure.store.inbox import Taken

Talker = Annotated[Person, Depends(needs("chat"))]
Name = Annotated[str, Path(min_length=1, max_length=200)]


def message_router(hub: Hub) -> APIRouter:
    """Sending, following and stopping."""
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
    async def follow_message(turn_id: Name, person: Talker) -> Response:
        """The events of one message, up to its last."""
        taken = await hub.taken(turn_id, person)
        ticket = Ticket(taken.id, taken.conversation_id, "queued")
        return sse(lambda sink: hub.following.turn(ticket, idle_s=IDLE_S, sink=sink))

    @router.get("/chats/{chat}/events")
    async def follow(
        chat: Name,
        person: Talker,
        platform: Platform = "http",
        last_event_id: Annotated[str, Header(max_length=40)] = "",
    ) -> Response:
        """What happens in a chat, live; with `Last-Event-ID`, first what was missed since then."""
        after = int(last_event_id) if last_event_id.isascii() and last_event_id.isdecimal() else None
        followed = ChatKey(platform, person.user_key, chat)
        return sse(lambda sink: hub.following.chat(followed, after=after, idle_s=IDLE_S, sink=sink))

    @router.post("/chats/{chat}/stop", response_model=StoppedBody)
    async def stop(chat: Name, person: Talker, platform: Platform = "http") -> Any:
        """Interrupts the turn under way, in whichever process it runs."""
        return {"was_running": await hub.stop(ChatKey(platform, person.user_key, chat), person)}

    return router


def incoming_of(body: MessageBody, person: Person, *, key: str) -> Incoming:
    """A message as the hub takes it."""
    content: Any = body.content
    if not isinstance(content, str):
        if not all(isinstance(part.get("type"), str) for part in content):
            raise InvalidMessage('each part needs a "type", such as text or image_url')
        content = {"role": "user", "content": content}
    chat = ChatKey(body.platform, person.user_key, body.chat)
    return Incoming(chat, content, body.conversation_id, key)


def answer_dict(taken: Taken) -> dict[str, Any]:
    """A message with what came of it."""
    states = {"waiting": "queued", "running": "running", "done": "done"}
    known = {"turn_id": taken.id, "conversation_id": taken.conversation_id, "state": states[taken.state]}
    told = dict.fromkeys(("kind", "outcome", "text", "error", "level", "usage"))
    return {**known, **told, **(taken.result or {})}
