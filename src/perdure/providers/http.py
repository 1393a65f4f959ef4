"""HTTP client port, its httpx implementation, and the server-sent events reader."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from perdure.config.env import FILE, own_authorities
from perdure.core.addresses import is_loopback_url
from perdure.core.errors import ConfigError, ProviderError
from perdure.providers.types import Endpoint, SseEvent

if TYPE_CHECKING:
    import httpx


_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseReader:
    """Turns the chunks of one response body into events. Never raises: bytes that are no UTF-8 become U+FFFD."""

    __slots__ = ("_data", "_is_after_cr", "_is_first", "_name", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._name = ""
        self._data: list[str] = []
        self._is_first = True
        self._is_after_cr = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events this chunk completes."""
        if self._is_after_cr and chunk:
            # The line ended at the CR already; an LF behind it is the other half of the same line end.
            chunk = chunk.removeprefix(b"\n")
            self._is_after_cr = False
        has_cr = b"\r" in chunk
        if not has_cr and b"\n" not in chunk:
            if chunk:
                self._pieces.append(chunk)
            return []
        self._is_after_cr = chunk.endswith(b"\r")
        if self._pieces:
            chunk = b"".join((*self._pieces, chunk))
            self._pieces.clear()
        lines = _LINE_END.split(chunk) if has_cr else chunk.split(b"\n")
        if last := lines.pop():
            self._pieces.append(last)
        events: list[SseEvent] = []
        for line in lines:
            self._take(line, events)
        return events

    def finish(self) -> list[SseEvent]:
        """What the end of the body completes: a last event whose blank line never came is still an event."""
        events: list[SseEvent] = []
        self._take(b"".join(self._pieces), events)
        self._pieces.clear()
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(SseEvent(self._name, "\n".join(self._data)))
                self._data = []
            self._name = ""
        elif line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value.decode("utf-8", "replace"))
        elif line.startswith(b"event:"):
            self._name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
        elif line == b"data":
            self._data.append("")
        # Comments (": ping"), ids and retry hints carry nothing a model said.


# How long a connection is kept between two calls.
_KEEP_ALIVE_S = 60.0
# Whether an address is plain HTTP, and whether it is on this machine.
_Reach = tuple[bool, bool]

# Takes a piece of a body; whether it needs no more.
ChunkSink = Callable[[bytes], bool]


class HttpResponse(Protocol):
    """An answer whose head is here and whose body is on its way; httpx's own responses are such."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body as it arrives, decompressed."""
        ...


@runtime_checkable
class PushResponse(Protocol):
    """An answer that hands its pieces over the moment they arrive, so that no task has to be woken for each."""

    async def push_to(self, take: ChunkSink) -> bool:
        """All that is left of the body, until `take` needs no more; whether that was so before the body ended."""
        ...


async def push_chunks(response: HttpResponse, pieces: AsyncIterator[bytes], take: ChunkSink) -> bool:
    """The rest of a body to `take`, by whichever way the wire knows; whether `take` had enough before its end."""
    if isinstance(response, PushResponse):
        return await response.push_to(take)
    async for piece in pieces:
        if take(piece):
            return True
    return False


class HttpClient(Protocol):
    """Posts a body. Leaving the context closes the call at once, whatever state it is in."""

    def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AbstractAsyncContextManager[HttpResponse]: ...

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
    is_plain_and_here = url.startswith("http://") and is_loopback_url(url)
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


class HttpxClient:
    """HTTP/1.1 with keep-alive on httpx, imported and built at the first call, never before.

    Each call in flight has a client with one connection of its own. httpx gives no promise about its pool when a task
    is cancelled while a response is being closed (the connection stays "active" for ever), so a call that was cut off
    takes its whole client with it: nothing that a cancel leaves behind can be waited for by a later call.
    """

    def __init__(self) -> None:
        # Clients between two calls, newest last; by whether an address is plain, and whether it is on this machine.
        self._idle: dict[_Reach, list[_IdleClient]] = {}
        self._certificates: dict[_Reach, ssl.SSLContext] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AsyncIterator[httpx.Response]:
        import httpx

        url = url_of(endpoint.base_url, path)
        reach = url.startswith("http://"), is_loopback_url(url)
        client = self._take(reach, url)
        timeout = httpx.Timeout(None, connect=connect_s)
        is_whole = False
        try:
            request = client.build_request("POST", url, content=body, headers=dict(headers), timeout=timeout)
            response = await client.send(request, stream=True)
            is_cut_off = True
            try:
                yield response
                is_cut_off = False
            except ProviderError:  # what the service said, read to its end
                is_cut_off = False
                raise
            finally:
                await response.aclose()
                is_whole = not is_cut_off
        finally:
            if is_whole:
                self._idle.setdefault(reach, []).append(_IdleClient(client, time.monotonic()))
            else:
                await self._close([client])

    def failures(self) -> tuple[type[BaseException], ...]:
        import httpx

        return (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)

    async def aclose(self) -> None:
        idle, self._idle = self._idle, {}
        if self._loop is asyncio.get_running_loop():
            await self._close([one.client for clients in idle.values() for one in clients])
            await asyncio.gather(*self._closing)

    async def _close(self, clients: Sequence[httpx.AsyncClient]) -> None:
        """Closes the clients, to the end even where the waiting task is cancelled once more."""

        async def close_all() -> None:
            for client in clients:
                with suppress(*self.failures()):
                    await client.aclose()

        closing = asyncio.get_running_loop().create_task(close_all())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        await asyncio.shield(closing)

    def _take(self, reach: _Reach, url: str) -> httpx.AsyncClient:
        """A client of this event loop that nobody uses: connections belong to the loop they were opened in."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._loop = {}, loop
        idle = self._idle.get(reach, [])
        now_s = time.monotonic()
        stale = [one.client for one in idle if one.since_s < now_s - _KEEP_ALIVE_S]
        # The newest is taken: its connection is the likeliest to be alive. Those nobody needed for long are closed.
        client = idle.pop().client if len(idle) > len(stale) else None
        if stale:
            del idle[: len(stale)]
            closing = loop.create_task(self._close(stale))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return client or self._new_client(reach, url)

    def _new_client(self, reach: _Reach, url: str) -> httpx.AsyncClient:
        import httpx

        if reach not in self._certificates:
            self._certificates[reach] = certificates_for(url)
        limits = httpx.Limits(max_connections=1, keepalive_expiry=_KEEP_ALIVE_S)
        try:
            # A proxy from the environment must not come between us and a server on this machine.
            return httpx.AsyncClient(limits=limits, trust_env=not reach[1], verify=self._certificates[reach])
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            advice = "unset it, or set it to a proxy that can be used"
            raise ConfigError(f"the proxy named in the environment cannot be used: {error}: {advice}") from error


@dataclass(frozen=True, slots=True)
class _IdleClient:
    """A client whose last call was read to its end, and since when it has been idle."""

    client: httpx.AsyncClient
    since_s: float
