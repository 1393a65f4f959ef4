"""All the transport needs of an HTTP client: post bytes, get a status, headers and a body in pieces."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import urlsplit

from perdure.config.certificates import FILE, own_authorities
from perdure.core.errors import ConfigError
from perdure.providers.exchange import Endpoint

if TYPE_CHECKING:
    import httpx


_LOOPBACK = ("127.0.0.1", "localhost", "::1")

# Takes a piece of a body; whether it needs no more.
Take = Callable[[bytes], bool]


class WireResponse(Protocol):
    """An answer whose head is here and whose body is on its way; httpx's own responses are such."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body as it arrives, decompressed."""
        ...


@runtime_checkable
class Pouring(Protocol):
    """An answer that hands its pieces over the moment they arrive, so that no task has to be woken for each."""

    async def pour(self, take: Take) -> bool:
        """All that is left of the body, until `take` needs no more; whether that was so before the body ended."""
        ...


async def poured(response: WireResponse, pieces: AsyncIterator[bytes], take: Take) -> bool:
    """The rest of a body to `take`, by whichever way the wire knows; whether `take` had enough before its end."""
    if isinstance(response, Pouring):
        return await response.pour(take)
    async for piece in pieces:
        if take(piece):
            return True
    return False


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


def certificates_for(url: str) -> ssl.SSLContext:
    """Who is to be trusted there. A plain server here needs nobody trusted, and loading every authority costs 50 ms.

    Raises ConfigError.
    """
    is_plain_and_here = url.startswith("http://") and is_loopback(url)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain_and_here else trusted_authorities()


def trusted_authorities() -> ssl.SSLContext:
    """The authorities the environment names, else those certifi knows. Raises ConfigError."""
    import certifi

    file, folder = own_authorities()
    usual = certifi.where() if file is None and folder is None else None
    try:
        return ssl.create_default_context(cafile=file or usual, capath=folder)
    except OSError as error:
        advice = "name a file of certificates in PEM form, or unset it"
        raise ConfigError(f"{FILE} names {file}, which cannot be read as such: {error}: {advice}") from error


class HttpxWire:
    """HTTP/1.1 with keep-alive on httpx, imported and built at the first call, never before."""

    def __init__(self, *, max_connections: int = 20) -> None:
        self._max_connections = max_connections
        # By whether an address is plain, and whether it is on this machine.
        self._clients: dict[tuple[bool, bool], httpx.AsyncClient] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AbstractAsyncContextManager[httpx.Response]:
        import httpx

        timeout = httpx.Timeout(None, connect=connect_s)
        url = url_of(endpoint.base_url, path)
        return self._open(url).stream("POST", url, content=body, headers=dict(headers), timeout=timeout)

    def failures(self) -> tuple[type[BaseException], ...]:
        import httpx

        return (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)

    async def aclose(self) -> None:
        clients, self._clients = self._clients, {}
        if self._loop is asyncio.get_running_loop():
            for client in clients.values():
                await client.aclose()

    def _open(self, url: str) -> httpx.AsyncClient:
        """The client of this event loop: connections belong to the loop they were opened in."""
        import httpx

        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._clients, self._loop = {}, loop
        is_plain, is_here = url.startswith("http://"), is_loopback(url)
        if (is_plain, is_here) not in self._clients:
            limits = httpx.Limits(max_connections=self._max_connections, keepalive_expiry=60.0)
            try:
                # A proxy from the environment must not come between us and a server on this machine.
                client = httpx.AsyncClient(limits=limits, trust_env=not is_here, verify=certificates_for(url))
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                advice = "unset it, or set it to a proxy that can be used"
                raise ConfigError(f"the proxy named in the environment cannot be used: {error}: {advice}") from error
            self._clients[is_plain, is_here] = client
        return self._clients[is_plain, is_here]


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False
