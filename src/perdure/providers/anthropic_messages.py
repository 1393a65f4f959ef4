"""The Anthropic Messages wire.

Results of parallel calls are joined into one user message, and cache marks are placed on the joined messages, so that
the last mark of one call is always among those of the next. `parse` and `Stream` are in `anthropic_replies.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.core.messages import Entry, ImagePart, Message, OtherPart, Part, TextPart, ToolCall
from perdure.providers.anthropic_replies import AnthropicStream, parse
from perdure.providers.caching import MARKED_MESSAGES, Mark, mark_of
from perdure.providers.encoding import (
    EMPTY_TEXT,
    Fragment,
    data_url,
    described,
    dumps,
    fragments,
    json_object,
    wire_arguments,
    wire_id,
    wire_name,
)
from perdure.providers.exchange import Endpoint, ModelRequest
from perdure.providers.replies import pieces_of
from perdure.providers.services import quirks_of
from perdure.providers.thinking import output_default, thinking_keys

__all__ = ["PATH", "AnthropicStream", "build", "headers", "parse"]

PATH = "/v1/messages"
VERSION = "2023-06-01"

# Tokens of a subscription log-in look like this; they are bearers, not keys.
_OAUTH_PREFIX = "sk-ant-oat"
_OAUTH_BETA = "oauth-2025-04-20"
_OPENERS = {"user": b'{"role":"user","content":[', "assistant": b'{"role":"assistant","content":['}
_NATIVE_PARTS = frozenset({"document", "image", "search_result"})


def headers(endpoint: Endpoint) -> dict[str, str]:
    quirks = quirks_of(endpoint.provider, model=endpoint.model, base_url=endpoint.base_url)
    sent = {"Content-Type": "application/json", "anthropic-version": VERSION, **quirks.headers}
    if key := endpoint.api_key:
        if key.startswith(_OAUTH_PREFIX):
            sent |= {"Authorization": f"Bearer {key}", "anthropic-beta": _OAUTH_BETA}
        elif quirks.auth == "bearer" or "openrouter.ai" in endpoint.base_url:
            sent["Authorization"] = f"Bearer {key}"
        else:
            sent["x-api-key"] = key
    return sent | dict(endpoint.headers)


def build(request: ModelRequest) -> bytes:
    """The body to post. Same request, same bytes; a message that was sent before costs one lookup."""
    kept = list(fragments(request.entries, "anthropic", _encode))
    separators: list[bytes] = []
    before = ""
    for fragment in kept:
        role = "assistant" if fragment.role == "assistant" else "user"
        if role == before:
            separators.append(b",")
        else:
            separators.append(b"]}," + _OPENERS[role] if before else _OPENERS[role])
        before = role
    blocks = [f.body for f in kept]
    mark = mark_of(request.cache_ttl) if request.cache_ttl is not None else None
    if mark is not None:
        for i in _marked_ends(separators, kept):
            blocks[i] = _remarked(request.entries[i], kept[i], mark)
    head = dumps(_head(request, mark))
    out = [head[:-1], b',"messages":[']
    for pair in zip(separators, blocks, strict=True):
        out += pair
    out.append(b"]}]}" if blocks else b"]}")
    return b"".join(out)


def _marked_ends(separators: Sequence[bytes], kept: Sequence[Fragment]) -> list[int]:
    """The last entries of the last three wire messages that can carry a mark; walks back no further than it must."""
    found: list[int] = []
    is_end = True
    for i in range(len(separators) - 1, -1, -1):
        if is_end and kept[i].takes_mark:
            found.append(i)
            if len(found) == MARKED_MESSAGES:
                break
        is_end = separators[i] != b","
    return found


def _remarked(entry: Entry, fragment: Fragment, mark: Mark) -> bytes:
    """One entry's bytes with the mark on its last block. Not kept: in two calls the mark has moved on."""
    message = entry.message
    if fragment.role == "tool":  # under the id its call asks with, which the message itself may not name
        message = replace(message, tool_call_id=next(iter(fragment.ids)))
    return _encode(message, mark=mark).body


def _head(request: ModelRequest, mark: Mark | None) -> dict[str, Any]:
    """Everything but the messages."""
    head: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens or output_default(request.model),
    }
    if request.is_streaming:
        head["stream"] = True
    thinking = thinking_keys(request.model, request.reasoning_effort, head["max_tokens"]) if _may_think(request) else {}
    if request.temperature is not None and not thinking and request.quirks.takes_temperature:
        head["temperature"] = request.temperature
    head |= thinking
    if request.tools:
        head["tools"] = [_tool(t) for t in request.tools]
    system: list[dict[str, Any]] = [{"type": "text", "text": t} for t in request.system if t.strip()]
    if system:
        if mark is not None:
            system[0]["cache_control"] = mark
        head["system"] = system
    return head | dict(request.quirks.extra) | dict(request.extra)


def _may_think(request: ModelRequest) -> bool:
    """In the middle of a tool turn thinking may not start: a calling message without its own would be refused."""
    for entry in reversed(request.entries):
        message = entry.message
        if message.role == "assistant":
            return not message.tool_calls or bool(_thinking(message))
        if message.role != "tool":
            return True
    return True


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    schema = function.get("parameters")
    schema = {"type": "object", **schema} if isinstance(schema, Mapping) else {"type": "object", "properties": {}}
    out = {"name": wire_name(str(function.get("name") or "")), "input_schema": schema}
    return {**out, "description": function["description"]} if function.get("description") else out


def _encode(message: Message, *, mark: Mark | None = None) -> Fragment:
    if message.role == "tool":
        call_id = wire_id(message.tool_call_id or "", "anthropic")
        return _fragment("tool", [_result(message, call_id)], ids=frozenset((call_id,)), mark=mark)
    if message.role == "assistant":
        ids = frozenset(wire_id(c.id, "anthropic") for c in message.tool_calls)
        return _fragment("assistant", _assistant(message), ids=ids, mark=mark)
    return _fragment("user", _parts(message.parts) or [{"type": "text", "text": EMPTY_TEXT}], mark=mark)


def _fragment(
    role: str, blocks: list[dict[str, Any]], *, ids: frozenset[str] = frozenset(), mark: Mark | None
) -> Fragment:
    takes_mark = blocks[-1]["type"] not in ("thinking", "redacted_thinking")
    if mark is not None and takes_mark:
        blocks[-1] = {**blocks[-1], "cache_control": mark}
    return Fragment(role, dumps(blocks)[1:-1], ids, takes_mark=takes_mark)


def _assistant(message: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for piece in pieces_of(message, _thinking(message)):
        if isinstance(piece, ToolCall):
            blocks.append(_call(piece))
        elif not isinstance(piece, str):
            blocks.append(dict(piece))
        elif piece.strip():
            blocks.append({"type": "text", "text": piece})
    if all(b["type"] in ("thinking", "redacted_thinking") for b in blocks):
        blocks.append({"type": "text", "text": EMPTY_TEXT})
    return blocks


def _thinking(message: Message) -> list[Mapping[str, Any]]:
    """Thinking this service signed itself; unsigned or foreign reasoning would be refused."""
    return [
        d
        for d in message.reasoning_details
        if (d.get("type") == "thinking" and d.get("signature")) or (d.get("type") == "redacted_thinking")
    ]


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = json_object(wire_arguments(call.arguments))
    return {"type": "tool_use", "id": wire_id(call.id, "anthropic"), "name": wire_name(call.name), "input": arguments}


def _result(message: Message, call_id: str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
    if isinstance(message.content, str):
        if message.content.strip():
            block["content"] = message.content
    elif parts := _parts(message.parts):
        block["content"] = parts
    if message.extra.get("is_error") is True:
        block["is_error"] = True
    return block


def _parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [_part(p) for p in parts if not isinstance(p, TextPart) or p.text.strip()]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        return {"type": "image", "source": _source(part.url)}
    return _other(part)


def _source(url: str) -> dict[str, Any]:
    if (embedded := data_url(url)) is not None:
        return {"type": "base64", "media_type": embedded[0], "data": embedded[1]}
    return {"type": "url", "url": url}


def _other(part: OtherPart) -> dict[str, Any]:
    """Parts of this wire's own kinds pass; a file of OpenAI's kind becomes a document; the rest is described."""
    raw = part.raw
    if raw.get("type") in _NATIVE_PARTS:
        return {k: v for k, v in raw.items() if k != "cache_control"}
    file = raw.get("file")
    if isinstance(file, Mapping) and (embedded := data_url(str(file.get("file_data", "")))):
        return {"type": "document", "source": {"type": "base64", "media_type": embedded[0], "data": embedded[1]}}
    return {"type": "text", "text": described(part)}
