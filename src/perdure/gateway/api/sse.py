"""Stream events as server-sent events, one write per batch, so that slow clients catch up."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from json.encoder import encode_basestring_ascii
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from perdure.core.events import TextDelta
from perdure.gateway.events.broker import Sink
from perdure.gateway.events.serialize import encode_event, event_type, to_json
from perdure.gateway.events.subscribe import Batches
from perdure.gateway.events.types import SequencedEvent

# Interval of the comments that keep proxies from closing an idle connection.
IDLE_S = 15.0
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class EventStream(Response):
    """A streaming response that writes directly to the server, without scheduling a task per event."""

    media_type = "text/event-stream"

    def __init__(self, open_feed: Callable[[Sink], Batches]) -> None:
        self.status_code = 200
        self.background = None
        self._open_feed = open_feed
        self._send: Send | None = None
        # A write that was started immediately and then blocked on the connection.
        self._pending_send: asyncio.Future[None] | None = None
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # Send the first bytes at once, so that the client knows it is connected.
        await send(_body(b": open\n\n"))
        self._send = send
        writer = asyncio.ensure_future(self._write(send))
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((writer, disconnect), return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            writer.cancel()
            await asyncio.gather(disconnect, writer, return_exceptions=True)
        if not writer.cancelled() and (error := writer.exception()) is not None:
            raise error

    async def _write(self, send: Send) -> None:
        batches = self._open_feed(self._write_now)
        try:
            async for batch in batches:
                await self._flush_pending()
                await send(
                    _body(
                        format_event(batch[0])
                        if len(batch) == 1
                        else b"".join(map(format_event, batch)) or b": idle\n\n"
                    )
                )
            await self._flush_pending()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await batches.aclose()
            if self._pending_send is not None:
                self._pending_send.cancel()

    def _write_now(self, sequenced: SequencedEvent) -> bool:
        """Sink: write a delta synchronously if the connection accepts it; return whether it was written."""
        if self._send is None or self._pending_send is not None:
            return False
        try:
            self._pending_send = _start_now(self._send(_body(format_event(sequenced))))
        except Exception:  # nothing was sent: the writer task will hit the same error and handle it
            return False
        return True

    async def _flush_pending(self) -> None:
        """Wait for the blocked write before the next one. Raises its exception."""
        if self._pending_send is not None:
            await self._pending_send
            self._pending_send = None


def event_stream(open_feed: Callable[[Sink], Batches]) -> Response:
    return EventStream(open_feed)


def _body(content: bytes) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": True}


def _start_now(work: Awaitable[None]) -> asyncio.Future[None] | None:
    """Run an awaitable up to its first suspension in the caller's own step; return a future for the rest, if any.

    The server's `send` suspends only while the connection's buffer is full: mostly no task has to be scheduled.
    """
    steps = work.__await__()
    try:
        awaited = next(steps)
    except StopIteration:
        return None
    return asyncio.ensure_future(_resume(steps, awaited))


@types.coroutine
def _resume(coroutine: Generator[Any, None, None], awaited: Any) -> Generator[Any, None, None]:
    """Continue a coroutine whose first step was already run."""
    yield awaited
    yield from coroutine


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def format_event(sequenced: SequencedEvent) -> bytes:
    """Format `id`, `event` and `data`, with the data as one line of JSON."""
    event = sequenced.event
    if type(event) is TextDelta:  # by far the most frequent: formatted by hand, byte for byte the same
        number, text = sequenced.number, encode_basestring_ascii(event.text)
        data = f'{{"type":"text_delta","number":{number},"turn_id":"{sequenced.turn_id}","text":{text}}}'
        return f"id: {number}\nevent: text_delta\ndata: {data}\n\n".encode()
    head = f"id: {sequenced.number}\nevent: {event_type(event)}\n"
    return f"{head}data: {to_json(encode_event(sequenced))}\n\n".encode()
