"""The wire of a process with hundreds of streams: HTTP/1.1 on the loop's own transports and a parser written in C.

A stream of twenty pieces a second costs a general client more than all of our own work on it. This one does what calls
to models need and no more: POST, TLS, chunked or plain bodies, gzip, kept-alive connections. No proxies, no redirects.
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

_KEPT_S = 60.0
# So much may wait for whoever reads it; then the other side has to.
_MOST_WAITING = 1 << 20


class ConnectTimeout(OSError):
    """Nobody took the connection in time."""


class InvalidURL(OSError):
    """The address is none that a call could go to."""


class AsyncioHttpClient:
    """The Wire port. Connections belong to the loop they were opened in."""

    def __init__(self) -> None:
        self._idle: dict[_Place, list[_Connection]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AsyncIterator[_Connection]:
        place, target = _place_of(url_of(endpoint.base_url, path))
        request = _head(place, target, headers, len(body)) + body
        connection = await self._answering(place, request, connect_s)
        try:
            yield connection
        finally:
            if connection.is_reusable:
                self._idle.setdefault(place, []).append(connection)
            else:
                connection.close()

    def failures(self) -> tuple[type[BaseException], ...]:
        return (OSError, httptools.HttpParserError, zlib.error)

    async def aclose(self) -> None:
        idle, self._idle = self._idle, {}
        for connection in (c for connections in idle.values() for c in connections):
            connection.close()

    async def _answering(self, place: _Place, request: bytes, connect_s: float) -> _Connection:
        """A connection whose answer has begun. One that had been idle may have died unnoticed: then a new one."""
        while (kept := self._kept(place)) is not None:
            try:
                return await kept.ask(request)
            except OSError:
                if kept.has_begun:
                    raise
            except BaseException:
                kept.close()
                raise
        connection = await self._connect(place, connect_s)
        try:
            return await connection.ask(request)
        except BaseException:
            connection.close()
            raise

    def _kept(self, place: _Place) -> _Connection | None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._loop = {}, loop
        idle = self._idle.get(place, [])
        while idle:
            connection = idle.pop()
            if connection.is_reusable and connection.idle_since_s > time.monotonic() - _KEPT_S:
                return connection
            connection.close()
        return None

    async def _connect(self, place: _Place, connect_s: float) -> _Connection:
        loop = asyncio.get_running_loop()
        if place.is_tls and self._tls is None:
            self._tls = trusted_authorities()
        tls = self._tls if place.is_tls else None
        try:
            async with asyncio.timeout(connect_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop),
                    place.host,
                    place.port,
                    ssl=tls,
                    server_hostname=place.host if tls else None,
                )
        except TimeoutError as error:
            raise ConnectTimeout(f"no connection within {connect_s:g} s") from error
        return connection


@dataclass(frozen=True, slots=True)
class _Place:
    host: str
    port: int
    is_tls: bool
    # As the Host header says it.
    name: str


class _Connection(asyncio.Protocol):
    """One connection, and the answer that is coming in on it (the WireResponse port)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._lost: BaseException | None = None
        # Who takes the pieces as they come, and what went wrong there.
        self._take: ChunkSink | None = None
        self._failed: Exception | None = None
        self.idle_since_s = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: collections.deque[bytes] = collections.deque()
        self._waiting_bytes = 0
        self._unpack: zlib._Decompress | None = None
        self.headers: dict[str, str] = {}
        self.status_code = 0
        self.has_begun = self._has_head = self._is_complete = self._keeps_alive = self._is_paused = False

    # -- the caller's side -------------------------------------------------------------------------------------------

    @property
    def is_reusable(self) -> bool:
        """The answer was read to its end, and the other side holds the line."""
        is_open = self._transport is not None and not self._transport.is_closing() and self._lost is None
        return is_open and self._is_complete and self._keeps_alive and not self._pieces

    async def ask(self, request: bytes) -> _Connection:
        """Sends it; returns once the head of the answer is here."""
        self._begin()
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

    async def push_to(self, take: ChunkSink) -> bool:
        """Within the loop's own callback: of hundreds of streams, no piece then waits for those of all the others."""
        # What is noted down on the way belongs to the caller, not to whoever opened the connection.
        within = contextvars.copy_context()
        self._take = lambda piece: within.run(take, piece)
        self._hand_over()
        try:
            while self._take is not None and not self._is_complete:
                await self._wait()
            if self._failed is not None:
                raise self._failed
            return self._take is None
        finally:
            self._take = self._failed = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _next_piece(self) -> bytes:
        """All that waits; it may come to nothing once it is unpacked."""
        piece = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
        self._pieces.clear()
        self._waiting_bytes = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return self._unpack.decompress(piece) if self._unpack is not None else piece

    def _hand_over(self) -> None:
        """Gives what waits to whoever takes; that it had enough, or failed, is for `pour` to tell."""
        if self._take is None or not self._pieces:
            return
        try:
            if (piece := self._next_piece()) and self._take(piece):
                self._take = None
        except Exception as error:  # it belongs to the caller, not to the loop
            self._failed, self._take = error, None

    async def _wait(self) -> None:
        if self._lost is not None:
            raise ConnectionResetError("the service hung up") from self._lost
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the loop's side ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.has_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._lost = error
            self.close()
        if self._waiting_bytes > _MOST_WAITING and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        is_pouring = self._take is not None
        self._hand_over()
        # Whoever takes the pieces as they come need only hear of the end.
        if not is_pouring or self._take is None or self._is_complete or self._lost is not None:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        # A body without a length lasts until the line is closed.
        if self._has_head and exc is None and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self._is_complete = True
        self._lost = self._lost or exc or ConnectionResetError("closed by the other side")
        self._wake()

    # -- the parser's side -------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status_code = self._parser.get_status_code()
        if self.status_code >= 200:
            self._has_head = True
            if self.headers.get("content-encoding", "") in ("gzip", "deflate"):
                self._unpack = zlib.decompressobj(47)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._waiting_bytes += len(body)

    def on_message_complete(self) -> None:
        if self.status_code < 200:  # "continue" and its kin: the real answer is still to come
            self.headers = {}
            return
        self._is_complete = True
        self._keeps_alive = self._parser.should_keep_alive()
        self.idle_since_s = time.monotonic()


def _place_of(url: str) -> tuple[_Place, str]:
    """Where a call goes, and what it asks for there. Raises InvalidURL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidURL(str(error)) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidURL(f"{url!r} is no http address")
    is_tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = parts.netloc.rpartition("@")[2]
    return _Place(parts.hostname, port or (443 if is_tls else 80), is_tls, name), target


def _head(place: _Place, target: str, headers: Mapping[str, str], length: int) -> bytes:
    fixed = {
        "host": place.name,
        "content-length": str(length),
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": "perdure",
    }
    given = {**fixed, **{name.lower(): value for name, value in headers.items()}}
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace")
