"""Send requests through an official `openai` or `anthropic` client, which authenticates, routes and signs them.

Its low-level `post` returns the raw HTTP response, so Azure deployments, Bedrock signatures, Vertex tokens and custom
headers all work, while building and parsing are the same as everywhere else. Synchronous clients are read in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any

from perdure.core.errors import ConfigError, ErrorVerdict, ProviderError
from perdure.providers.errors.messages import quote
from perdure.providers.http import HttpResponse
from perdure.providers.types import ApiMode, Endpoint

PACKAGES = ("openai", "anthropic")
# Headers the client sets itself.
_OWN_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "anthropic-version", "content-type", "accept"})
_AWS_STREAM = "application/vnd.amazon.eventstream"


def sdk_package(client: object) -> str:
    """Return the SDK package of a client. Raises ConfigError for anything else."""
    for cls in type(client).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in PACKAGES and callable(getattr(client, "post", None)):
            return root
    raise ConfigError(f"client= takes a client of the openai or anthropic package, not {type(client).__name__}")


def mode_of(client: object, api_mode: ApiMode | None = None) -> ApiMode:
    """Return the mode for a client: the requested one, if its service supports it."""
    if sdk_package(client) == "anthropic":
        if api_mode not in (None, "anthropic_messages"):
            raise ConfigError(f"an anthropic client speaks anthropic_messages, not {api_mode}")
        return "anthropic_messages"
    if api_mode == "anthropic_messages":
        raise ConfigError("an openai client does not speak anthropic_messages; pass an anthropic client")
    return api_mode or "chat_completions"


def endpoint_of(client: Any, model: str, api_mode: ApiMode | None = None) -> Endpoint:
    """Build an endpoint with the client's address; the key stays in the client."""
    package = sdk_package(client)
    address = str(getattr(client, "base_url", ""))
    return Endpoint(package, address, mode_of(client, api_mode), model, is_of_client=True)


class SdkTransport:
    """Adapts an official client to the `HttpClient` protocol; pass it to `Transport(client=…)`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._package = sys.modules[sdk_package(client)]
        self._http = _http_library(client)
        self._is_async = hasattr(client, "__aenter__")
        # The connections of our calls, opened with the first one.
        self._connections: Any = None
        self._lock = threading.Lock()

    def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AbstractAsyncContextManager[HttpResponse]:
        extra = {k: v for k, v in headers.items() if k.lower() not in _OWN_HEADERS}
        # A dict, not bytes: Azure, Bedrock and Vertex read the model name from it.
        options = {
            "body": json.loads(body),
            "cast_to": self._http.Response,
            # The transport retries, until the first byte.
            "options": {"headers": extra, "max_retries": 0, "timeout": self._http.Timeout(None, connect=connect_s)},
            "stream": True,
            "stream_cls": self._package.AsyncStream[object] if self._is_async else self._package.Stream[object],
        }
        return self._post_async(path, options) if self._is_async else self._post_in_thread(path, options)

    def failures(self) -> tuple[type[BaseException], ...]:
        http = self._http
        return (self._package.APIConnectionError, http.HTTPError, http.InvalidURL, http.StreamError, OSError)

    async def aclose(self) -> None:
        """Close the connections opened here; the caller's client, and an HTTP client passed to it, stay open."""
        with self._lock:
            connections, self._connections = self._connections, None
        if connections is None:
            return
        if self._is_async:
            await connections.aclose()
        else:
            connections.close()

    def _get_client(self) -> Any:
        """Return the client to call: a copy of the caller's client, with connections that `aclose` can close.

        An async client's connections belong to our event loop, where the caller could not close them.
        """
        make = getattr(self._package, "DefaultAsyncHttpxClient" if self._is_async else "DefaultHttpxClient", None)
        # Of the package's own class, unless the caller passed an HTTP client.
        is_default = type(getattr(self._client, "_client", None)).__name__.endswith("HttpxClientWrapper")
        if make is None or not is_default:
            return self._client
        with self._lock:
            if self._connections is None:
                self._connections = make()
            return self._client.copy(http_client=self._connections)

    @asynccontextmanager
    async def _post_async(self, path: str, options: dict[str, Any]) -> AsyncIterator[HttpResponse]:
        try:
            response = await self._get_client().post(path, **options)
        except self._package.APIStatusError as error:
            response = error.response
        except self.failures():
            raise
        except Exception as error:  # the client's own code and its signers
            raise _client_error(error) from error
        try:
            yield _BedrockResponse(response, self._client) if _is_aws_stream(response) else response
        finally:
            await response.aclose()

    @asynccontextmanager
    async def _post_in_thread(self, path: str, options: dict[str, Any]) -> AsyncIterator[HttpResponse]:
        pump = _ThreadedResponse(lambda: self._open(path, options), self._client)
        try:
            yield await pump.wait_headers()
        finally:
            pump.abort()

    def _open(self, path: str, options: dict[str, Any]) -> Any:
        try:
            return self._get_client().post(path, **options)
        except self._package.APIStatusError as error:
            return error.response
        except self.failures():
            raise
        except Exception as error:  # the client's own code and its signers
            raise _client_error(error) from error


class _BedrockResponse:
    """Decodes a Bedrock stream from AWS's binary framing into server-sent events."""

    def __init__(self, response: Any, client: Any) -> None:
        self._response = response
        self._client = client
        self.status_code: int = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        decoder = self._client._make_sse_decoder()
        async for event in decoder.aiter_bytes(self._response.aiter_bytes()):
            yield _as_sse(event)


class _ThreadedResponse:
    """Reads a synchronous response in a thread and passes its chunks to the event loop."""

    def __init__(self, open_response: Any, client: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[Any] = asyncio.Queue()
        self._client = client
        self._response: Any = None
        self._is_aborted = False
        # A daemon thread: an abandoned call must not block process exit.
        threading.Thread(target=self._read, args=(open_response,), daemon=True).start()

    async def wait_headers(self) -> HttpResponse:
        first = await self._pieces.get()
        if isinstance(first, BaseException):
            raise first
        self.status_code: int = first.status_code
        self.headers: Mapping[str, str] = first.headers
        return self

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    def abort(self) -> None:
        """Abort the call: closing alone would not wake a thread that waits for bytes."""
        self._is_aborted = True
        stream = getattr(self._response, "extensions", {}).get("network_stream")
        sock = stream.get_extra_info("socket") if stream is not None else None
        if sock is not None and not self._response.is_closed:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _read(self, open_response: Any) -> None:
        try:
            self._response = open_response()
            self._put(self._response)
            for piece in self._chunks():
                if self._is_aborted:
                    break
                self._put(piece)
            self._response.close()
            self._put(None)
        except Exception as error:  # thread boundary: raised to the awaiting caller
            self._put(error)

    def _chunks(self) -> Iterator[bytes]:
        if not _is_aws_stream(self._response):
            yield from self._response.iter_bytes()
            return
        for event in self._client._make_sse_decoder().iter_bytes(self._response.iter_bytes()):
            yield _as_sse(event)

    def _put(self, piece: Any) -> None:
        # The loop may have been closed since.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)


def _client_error(error: Exception) -> ProviderError:
    """Build the error for a call the client could not make: no credentials, an expired token, a missing package."""
    sock = f"the client could not make the call: {type(error).__name__}: {quote(str(error))}"
    return ProviderError(ErrorVerdict("auth", sock))


def _is_aws_stream(response: Any) -> bool:
    return str(response.headers.get("content-type", "")).startswith(_AWS_STREAM)


def _as_sse(event: Any) -> bytes:
    name = f"event: {event.event}\n" if event.event else ""
    return f"{name}data: {event.data}\n\n".encode()


def _http_library(client: object) -> ModuleType:
    """Return the HTTP library of the client's package: httpx, or since 2026 httpx2."""
    for cls in type(client).__mro__:
        module = sys.modules.get(cls.__module__)
        for name in ("httpx2", "httpx"):
            library = getattr(module, name, None)
            if cls.__module__.endswith("_base_client") and isinstance(library, ModuleType):
                return library
    raise ConfigError(f"cannot tell what {type(client).__name__} is built on; use base_url= and api_key= instead")
