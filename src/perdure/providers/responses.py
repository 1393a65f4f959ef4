"""The OpenAI Responses wire (mode `codex_responses`): stateless, reasoning carried along encrypted.

A message becomes one or more input items. Reasoning items go back exactly where they stood and only with something
behind them; ids of messages and calls are not sent, for the service would then demand the reasoning each belonged to.
`parse` and `Stream` are in `responses_replies.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from perdure.core.messages import ImagePart, Message, OtherPart, Part, TextPart, ToolCall
from perdure.providers.encoding import (
    EMPTY_TEXT,
    Fragment,
    described,
    dumps,
    fragments,
    joined,
    texts_of,
    wire_arguments,
    wire_id,
    wire_name,
)
from perdure.providers.exchange import Endpoint, ModelRequest
from perdure.providers.replies import pieces_of
from perdure.providers.responses_replies import ResponsesStream, parse
from perdure.providers.services import quirks_of

__all__ = ["PATH", "ResponsesStream", "build", "headers", "parse"]

PATH = "/responses"
ENCRYPTED = "reasoning.encrypted_content"

_REASONING_KEYS = ("type", "id", "summary", "content", "encrypted_content")


def headers(endpoint: Endpoint) -> dict[str, str]:
    quirks = quirks_of(endpoint.provider, model=endpoint.model, base_url=endpoint.base_url, api_mode="codex_responses")
    sent = {"Content-Type": "application/json", **quirks.headers}
    if key := endpoint.api_key:
        sent |= {"api-key": key} if quirks.auth == "api-key" else {"Authorization": f"Bearer {key}"}
    return sent | dict(endpoint.headers)


def build(request: ModelRequest) -> bytes:
    """The body to post. Same request, same bytes; a message that was sent before costs one lookup."""
    replays = request.quirks.takes_encrypted_reasoning
    encode = partial(_encode, replays=replays)
    pieces = [f.body for f in fragments(request.entries, ("responses", replays), encode)]
    return joined(_head(request), "input", pieces)


def _head(request: ModelRequest) -> dict[str, Any]:
    """Everything but the input."""
    quirks = request.quirks
    head: dict[str, Any] = {"model": request.model, "store": False}
    if request.is_streaming:
        head["stream"] = True
    if quirks.takes_encrypted_reasoning:
        head["include"] = [ENCRYPTED]
    if request.max_tokens and quirks.max_tokens_key:
        head["max_output_tokens"] = request.max_tokens
    if request.temperature is not None and quirks.takes_temperature:
        head["temperature"] = request.temperature
    if request.reasoning_effort:
        head["reasoning"] = {"effort": request.reasoning_effort, "summary": "auto"}
    if request.tools:
        head["tools"] = [_tool(t) for t in request.tools]
    if texts := [t for t in request.system if t]:
        head["instructions"] = "\n\n".join(texts)
    return head | dict(quirks.extra) | dict(request.extra)


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    # This wire makes schemas strict unless told not to, and refuses those that are not written for it.
    return {"type": "function", "strict": False, **function}


def _encode(message: Message, *, replays: bool) -> Fragment:
    if message.role == "tool":
        call_id = wire_id(message.tool_call_id or "", "responses")
        item = {"type": "function_call_output", "call_id": call_id, "output": _output(message)}
        return _fragment("tool", [item], frozenset((call_id,)))
    if message.role == "assistant":
        ids = frozenset(wire_id(c.id, "responses") for c in message.tool_calls)
        return _fragment("assistant", _assistant(message, replays=replays), ids)
    spoken = [p for p in message.parts if not isinstance(p, TextPart) or p.text.strip()]
    content = [_part(p) for p in spoken] or [{"type": "input_text", "text": EMPTY_TEXT}]
    return _fragment("user", [{"type": "message", "role": message.role, "content": content}])


def _fragment(role: str, items: list[dict[str, Any]], ids: frozenset[str] = frozenset()) -> Fragment:
    return Fragment(role, dumps(items)[1:-1], ids)


def _assistant(message: Message, *, replays: bool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for piece in pieces_of(message, _reasoning(message) if replays else []):
        if isinstance(piece, ToolCall):
            items.append(_call(piece))
        elif isinstance(piece, str):
            if piece.strip():
                items.append(_said(piece, message))
        else:
            items.append({k: piece[k] for k in _REASONING_KEYS if piece.get(k) is not None})
    # "Item 'rs_…' of type 'reasoning' was provided without its required following item."
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items or [_said(EMPTY_TEXT, message)]


def _said(text: str, message: Message) -> dict[str, Any]:
    # As plain text: the list form is an output item's, and servers that check types want its id and status too.
    item = {"type": "message", "role": "assistant", "content": text}
    phase = message.extra.get("phase")
    return {**item, "phase": phase} if isinstance(phase, str) else item


def _reasoning(message: Message) -> list[Mapping[str, Any]]:
    """Reasoning items that carry themselves: one named by its id alone is unknown to a service that stores nothing."""
    return [d for d in message.reasoning_details if d.get("type") == "reasoning" and d.get("encrypted_content")]


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": wire_id(call.id, "responses"),
        "name": wire_name(call.name),
        "arguments": wire_arguments(call.arguments),
    }


def _output(message: Message) -> str | list[dict[str, Any]]:
    parts: Sequence[Part] = message.parts
    if any(isinstance(p, ImagePart) for p in parts):
        return [_part(p) for p in parts]
    return "\n".join(texts_of(parts))


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, ImagePart):
        return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
    return _other(part)


def _other(part: OtherPart) -> dict[str, Any]:
    raw = part.raw
    if str(raw.get("type", "")).startswith("input_"):
        return dict(raw)
    file = raw.get("file")
    if isinstance(file, Mapping):
        return {"type": "input_file", **{k: file[k] for k in ("file_id", "filename", "file_data") if k in file}}
    return {"type": "input_text", "text": described(part)}
