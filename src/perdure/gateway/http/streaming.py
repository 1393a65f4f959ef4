"""Events as server-sent events: all that came since the last write goes out in one, so that slow readers catch up."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from perdure.gateway.chats import Numbered
from perdure.gateway.wire import encoded, json_text, type_of

# A comment now and then keeps proxies from hanging up on a chat in which nothing happens.
IDLE_S = 15.0
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def sse(batches: AsyncIterator[list[Numbered]]) -> StreamingResponse:
    """A response that goes on as long as events come."""
    return StreamingResponse(_frames(batches), media_type="text/event-stream", headers=_HEADERS)


async def _frames(batches: AsyncIterator[list[Numbered]]) -> AsyncIterator[bytes]:
    # The first bytes tell the reader that it is connected, before anything happens.
    yield b": open\n\n"
    async for batch in batches:
        yield b"".join(frame(n) for n in batch) or b": idle\n\n"


def frame(numbered: Numbered) -> bytes:
    """`id`, `event` and `data`; the data is one line of JSON."""
    head = f"id: {numbered.number}\nevent: {type_of(numbered.event)}\n"
    return f"{head}data: {json_text(encoded(numbered))}\n\n".encode()
