"""HTTP client for processes with hundreds of streams, on aiohttp; installed with the gateway.

With hundreds of streams at once, httpx takes about twice the processor time for a chunk (docs/architecture.md).
"""

from __future__ import annotations

import asyncio
import contextvars
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from perdure.providers.http import ChunkSink, trusted_authorities, url_of
from perdure.providers.types import Endpoint

_KEEP_ALIVE_S = 60.0
# What model calls need: no compressed streams, which arrive late, and nothing that identifies the library.
_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "perdure"}


class ConnectTimeout(OSError):
    """Raised when the connection was not established in time."""


class AiohttpClient:
    """An `HttpClient` on aiohttp, for one event loop at a time: its connections belong to the loop."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AsyncIterator[AiohttpResponse]:
        response = await self._send(_parse_url(url_of(endpoint.base_url, path)), headers, body, connect_s)
        try:
            yield AiohttpResponse(response)
        finally:
            # Reusable if it was read to its end; otherwise the connection is closed.
            response.release() if response.content.at_eof() else response.close()

    def failures(self) -> tuple[type[BaseException], ...]:
        return (OSError, aiohttp.ClientError)

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(
        self, url: URL, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> aiohttp.ClientResponse:
        """Send a request once, until the response headers have arrived.

        A connection that dies before them may have carried the request to the service, which may bill it: whether it is
        sent again is up to the retries of the transport.
        """
        if url.scheme == "https" and self._tls is None:
            self._tls = trusted_authorities()
        try:
            return await self._open_session().post(
                url,
                data=body,
                headers={**_HEADERS, **headers},
                timeout=aiohttp.ClientTimeout(total=None, connect=connect_s),
                ssl=self._tls or True,
                allow_redirects=False,
            )
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            raise _system_error(error) from None
        except aiohttp.ServerTimeoutError as error:
            raise ConnectTimeout(f"no connection within {connect_s:g} s") from error

    def _open_session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            # No limit of connections: the gateway limits its turns itself. No cookies: calls are of different users.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _system_error(error: aiohttp.ClientError) -> Exception:
    """Return the operating system or TLS error behind a client error, for messages to users."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error


def _parse_url(url: str) -> URL:
    try:
        target = URL(url, encoded=True)
        if target.scheme in ("http", "https") and target.host and target.port:
            return target
    except ValueError as error:
        raise aiohttp.InvalidURL(url, str(error)) from error
    raise aiohttp.InvalidURL(url, "no http address")


class AiohttpResponse:
    """An `HttpResponse` whose body is read, or pushed, as it arrives (`PushResponse`)."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status_code = response.status
        self.headers = response.headers

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        async for piece in self._response.content.iter_any():
            yield piece

    async def push_to(self, sink: ChunkSink) -> bool:
        connection = self._response.connection
        # None where the whole body has arrived, or never will: aiohttp has given the connection up.
        if connection is None or connection.protocol is None or connection.transport is None:
            async for piece in self.aiter_bytes():
                if sink(piece):
                    return True
            return False
        push = _BodyPush(self._response.content, sink, protocol=connection.protocol, transport=connection.transport)
        try:
            return await push.done
        finally:
            push.detach()


class _BodyPush(asyncio.Protocol):
    """Protocol between a connection and aiohttp's own, which passes on what the latter has parsed of a body.

    aiohttp wakes the task that reads in the next iteration of the loop. With hundreds of streams, each chunk would wait
    there until all chunks that arrived with it are parsed, and its task would be resumed through a dozen coroutines.
    """

    def __init__(
        self,
        content: aiohttp.StreamReader,
        sink: ChunkSink,
        *,
        protocol: asyncio.Protocol,
        transport: asyncio.Transport,
    ) -> None:
        self._content = content
        self._sink = sink
        self._protocol = protocol
        self._transport = transport
        self._is_attached = True
        # Context variables are the caller's, not those of the task that opened the connection.
        self._context = contextvars.copy_context()
        # Whether the sink stopped before the body ended, or the error that ended it.
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        # `total_bytes` of the content when it was last read.
        self._seen_bytes = -1
        transport.set_protocol(self)
        self._push()

    def detach(self) -> None:
        """Give the connection back to aiohttp's protocol."""
        if self._is_attached:
            self._is_attached = False
            self._transport.set_protocol(self._protocol)

    def _push(self) -> None:
        content, done = self._content, self.done
        try:
            # More than once where a read resumes a decompression that was paused.
            while content.total_bytes > self._seen_bytes and not done.done():
                self._seen_bytes = content.total_bytes
                if (chunk := content.read_nowait()) and self._context.run(self._sink, chunk):
                    self._end(has_stopped=True)
            if (error := content.exception()) is not None:
                raise error
        except Exception as error:  # raised to the caller, not to the event loop
            self.detach()
            if not done.done():
                done.set_exception(error)
        if content.is_eof():
            self._end(has_stopped=False)

    def _end(self, *, has_stopped: bool) -> None:
        self.detach()
        if not self.done.done():
            self.done.set_result(has_stopped)

    # -- called by the loop --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)
        self._push()

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
        self._push()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
