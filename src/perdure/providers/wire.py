"""All the transport needs of an HTTP client: post bytes, get a status, headers and a body in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from perdure.providers.exchange import Endpoint

if TYPE_CHECKING:
    import httpx


_LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")


class WireResponse(Protocol):
    """An answer whose head is here and whose body is on its way; httpx's own responses are such."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body as it arrives, decompressed."""
        ...


class Wire(Protocol):
    """Posts a body. Leaving the context closes the call at once, whatever state it is in."""

    def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AbstractAsyncContextManager[WireResponse]: ...

    def failures(self) -> tuple[type[BaseException], ...]:
        """What `post` and reading raise when the network, not the service, is at fault."""
        ...

    async def aclose(self) -> None: ...


def url_of(base_url: str, path: str) -> str:
    """Where a path lies under a base address; a version both of them name is named once."""
    base = base_url.rstrip("/")
    version, _, rest = path.lstrip("/").partition("/")
    if rest and version in ("v1", "v1beta") and base.endswith(f"/{version}"):
        return f"{base}/{rest}"
    return f"{base}/{path.lstrip('/')}"


class HttpxWire:
    """HTTP/1.1 with keep-alive on httpx, imported and built at the first call, never before."""

    def __init__(self, *, max_connections: int = 20) -> None:
        self._max_connections = max_connections
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AbstractAsyncContextManager[httpx.Response]:
        import httpx

        timeout = httpx.Timeout(None, connect=connect_s)
        url = url_of(endpoint.base_url, path)
        return self._open().stream("POST", url, content=body, headers=dict(headers), timeout=timeout)

    def failures(self) -> tuple[type[BaseException], ...]:
        import httpx

        return (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    def _open(self) -> httpx.AsyncClient:
        """The client of this event loop: connections belong to the loop they were opened in."""
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            limits = httpx.Limits(max_connections=self._max_connections, keepalive_expiry=60.0)
            # A proxy from the environment must not come between us and a server on this machine.
            direct: dict[str, httpx.AsyncBaseTransport | None] = dict.fromkeys(_LOOPBACK)
            self._client = httpx.AsyncClient(limits=limits, mounts=direct, follow_redirects=False)
            self._loop = loop
        return self._client
