"""The Chat Completions wire: OpenAI's, and nearly everybody else's.

`build` joins the kept bytes of each message; `parse` and `Stream` (in `chat_replies.py`) read what comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from perdure.core.messages import ImagePart, Message, Part, TextPart, ToolCall
from perdure.providers.caching import Mark, last_marked, mark_of
from perdure.providers.chat_replies import ChatStream, parse
from perdure.providers.encoding import (
    EMPTY_TEXT,
    Fragment,
    dumps,
    fragments,
    joined,
    texts_of,
    wire_arguments,
    wire_id,
    wire_name,
)
from perdure.providers.exchange import Endpoint, ModelRequest, Quirks
from perdure.providers.services import quirks_of

__all__ = ["PATH", "ChatStream", "build", "headers", "parse"]

PATH = "/chat/completions"
IMAGES_FOLLOW = "[Images returned by the tools above]"

# What a call or message may carry beside its own fields and is sent back: Gemini's thought signatures, audio ids.
_CALL_EXTRAS = ("extra_content",)
_MESSAGE_EXTRAS = ("audio", "prefix")


def headers(endpoint: Endpoint) -> dict[str, str]:
    quirks = quirks_of(endpoint.provider, model=endpoint.model, base_url=endpoint.base_url)
    sent = {"Content-Type": "application/json", **quirks.headers}
    if endpoint.api_key:
        key = endpoint.api_key
        sent |= {"api-key": key} if quirks.auth == "api-key" else {"Authorization": f"Bearer {key}"}
    return sent | dict(endpoint.headers)


def build(request: ModelRequest) -> bytes:
    """The body to post. Same request, same bytes; a message that was sent before costs one lookup."""
    quirks = request.quirks
    key = ("chat", quirks.reasoning_field, quirks.call_ids, quirks.tool_images, request.cache_ttl is not None)
    encode = partial(_encode, quirks=quirks, in_parts=request.cache_ttl is not None)
    pieces: list[bytes] = []
    takes_mark: list[bool] = []
    images: list[Mapping[str, Any]] = []
    for fragment in fragments(request.entries, key, encode):
        if images and fragment.role != "tool":
            pieces[-1] += b"," + _images_behind(images)
            images = []
        pieces.append(fragment.body)
        takes_mark.append(fragment.takes_mark)
        images += fragment.images
    if images:
        pieces[-1] += b"," + _images_behind(images)
    mark = mark_of(request.cache_ttl) if request.cache_ttl is not None else None
    if mark is not None:
        for i in last_marked(takes_mark):
            # Not kept: in two calls the mark has moved on. Images behind a result never stand at a marked place.
            pieces[i] = encode(request.entries[i].message, mark=mark).body
    if front := _system(request.system, mark):
        pieces.insert(0, front)
    return joined(_head(request), "messages", pieces)


def _head(request: ModelRequest) -> dict[str, Any]:
    """Everything but the messages."""
    quirks = request.quirks
    head: dict[str, Any] = {"model": request.model}
    if request.is_streaming:
        head["stream"] = True
        if quirks.takes_stream_options:
            head["stream_options"] = {"include_usage": True}
    if request.max_tokens and quirks.max_tokens_key:
        head[quirks.max_tokens_key] = request.max_tokens
    if request.temperature is not None and quirks.takes_temperature:
        head["temperature"] = request.temperature
    head |= _effort(request.reasoning_effort, quirks)
    if request.tools:
        head["tools"] = [tool if tool.get("type") else {"type": "function", "function": tool} for tool in request.tools]
    return head | dict(quirks.extra) | dict(request.extra)


def _effort(effort: str | None, quirks: Quirks) -> dict[str, Any]:
    if not effort or quirks.effort == "none":
        return {}
    if quirks.effort == "thinking":
        return {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}
    return {"reasoning": {"effort": effort}} if quirks.effort == "reasoning" else {"reasoning_effort": effort}


def _system(blocks: tuple[str, ...], mark: Mark | None) -> bytes:
    """One system message, or none at all; with marks its blocks are parts, and the cached prompt takes the mark."""
    texts = [b for b in blocks if b]
    if not texts:
        return b""
    if mark is None:
        return dumps({"role": "system", "content": "\n\n".join(texts)})
    parts: list[dict[str, Any]] = [{"type": "text", "text": t} for t in texts]
    parts[0]["cache_control"] = mark
    return dumps({"role": "system", "content": parts})


def _encode(message: Message, *, quirks: Quirks, in_parts: bool, mark: Mark | None = None) -> Fragment:
    if message.role == "tool":
        return _result(message, quirks)
    if message.role == "assistant":
        return _assistant(message, quirks, in_parts=in_parts, mark=mark)
    wire: dict[str, Any] = {"role": message.role}
    parts = [_part(p) for p in message.parts if not _is_blank(p)]
    content = message.content if parts else EMPTY_TEXT
    _put_content(wire, parts or [{"type": "text", "text": EMPTY_TEXT}], content, in_parts=in_parts, mark=mark)
    if message.name:
        wire["name"] = message.name
    return Fragment("user", dumps(wire))


def _assistant(message: Message, quirks: Quirks, *, in_parts: bool, mark: Mark | None) -> Fragment:
    wire: dict[str, Any] = {"role": "assistant"}
    content = message.content
    if quirks.reasoning_field == "think_tags" and message.reasoning:
        content = f"<think>\n{message.reasoning}\n</think>\n\n{message.text}"
    if isinstance(content, tuple):
        parts = [{"type": "text", "text": t} for t in texts_of(content) if t.strip()]
    else:
        parts = [{"type": "text", "text": content}] if content and content.strip() else []
    if not parts and not message.tool_calls:
        # "The message at position 3 with role 'assistant' must not be empty" (Moonshot, Mistral).
        content, parts = EMPTY_TEXT, [{"type": "text", "text": EMPTY_TEXT}]
    _put_content(wire, parts, content, in_parts=in_parts, mark=mark)
    if quirks.reasoning_field in ("reasoning", "reasoning_content") and message.reasoning:
        wire[quirks.reasoning_field] = message.reasoning
    if quirks.reasoning_field == "reasoning" and (details := _router_details(message)):
        wire["reasoning_details"] = details
    if message.tool_calls:
        wire["tool_calls"] = [_call(c, quirks) for c in message.tool_calls]
    wire |= {k: message.extra[k] for k in _MESSAGE_EXTRAS if message.extra.get(k) is not None}
    return Fragment("assistant", dumps(wire), frozenset(wire_id(c.id, quirks.call_ids) for c in message.tool_calls))


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _put_content(
    wire: dict[str, Any], parts: list[dict[str, Any]], content: object, *, in_parts: bool, mark: Mark | None
) -> None:
    """A string where it was one, parts where it was not; on marked routes always parts, so that a mark moving on
    changes nothing but itself. Without parts the message is one that only calls tools."""
    if not parts:
        wire["content"] = None
        if mark is not None:
            wire["cache_control"] = mark
        return
    if mark is not None:
        parts[-1] = {**parts[-1], "cache_control": mark}
    wire["content"] = content if isinstance(content, str) and not in_parts else parts


def _result(message: Message, quirks: Quirks) -> Fragment:
    """A tool's result as one string; its images stand where this service takes them."""
    call_id = wire_id(message.tool_call_id or "", quirks.call_ids)
    images = tuple(_part(p) for p in message.parts if isinstance(p, ImagePart))
    texts = texts_of(message.parts)
    content: object = "\n".join(texts)
    if images and quirks.tool_images == "inline":
        content, images = [_part(p) for p in message.parts], ()
    elif images and quirks.tool_images == "omit":
        content = "\n".join([*texts, "[image omitted: this service takes none in tool results]"])
        images = ()
    elif images and not texts:
        content = "[image below]"
    wire = {"role": "tool", "tool_call_id": call_id, "content": content}
    return Fragment("tool", dumps(wire), frozenset((call_id,)), images, takes_mark=False)


def _images_behind(images: list[Mapping[str, Any]]) -> bytes:
    """The user message that shows what tools returned: this wire takes images from the user only."""
    return dumps({"role": "user", "content": [{"type": "text", "text": IMAGES_FOLLOW}, *images]})


def _part(part: Part) -> dict[str, Any]:
    wire = part.to_dict()
    wire.pop("cache_control", None)
    return {"type": "text", "text": part.text} if isinstance(part, TextPart) else wire


def _call(call: ToolCall, quirks: Quirks) -> dict[str, Any]:
    function = {"name": wire_name(call.name), "arguments": wire_arguments(call.arguments)}
    wire: dict[str, Any] = {"id": wire_id(call.id, quirks.call_ids), "type": "function", "function": function}
    return wire | {k: call.extra[k] for k in _CALL_EXTRAS if call.extra.get(k) is not None}


def _router_details(message: Message) -> list[dict[str, Any]]:
    """Reasoning blocks a router wants back as it gave them; those of other wires stay away."""
    return [dict(d) for d in message.reasoning_details if str(d.get("type", "")).startswith("reasoning.")]
