"""HTTP: timeouts and retries, the client port, its httpx implementation, and the server-sent events reader."""

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


# A longer wait is the caller's decision: another route may be faster than waiting.
LONG_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of a call, in seconds."""

    connect_s: float = 10.0
    # Until the first content of a stream, in silence.
    first_token_s: float = 300.0
    # Until the first content of a stream, while keep-alive signals arrive.
    queued_s: float = 900.0
    # Between two chunks of a stream.
    idle_s: float = 120.0
    # Between two pieces of content, while only keep-alive signals arrive.
    keep_alive_s: float = 300.0
    # For a complete response that is not streamed.
    reply_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policy: the number of attempts and the backoff between them."""

    attempts: int = 3
    base_s: float = 0.5
    cap_s: float = 8.0
    # A longer retry-after is left to the caller, who may have another route.
    max_retry_after_s: float = LONG_WAIT_S

    def wait_s(self, attempt: int, *, retry_after_s: float | None, random: float) -> float | None:
        """Return the delay before attempt `attempt` + 1; None when there is no further attempt."""
        if attempt >= self.attempts:
            return None
        if retry_after_s is not None:
            # Jitter, but never earlier than the service requires.
            return None if retry_after_s > self.max_retry_after_s else retry_after_s * (1 + 0.1 * random)
        return min(self.cap_s, self.base_s * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * random)


class StreamTimer:
    """The read deadline of a stream: content extends it, keep-alive events only up to a limit.

    It is not rescheduled for each chunk: that would cost more than parsing the chunk.
    """

    def __init__(self, timer: asyncio.Timeout, timeouts: Timeouts, *, started_s: float) -> None:
        self._timer = timer
        self._timeouts = timeouts
        self._time_s = asyncio.get_running_loop().time
        self._renewable_s = 0.0
        # Time of the last content; the start of the call until then.
        self._last_event_s = started_s
        self.has_event = False
        self._is_kept_alive = False

    def on_progress(self) -> None:
        now_s = self._time_s()
        self._last_event_s, self.has_event, self._is_kept_alive = now_s, True, False
        if now_s >= self._renewable_s:
            self._timer.reschedule(now_s + self._timeouts.idle_s)
            self._renewable_s = now_s + self._timeouts.idle_s / 8

    def on_keep_alive(self) -> None:
        """Extend the deadline for an event without content: the connection is alive, the model may not be."""
        self._is_kept_alive = True
        limits = self._timeouts
        silence_s, longest_s = (
            (limits.idle_s, limits.keep_alive_s) if self.has_event else (limits.first_token_s, limits.queued_s)
        )
        self._timer.reschedule(min(self._time_s() + silence_s, self._last_event_s + max(silence_s, longest_s)))
        self._renewable_s = 0.0

    def timeout_message(self) -> str:
        """Return the error message for a deadline that has passed."""
        limits = self._timeouts
        elapsed_s = self._time_s() - self._last_event_s
        waited_s = f"{elapsed_s:.0f}" if elapsed_s >= 10 else f"{elapsed_s:.1f}"
        if self.has_event:
            reason = f"nothing arrived for {limits.idle_s:g} s"
            if self._is_kept_alive:
                reason = f"for {waited_s} s nothing arrived but keep-alive signals"
            return f"the reply stopped: {reason}."
        reason = f"no reply within {waited_s} s, only keep-alive signals"
        return f"{reason}: the service is slow or stuck. Try again, or choose another model."


_SENDABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?|")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


def find_invalid_header(headers: Mapping[str, str]) -> str | None:
    """Return the name of a header with a value HTTP cannot carry, e.g. a key pasted with a line break."""
    return next((name for name, value in headers.items() if not _SENDABLE.fullmatch(value)), None)


def is_html(body: bytes) -> bool:
    """Whether a body is markup, as proxies and login pages send it instead of JSON."""
    return body.lstrip()[:1] == b"<"


class SseReader:
    """Parses the chunks of one response body into events. Never raises: invalid UTF-8 becomes U+FFFD."""

    __slots__ = ("_data", "_is_after_cr", "_is_first", "_name", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._name = ""
        self._data: list[str] = []
        self._is_first = True
        self._is_after_cr = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events this chunk completes."""
        if self._is_after_cr and chunk:
            # The line ended at the CR already; an LF after it belongs to the same line end.
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
            self._parse_line(line, events)
        return events

    def finish(self) -> list[SseEvent]:
        """Return the events left at the end of the body; a last event without its blank line still counts."""
        events: list[SseEvent] = []
        self._parse_line(b"".join(self._pieces), events)
        self._pieces.clear()
        self._parse_line(b"", events)
        return events

    def _parse_line(self, line: bytes, events: list[SseEvent]) -> None:
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
        # Comments (": ping"), ids and retry hints carry no content.


# How long an idle connection stays in the pool.
_KEEP_ALIVE_S = 60.0
# Whether a URL is plain HTTP, and whether it is loopback.
_Reach = tuple[bool, bool]
# Consumes a chunk of a body; returns True when it needs no more.
ChunkSink = Callable[[bytes], bool]


class HttpResponse(Protocol):
    """A response whose headers have arrived and whose body is still streaming; httpx responses satisfy it."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives, decompressed."""
        ...


@runtime_checkable
class PushResponse(Protocol):
    """An `HttpResponse` that passes chunks on in the socket's callback, so that no task is scheduled for each."""

    async def push_to(self, sink: ChunkSink) -> bool:
        """Call `sink` with each further chunk of the body; return whether it stopped before the body ended."""
        ...


async def push_chunks(response: HttpResponse, pieces: AsyncIterator[bytes], sink: ChunkSink) -> bool:
    """Call `sink` with each further chunk, the fastest way; return whether it stopped before the body ended."""
    if isinstance(response, PushResponse):
        return await response.push_to(sink)
    async for piece in pieces:
        if sink(piece):
            return True
    return False


class HttpClient(Protocol):
    """Sends POST requests (port). Leaving the context manager of `post` closes the request, whatever its state."""

    def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AbstractAsyncContextManager[HttpResponse]: ...

    def failures(self) -> tuple[type[BaseException], ...]:
        """Return the exceptions `post` and reading raise for network failures."""
        ...

    async def aclose(self) -> None: ...


def url_of(base_url: str, path: str) -> str:
    """Join a base URL and a path; a version prefix in both appears once."""
    base = base_url.rstrip("/")
    version, _, rest = path.lstrip("/").partition("/")
    if rest and version in ("v1", "v1beta") and base.endswith(f"/{version}"):
        return f"{base}/{rest}"
    return f"{base}/{path.lstrip('/')}"


def certificates_for(url: str) -> ssl.SSLContext:
    """Return the TLS context for a URL: an empty one for plain HTTP on loopback, as loading certificates costs 50 ms.

    Raises ConfigError.
    """
    is_plain_and_here = url.startswith("http://") and is_loopback_url(url)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain_and_here else trusted_authorities()


def trusted_authorities() -> ssl.SSLContext:
    """Return a TLS context with the certificate authorities of the environment, else certifi's. Raises ConfigError."""
    import certifi

    file, folder = own_authorities()
    usual = certifi.where() if file is None and folder is None else None
    try:
        return ssl.create_default_context(cafile=file or usual, capath=folder)
    except OSError as error:
        advice = "name a file of certificates in PEM form, or unset it"
        raise ConfigError(f"{FILE} names {file}, which cannot be read as such: {error}: {advice}") from error


class HttpxClient:
    """HTTP/1.1 with keep-alive on httpx, imported at the first request.

    Each request in flight has an httpx client with one connection of its own. When a task is cancelled while a response
    is being closed, the httpx pool may keep the connection "active" for ever; a cancelled request therefore discards
    its whole client, so that no later request can wait for the leaked connection.
    """

    def __init__(self) -> None:
        # Idle clients, newest last, by (is plain HTTP, is loopback).
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
        client = self._acquire(reach, url)
        timeout = httpx.Timeout(None, connect=connect_s)
        is_whole = False
        try:
            request = client.build_request("POST", url, content=body, headers=dict(headers), timeout=timeout)
            response = await client.send(request, stream=True)
            is_cut_off = True
            try:
                yield response
                is_cut_off = False
            except ProviderError:  # an error response, read to its end
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
        """Close the clients, shielded from another cancellation of the waiting task."""

        async def close_all() -> None:
            for client in clients:
                with suppress(*self.failures()):
                    await client.aclose()

        closing = asyncio.get_running_loop().create_task(close_all())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        await asyncio.shield(closing)

    def _acquire(self, reach: _Reach, url: str) -> httpx.AsyncClient:
        """Return an idle client of this event loop, or a new one: connections belong to their event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._loop = {}, loop
        idle = self._idle.get(reach, [])
        now_s = time.monotonic()
        stale = [one.client for one in idle if one.since_s < now_s - _KEEP_ALIVE_S]
        # The newest connection is the most likely to be alive; stale ones are closed.
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
    """A client that can be reused, since its last response was read to the end, and the time it became idle."""

    client: httpx.AsyncClient
    since_s: float
