"""An official `openai` or `anthropic` client as a wire: auth, routing and signing stay its own, bodies stay ours.

The client's low-level `post` is asked for its raw HTTP response, so Azure's deployments, Bedrock's signatures, Vertex's
tokens and custom headers all work, while building and parsing stay as they are everywhere else. Synchronous clients
are read in a thread of their own.
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
# What the client puts there itself.
_OWN_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "anthropic-version", "content-type", "accept"})
_AWS_STREAM = "application/vnd.amazon.eventstream"


def sdk_package(client: object) -> str:
    """Which official package a client is of. Raises ConfigError for anything else."""
    for cls in type(client).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in PACKAGES and callable(getattr(client, "post", None)):
            return root
    raise ConfigError(f"client= takes a client of the openai or anthropic package, not {type(client).__name__}")


def mode_of(client: object, api_mode: ApiMode | None = None) -> ApiMode:
    """The protocol to speak through a client: the one asked for, if its service has it."""
    if sdk_package(client) == "anthropic":
        if api_mode not in (None, "anthropic_messages"):
            raise ConfigError(f"an anthropic client speaks anthropic_messages, not {api_mode}")
        return "anthropic_messages"
    if api_mode == "anthropic_messages":
        raise ConfigError("an openai client does not speak anthropic_messages; hand over an anthropic one")
    return api_mode or "chat_completions"


def endpoint_of(client: Any, model: str, api_mode: ApiMode | None = None) -> Endpoint:
    """An endpoint that names the client's address; its key stays with the client."""
    package = sdk_package(client)
    return Endpoint(package, str(getattr(client, "base_url", "")), mode_of(client, api_mode), model)


class SdkTransport:
    """A wire through an official client; hand it to `Transport(client=…)`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._package = sys.modules[sdk_package(client)]
        self._http = _http_library(client)
        self._is_async = hasattr(client, "__aenter__")

    def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AbstractAsyncContextManager[HttpResponse]:
        extra = {k: v for k, v in headers.items() if k.lower() not in _OWN_HEADERS}
        # A dict, not our bytes: Azure, Bedrock and Vertex read the model's name out of it.
        asked = {
            "body": json.loads(body),
            "cast_to": self._http.Response,
            # Retries are the transport's, and stop at the first byte.
            "options": {"headers": extra, "max_retries": 0, "timeout": self._http.Timeout(None, connect=connect_s)},
            "stream": True,
            "stream_cls": self._package.AsyncStream[object] if self._is_async else self._package.Stream[object],
        }
        return self._post_async(path, asked) if self._is_async else self._post_in_thread(path, asked)

    def failures(self) -> tuple[type[BaseException], ...]:
        http = self._http
        return (self._package.APIConnectionError, http.HTTPError, http.InvalidURL, http.StreamError, OSError)

    async def aclose(self) -> None:
        """Nothing: the client belongs to whoever brought it."""

    @asynccontextmanager
    async def _post_async(self, path: str, asked: dict[str, Any]) -> AsyncIterator[HttpResponse]:
        try:
            response = await self._client.post(path, **asked)
        except self._package.APIStatusError as error:
            response = error.response
        except self.failures():
            raise
        except Exception as error:  # the client's own code, and whatever signs for it
            raise _unsigned(error) from error
        try:
            yield _Decoded(response, self._client) if _is_aws_stream(response) else response
        finally:
            await response.aclose()

    @asynccontextmanager
    async def _post_in_thread(self, path: str, asked: dict[str, Any]) -> AsyncIterator[HttpResponse]:
        pump = _Pump(lambda: self._open(path, asked), self._client)
        try:
            yield await pump.head()
        finally:
            pump.hang_up()

    def _open(self, path: str, asked: dict[str, Any]) -> Any:
        try:
            return self._client.post(path, **asked)
        except self._package.APIStatusError as error:
            return error.response
        except self.failures():
            raise
        except Exception as error:  # the client's own code, and whatever signs for it
            raise _unsigned(error) from error


class _Decoded:
    """A Bedrock stream, whose events come in AWS's binary framing, as the server-sent events it stands for."""

    def __init__(self, response: Any, client: Any) -> None:
        self._response = response
        self._client = client
        self.status_code: int = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        decoder = self._client._make_sse_decoder()
        async for event in decoder.aiter_bytes(self._response.aiter_bytes()):
            yield _as_sse(event)


class _Pump:
    """Reads a synchronous response in a thread and hands its pieces to the event loop."""

    def __init__(self, open_response: Any, client: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[Any] = asyncio.Queue()
        self._client = client
        self._response: Any = None
        self._is_over = False
        # A daemon: a call that was abandoned before its answer began must not keep the process from ending.
        threading.Thread(target=self._read, args=(open_response,), daemon=True).start()

    async def head(self) -> HttpResponse:
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

    def hang_up(self) -> None:
        """Ends the call now: closing alone would not wake a thread that waits for bytes."""
        self._is_over = True
        stream = getattr(self._response, "extensions", {}).get("network_stream")
        line = stream.get_extra_info("socket") if stream is not None else None
        if line is not None and not self._response.is_closed:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _read(self, open_response: Any) -> None:
        try:
            self._response = open_response()
            self._hand_over(self._response)
            for piece in self._chunks():
                if self._is_over:
                    break
                self._hand_over(piece)
            self._response.close()
            self._hand_over(None)
        except Exception as error:  # the edge of a thread: whoever awaits the call is the one to see it
            self._hand_over(error)

    def _chunks(self) -> Iterator[bytes]:
        if not _is_aws_stream(self._response):
            yield from self._response.iter_bytes()
            return
        for event in self._client._make_sse_decoder().iter_bytes(self._response.iter_bytes()):
            yield _as_sse(event)

    def _hand_over(self, piece: Any) -> None:
        # The loop may have been closed since: then nobody is waiting.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)


def _unsigned(error: Exception) -> ProviderError:
    """A call the client did not make at all: no credentials, an expired token, a missing package."""
    line = f"the client you handed over could not make the call: {type(error).__name__}: {quote(str(error))}"
    return ProviderError(ErrorVerdict("auth", line))


def _is_aws_stream(response: Any) -> bool:
    return str(response.headers.get("content-type", "")).startswith(_AWS_STREAM)


def _as_sse(event: Any) -> bytes:
    name = f"event: {event.event}\n" if event.event else ""
    return f"{name}data: {event.data}\n\n".encode()


def _http_library(client: object) -> ModuleType:
    """The HTTP library the client's package is built on: httpx, or since 2026 httpx2."""
    for cls in type(client).__mro__:
        module = sys.modules.get(cls.__module__)
        for name in ("httpx2", "httpx"):
            found = getattr(module, name, None)
            if cls.__module__.endswith("_base_client") and isinstance(found, ModuleType):
                return found
    raise ConfigError(f"cannot tell what {type(client).__name__} is built on; use base_url= and api_key= instead")
