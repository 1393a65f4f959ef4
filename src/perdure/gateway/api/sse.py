"""Events as server-sent events: all that came since the last write goes out in one, so that slow readers catch up."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Generator
from json.encoder import encode_basestring_ascii
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from perdure.core.events import TextDelta
from perdure.gateway.events.broker import Sink
from perdure.gateway.events.serialize import encoded, json_text, type_of
from perdure.gateway.events.subscribe import Batches
from perdure.gateway.events.types import SequencedEvent

# A comment now and then keeps proxies from hanging up on a chat in which nothing happens.
IDLE_S = 15.0
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class EventStream(Response):
    """A response that goes on as long as events come; written straight to the server, without a task for each piece."""

    media_type = "text/event-stream"

    def __init__(self, follow: Callable[[Sink], Batches]) -> None:
        self.status_code = 200
        self.background = None
        self._follow = follow
        self._send: Send | None = None
        # A piece of text that was begun at once, and that the connection made wait after all.
        self._begun: asyncio.Future[None] | None = None
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # The first bytes tell the reader that it is connected, before anything happens.
        await send(_body(b": open\n\n"))
        self._send = send
        writing = asyncio.ensure_future(self._write(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((writing, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            writing.cancel()
            await asyncio.gather(gone, writing, return_exceptions=True)
        if not writing.cancelled() and (failed := writing.exception()) is not None:
            raise failed

    async def _write(self, send: Send) -> None:
        batches = self._follow(self._write_at_once)
        try:
            async for batch in batches:
                await self._settle()
                await send(_body(frame(batch[0]) if len(batch) == 1 else b"".join(map(frame, batch)) or b": idle\n\n"))
            await self._settle()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await batches.aclose()
            if self._begun is not None:
                self._begun.cancel()

    def _write_at_once(self, numbered: SequencedEvent) -> bool:
        """The sink: to the server within the very call that brings the text, as long as the connection takes it."""
        if self._send is None or self._begun is not None:
            return False
        steps = self._send(_body(frame(numbered))).__await__()
        try:
            waits_for = next(steps)
        except StopIteration:
            return True
        except Exception:  # nothing went out: the writing task meets the same trouble, and deals with it
            return False
        self._begun = asyncio.ensure_future(_rest_of(steps, waits_for))
        return True

    async def _settle(self) -> None:
        """What was begun is out before anything else goes. Raises what it raised."""
        if self._begun is not None:
            await self._begun
            self._begun = None


def sse(follow: Callable[[Sink], Batches]) -> Response:
    return EventStream(follow)


def _body(content: bytes) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": True}


@types.coroutine
def _rest_of(steps: Generator[Any, None, None], waits_for: Any) -> Generator[Any, None, None]:
    """Goes on, as a coroutine of its own, with one whose first step was made by hand."""
    yield waits_for
    yield from steps


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def frame(numbered: SequencedEvent) -> bytes:
    """`id`, `event` and `data`; the data is one line of JSON."""
    event = numbered.event
    if type(event) is TextDelta:  # nearly all there are: put together by hand, in the very same words
        number, text = numbered.number, encode_basestring_ascii(event.text)
        data = f'{{"type":"text_delta","number":{number},"turn_id":"{numbered.turn_id}","text":{text}}}'
        return f"id: {number}\nevent: text_delta\ndata: {data}\n\n".encode()
    head = f"id: {numbered.number}\nevent: {type_of(event)}\n"
    return f"{head}data: {json_text(encoded(numbered))}\n\n".encode()
