"""The three protocols at the URLs of other services: Azure deployments, Bedrock and Vertex model paths.

Each request is rewritten for the protocol's own endpoint; Bedrock streams use AWS's binary framing.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import unquote

from perdure.testing.simulator.http import HttpRequest

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
    return HttpRequest(request.method, "/v1/messages", headers, raw)


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
