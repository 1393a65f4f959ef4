"""Just enough HTTP/1.1 for a model service on loopback: keep-alive, JSON bodies, chunked streams, URLs of services.

The three protocols are also served at the URLs of other services: Azure deployments, Bedrock and Vertex model paths.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

MAX_HEAD_BYTES = 1 << 16
SSE = "text/event-stream; charset=utf-8"
# Polling interval for a client that disconnects while nothing is being written.
_WATCH_S = 0.05
# No timer is more exact than this.
_TIMER_S = 0.001


_SINGLE_HEADERS = frozenset(
    {
        "anthropic-version",
        "api-key",
        "authorization",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-api-key",
    }
)


class ClientGone(Exception):
    """Raised when the client closed the connection before the response was complete."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    # Names in lower case.
    headers: Mapping[str, str]
    body: bytes
    query: str = ""
    # Fields sent more than once that a server reads only one of.
    repeated_headers: tuple[str, ...] = ()


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Read the next request of a connection; None at its end. Raises ValueError for invalid HTTP."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _version = first.split(" ", 2)
    fields = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    headers = dict(fields)
    counts = Counter(name for name, _ in fields)
    repeated = tuple(name for name in sorted(_SINGLE_HEADERS) if counts[name] > 1)
    if "chunked" in headers.get("transfer-encoding", ""):
        body = await _read_chunked(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    path, _, query = target.partition("?")
    return HttpRequest(method, path, headers, body, query, repeated)


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        pass
    return b"".join(pieces)


class Connection:
    """Writes responses. Every method raises ClientGone once the client has disconnected."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        # Some services do not frame their events as server-sent events.
        self.stream_type = SSE
        self.reframe: Callable[[bytes], bytes] | None = None

    @property
    def is_closed(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    async def pause(self, seconds: float) -> None:
        """Sleep, unless the client disconnects."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (remaining := end - loop.time()) > _TIMER_S:
            self._check()
            await asyncio.sleep(min(remaining, _WATCH_S))
        self._check()

    async def answer(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a complete response."""
        lengths = {"content-length": str(len(body))} if body or status != 204 else {}
        await self._write(_head(status, {"content-type": content_type, **lengths, **(headers or {})}) + body)

    async def answer_json(self, status: int, value: Any, *, headers: Mapping[str, str] | None = None) -> None:
        await self.answer(status, json.dumps(value, ensure_ascii=False).encode(), headers=headers)

    async def begin_stream(self, headers: Mapping[str, str]) -> None:
        fixed = {"content-type": self.stream_type, "cache-control": "no-cache"}
        await self._write(_head(200, {**fixed, "transfer-encoding": "chunked", **headers}))

    async def send(self, piece: bytes) -> None:
        """Send a chunk of a stream and flush it."""
        piece = self.reframe(piece) if self.reframe is not None else piece
        await self._write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")

    async def end_stream(self) -> None:
        await self._write(b"0\r\n\r\n")

    def drop(self) -> None:
        """Abort the connection."""
        self._writer.transport.abort()

    async def _write(self, data: bytes) -> None:
        self._check()
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError as error:
            raise ClientGone from error

    def _check(self) -> None:
        if self.is_closed:
            raise ClientGone


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Overloaded" if status == 529 else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace")


AWS_STREAM = "application/vnd.amazon.eventstream"

_AZURE = re.compile(r"/openai/(?:v1|deployments/[^/]+)?/?(chat/completions|responses)")
_BEDROCK = re.compile(r"/model/([^/]+)/invoke(-with-response-stream)?")
_VERTEX = re.compile(r".*/publishers/anthropic/models/([^/:]+):(?:rawPredict|streamRawPredict)")


def resolve_address(request: HttpRequest) -> tuple[HttpRequest, Callable[[bytes], bytes] | None]:
    """Rewrite the request for the protocol's own endpoint; return it with the stream framing where that differs."""
    if azure := _AZURE.fullmatch(request.path):
        key = request.headers.get("api-key") or request.headers.get("authorization", "")
        return replace(request, path=f"/v1/{azure[1]}", headers={**request.headers, "authorization": key}), None
    if bedrock := _BEDROCK.fullmatch(request.path):
        streams = bedrock[2] is not None
        return _native(request, bedrock[1], stream=streams), aws_frames if streams else None
    if vertex := _VERTEX.fullmatch(request.path):
        return _native(request, vertex[1]), None
    return request, None


def _native(request: HttpRequest, model: str, **fields: bool) -> HttpRequest:
    """Rewrite an Anthropic request with the model in its path and the version in its body."""
    try:
        body = json.loads(request.body)
        version = str(body.pop("anthropic_version"))
    except (ValueError, KeyError, AttributeError, TypeError):
        return replace(request, path="/v1/messages")
    raw = json.dumps({**body, "model": unquote(model), **fields}).encode()
    headers = {**request.headers, "anthropic-version": version}
    return replace(request, path="/v1/messages", headers=headers, body=raw, query="")


def aws_frames(events: bytes) -> bytes:
    """Encode server-sent events as AWS event-stream messages, one each."""
    lines = [line[6:] for line in events.split(b"\n") if line.startswith(b"data: ")]
    return b"".join(_aws_message(line) for line in lines)


def _aws_message(data: bytes) -> bytes:
    payload = json.dumps({"bytes": base64.b64encode(data).decode()}).encode()
    headers = b"".join(
        struct.pack("!B", len(name)) + name + struct.pack("!BH", 7, len(value)) + value
        for name, value in (
            (b":event-type", b"chunk"),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    prelude = struct.pack("!II", 12 + len(headers) + len(payload) + 4, len(headers))
    message = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", binascii.crc32(message))
