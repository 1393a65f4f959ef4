"""HTTP client for processes with hundreds of streams: HTTP/1.1 on asyncio transports with a parser written in C.

A stream of twenty chunks a second costs more in a general HTTP client than in all of Perdure's own code. This client
supports what model calls need: POST, TLS, chunked or plain bodies, gzip, keep-alive. No proxies, no redirects.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

from perdure.providers.http import ChunkSink, trusted_authorities, url_of
from perdure.providers.types import Endpoint

_KEEP_ALIVE_S = 60.0
# Back-pressure: pause the socket above this many buffered bytes.
_MAX_BUFFERED_BYTES = 1 << 20
# A few are usual (100 Continue, 102 Processing, 103 Early Hints); more would keep a call waiting for ever.
_MAX_INTERIM_RESPONSES = 1_000


class ConnectTimeout(OSError):
    """The connection was not established in time."""


class InvalidURL(OSError):
    """The URL is not a valid HTTP address."""


class AsyncioHttpClient:
    """An `HttpClient` on asyncio. Connections belong to the loop they were opened in."""

    def __init__(self) -> None:
        self._idle: dict[_Target, list[_Connection]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AsyncIterator[_Connection]:
        target, path = _parse_target(url_of(endpoint.base_url, path))
        request = _head(target, path, headers, len(body)) + body
        connection = await self._send(target, request, connect_s)
        try:
            yield connection
        finally:
            if connection.is_reusable:
                self._idle.setdefault(target, []).append(connection)
            else:
                connection.close()

    def failures(self) -> tuple[type[BaseException], ...]:
        return (OSError, httptools.HttpParserError, zlib.error)

    async def aclose(self) -> None:
        idle, self._idle = self._idle, {}
        for connection in (c for connections in idle.values() for c in connections):
            connection.close()

    async def _send(self, target: _Target, request: bytes, connect_s: float) -> _Connection:
        """Return a connection whose response has begun; an idle connection that has died is replaced by a new one."""
        while (idle_connection := self._idle_connection(target)) is not None:
            try:
                return await idle_connection.send(request)
            except OSError:
                if idle_connection.has_begun:
                    raise
            except BaseException:
                idle_connection.close()
                raise
        connection = await self._connect(target, connect_s)
        try:
            return await connection.send(request)
        except BaseException:
            connection.close()
            raise

    def _idle_connection(self, target: _Target) -> _Connection | None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._loop = {}, loop
        idle = self._idle.get(target, [])
        while idle:
            connection = idle.pop()
            if connection.is_reusable and connection.idle_since_s > time.monotonic() - _KEEP_ALIVE_S:
                return connection
            connection.close()
        return None

    async def _connect(self, target: _Target, connect_s: float) -> _Connection:
        loop = asyncio.get_running_loop()
        if target.is_tls and self._tls is None:
            self._tls = trusted_authorities()
        tls = self._tls if target.is_tls else None
        try:
            async with asyncio.timeout(connect_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop),
                    target.host,
                    target.port,
                    ssl=tls,
                    server_hostname=target.host if tls else None,
                )
        except TimeoutError as error:
            raise ConnectTimeout(f"no connection within {connect_s:g} s") from error
        return connection


@dataclass(frozen=True, slots=True)
class _Target:
    host: str
    port: int
    is_tls: bool
    # The value of the Host header.
    name: str


class _Connection(asyncio.Protocol):
    """One connection and its current response (implements `HttpResponse` and `PushResponse`)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        # The consumer of pushed chunks, and the exception it raised.
        self._sink: ChunkSink | None = None
        self._sink_error: Exception | None = None
        self.idle_since_s = 0.0
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: collections.deque[bytes] = collections.deque()
        self._buffered_bytes = 0
        self._decompressor: zlib._Decompress | None = None
        self.headers: dict[str, str] = {}
        self.status_code = self._interim_responses = 0
        self.has_begun = self._has_head = self._is_complete = self._keeps_alive = self._is_paused = False

    # -- called by the client -----------------------------------------------------------------------------------------

    @property
    def is_reusable(self) -> bool:
        """Whether the response was read to its end and the connection is still open."""
        is_open = self._transport is not None and not self._transport.is_closing() and self._error is None
        return is_open and self._is_complete and self._keeps_alive and not self._pieces

    async def send(self, request: bytes) -> _Connection:
        """Send a request; return once the response headers have arrived."""
        self._reset()
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        self._transport.write(request)
        while not self._has_head:
            await self._wait()
        return self

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                if piece := self._next_piece():
                    yield piece
            elif self._is_complete:
                return
            else:
                await self._wait()

    async def push_to(self, sink: ChunkSink) -> bool:
        """Push chunks from the socket callback: with hundreds of streams, no chunk waits for a task switch."""
        # Context variables are the caller's, not those of the task that opened the connection.
        context = contextvars.copy_context()
        self._sink = lambda piece: context.run(sink, piece)
        self._push_buffered()
        try:
            while self._sink is not None and not self._is_complete:
                await self._wait()
            if self._sink_error is not None:
                raise self._sink_error
            return self._sink is None
        finally:
            self._sink = self._sink_error = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _next_piece(self) -> bytes:
        """Return all buffered bytes, decompressed; they may decompress to nothing."""
        piece = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
        self._pieces.clear()
        self._buffered_bytes = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return self._decompressor.decompress(piece) if self._decompressor is not None else piece

    def _push_buffered(self) -> None:
        """Push buffered bytes to the sink; `push_to` reports that it is done or has failed."""
        if self._sink is None or not self._pieces:
            return
        try:
            if (piece := self._next_piece()) and self._sink(piece):
                self._sink = None
        except Exception as error:  # raised to the caller by `push_to`, not to the event loop
            self._sink_error, self._sink = error, None

    async def _wait(self) -> None:
        if self._error is not None:
            raise ConnectionResetError("the service closed the connection") from self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- called by the loop -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.has_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = error
            self.close()
        if self._buffered_bytes > _MAX_BUFFERED_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        is_pushing = self._sink is not None
        self._push_buffered()
        # A pushed stream only needs to be woken for its end.
        if not is_pushing or self._sink is None or self._is_complete or self._error is not None:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        # A body without a length ends with the connection.
        if self._has_head and exc is None and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self._is_complete = True
        self._error = self._error or exc or ConnectionResetError("closed by the other side")
        self._wake()

    # -- called by the parser -----------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status_code = self._parser.get_status_code()
        if self.status_code >= 200:
            self._has_head = True
            if self.headers.get("content-encoding", "") in ("gzip", "deflate"):
                self._decompressor = zlib.decompressobj(47)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._buffered_bytes += len(body)

    def on_message_complete(self) -> None:
        if self.status_code < 200:  # 1xx: the final response is still to come
            self.headers = {}
            self._interim_responses += 1
            if self._interim_responses > _MAX_INTERIM_RESPONSES:
                self._error = ConnectionAbortedError("the service sends interim responses without end")
                self.close()
            return
        self._is_complete = True
        self._keeps_alive = self._parser.should_keep_alive()
        self.idle_since_s = time.monotonic()


def _parse_target(url: str) -> tuple[_Target, str]:
    """Parse a URL into its target and path. Raises InvalidURL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidURL(str(error)) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidURL(f"{url!r} is no http address")
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = parts.netloc.rpartition("@")[2]
    return _Target(parts.hostname, port or (443 if is_tls else 80), is_tls, name), path


def _head(target: _Target, path: str, headers: Mapping[str, str], length: int) -> bytes:
    fixed = {
        "host": target.name,
        "content-length": str(length),
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": "perdure",
    }
    fields = {**fixed, **{name.lower(): value for name, value in headers.items()}}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace")
