"""HTTP client for processes with hundreds of streams, on aiohttp; installed with the gateway.

With hundreds of streams at once, httpx takes about twice the processor time for a chunk (docs/architecture.md).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from perdure.providers.http import trusted_authorities, url_of
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
                headers={**_HEADERS, **{name.lower(): value for name, value in headers.items()}},
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
    """An `HttpResponse` whose body is read as it arrives."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status_code = response.status
        self.headers = response.headers

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        async for piece in self._response.content.iter_any():
            yield piece
