"""Events as server-sent events: all that came since the last write goes out in one, so that slow readers catch up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from json.encoder import encode_basestring_ascii

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure.core.events import TextDelta
from perdure.gateway.chats import Numbered
from perdure.gateway.wire import encoded, json_text, type_of

# A comment now and then keeps proxies from hanging up on a chat in which nothing happens.
IDLE_S = 15.0
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class EventStream(Response):
    """A response that goes on as long as events come; written straight to the server, without a task for each piece."""

    media_type = "text/event-stream"

    def __init__(self, batches: AsyncGenerator[list[Numbered], None]) -> None:
        self.status_code = 200
        self.background = None
        self._batches = batches
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # The first bytes tell the reader that it is connected, before anything happens.
        await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
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
        try:
            async for batch in self._batches:
                body = frame(batch[0]) if len(batch) == 1 else b"".join(map(frame, batch)) or b": idle\n\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._batches.aclose()


def sse(batches: AsyncGenerator[list[Numbered], None]) -> Response:
    return EventStream(batches)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def frame(numbered: Numbered) -> bytes:
    """`id`, `event` and `data`; the data is one line of JSON."""
    event = numbered.event
    if type(event) is TextDelta:  # nearly all there are: put together by hand, in the very same words
        number, text = numbered.number, encode_basestring_ascii(event.text)
        data = f'{{"type":"text_delta","number":{number},"turn_id":"{numbered.turn_id}","text":{text}}}'
        return f"id: {number}\nevent: text_delta\ndata: {data}\n\n".encode()
    head = f"id: {numbered.number}\nevent: {type_of(event)}\n"
    return f"{head}data: {json_text(encoded(numbered))}\n\n".encode()
