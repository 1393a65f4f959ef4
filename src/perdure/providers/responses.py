"""The Responses protocol: build requests, parse replies and streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from perdure.core.errors import ProviderError
from perdure.core.events import ReasoningDelta, RefusalDelta, TextDelta, ToolCallParsed
from perdure.core.messages import ImagePart, Message, OtherPart, Part, TextPart, ToolCall
from perdure.core.turn_options import AUTO, REQUIRED
from perdure.providers.codec import (
    EMPTY_TEXT,
    JSON_HEADERS,
    Fragment,
    Piece,
    Thought,
    as_list,
    as_map,
    as_text,
    breakpoint_mark,
    build_message,
    decode_event,
    describe_part,
    dumps,
    encode_entries,
    join_body,
    merge_headers,
    normalize_finish,
    reply_error,
    split_message,
    system_parts,
    texts_of,
    truncated_reply_error,
    wire_arguments,
    wire_id,
    wire_name,
)
from perdure.providers.errors.classify import classify_error, find_error
from perdure.providers.registry import quirks_of
from perdure.providers.types import Delta, Endpoint, Finish, ModelRequest, Reply, SseEvent, normalize_usage

__all__ = ["PATH", "ResponsesStream", "build", "headers", "parse"]

PATH = "/responses"
ENCRYPTED = "reasoning.encrypted_content"

_REASONING_KEYS = ("type", "id", "summary", "content", "encrypted_content")


_INCOMPLETE: dict[str, Finish] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "length": "length",
    "content_filter": "content_filter",
    "model_context_window_exceeded": "context_overflow",
    "context_length_exceeded": "context_overflow",
}
_LAST = frozenset({"response.completed", "response.incomplete", "response.done"})
_REFUSAL_DELTA = "response.refusal.delta"
_TEXT_DELTAS = frozenset({"response.output_text.delta", _REFUSAL_DELTA})
_REASONING_DELTAS = frozenset(
    {"response.reasoning_summary_text.delta", "response.reasoning_text.delta", "response.reasoning.delta"}
)


def parse(body: Mapping[str, Any]) -> Reply:
    """Parse a complete response body. Raises ProviderError where it contains an error or no reply."""
    body = as_map(body)
    _raise_failure(body)
    if not isinstance(body.get("output"), list | tuple):
        raise reply_error("transport", "the response contains no reply")
    return _reply(body, [as_map(i) for i in as_list(body["output"])])


def _raise_failure(body: Mapping[str, Any], *, partial_text: str = "") -> None:
    error = find_error(body)
    if error is None and body.get("status") in ("failed", "cancelled"):
        raise reply_error("transport", f"the service reports: {body['status']}", partial_text=partial_text)
    if error is not None:
        raise ProviderError(classify_error(None, error), partial_text=partial_text)


def _reply(head: Mapping[str, Any], items: list[Mapping[str, Any]]) -> Reply:
    pieces: list[Piece] = []
    extra: dict[str, Any] = {}
    is_refused = False
    for item in items:
        kind = item.get("type")
        if kind == "reasoning":
            pieces.append(_parse_thought(item))
        elif kind in ("function_call", "custom_tool_call"):
            pieces.append(_call(item))
        elif kind == "message":
            text, is_item_refused = _message_text(item)
            is_refused = is_refused or is_item_refused
            pieces.append(text)
            if phase := as_text(item.get("phase")):
                extra["phase"] = phase
    response_id = as_text(head.get("id"))
    message = build_message(pieces, response_id=response_id, extra=extra)
    finish = "refusal" if is_refused else normalize_finish(_finish(head), message)
    usage = normalize_usage(head.get("usage"), "codex_responses")
    return Reply(message, usage, finish, as_text(head.get("model")), response_id)


def _finish(head: Mapping[str, Any]) -> Finish:
    if head.get("status") == "incomplete":
        return _INCOMPLETE.get(as_text(as_map(head.get("incomplete_details")).get("reason")), "length")
    return "stop"


def _parse_thought(item: Mapping[str, Any]) -> Thought:
    texts = [as_text(as_map(p).get("text")) for key in ("summary", "content") for p in as_list(item.get(key))]
    detail = {k: item[k] for k in ("type", "id", "summary", "content", "encrypted_content") if item.get(k) is not None}
    return Thought("\n\n".join(t for t in texts if t), detail)


def _call(item: Mapping[str, Any]) -> ToolCall:
    """Parse a call under its `call_id`, which results refer to; the item id is stored in `extra`."""
    item_id = as_text(item.get("id"))
    arguments = item.get("arguments") if item.get("type") == "function_call" else item.get("input")
    text = (
        arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {}, default=str)
    )
    extra = {"item_id": item_id} if item_id else {}
    return ToolCall(as_text(item.get("call_id")) or item_id, as_text(item.get("name")), text.strip() or "{}", extra)


def _message_text(item: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text of a message item, and whether it is a refusal."""
    content = item.get("content")
    if isinstance(content, str):
        return content, False
    parts = [as_map(p) for p in as_list(content)]
    text = "".join(as_text(p.get("text")) for p in parts)
    refusal = "".join(as_text(p.get("refusal")) for p in parts)
    return text or refusal, bool(refusal) and not text


class ResponsesStream:
    """Parser for a streamed reply; `finish` returns it, or raises when the stream was truncated."""

    def __init__(self) -> None:
        self._head: Mapping[str, Any] = {}
        self._items: dict[int, Mapping[str, Any]] = {}
        self._texts: list[str] = []
        self._is_done = False
        # Pieces of content parsed so far; events that add none are keep-alive signals.
        self.progress = 0

    @property
    def partial_text(self) -> str:
        """The text received so far."""
        return "".join(self._texts)

    def feed(self, event: SseEvent) -> list[Delta]:
        """Return the deltas of an event. Raises ProviderError where it reports an error."""
        data = event.data.strip()
        value = None if not data or data == "[DONE]" else decode_event(data, self)
        if value is None:
            return []
        kind = as_text(value.get("type")) or event.name
        text = value.get("delta")
        if isinstance(text, str) and text:
            self.progress += 1
            if kind in _TEXT_DELTAS:
                self._texts.append(text)
                return [RefusalDelta(text) if kind == _REFUSAL_DELTA else TextDelta(text)]
            return [ReasoningDelta(text)] if kind in _REASONING_DELTAS else []
        return self._other(kind, value)

    def _other(self, kind: str, value: Mapping[str, Any]) -> list[Delta]:
        response = as_map(value.get("response"))
        if kind == "response.output_item.done":
            return self._item(value)
        if kind in ("response.created", "response.in_progress"):
            self._head = response
        elif kind in _LAST:
            _raise_failure(response, partial_text=self.partial_text)
            self._head, self._is_done = response, True
        elif kind in ("response.failed", "response.cancelled"):
            _raise_failure({"status": "failed", **response}, partial_text=self.partial_text)
        elif kind == "error" or kind == "response.error" or (not kind and find_error(value) is not None):
            raise ProviderError(classify_error(None, find_error(value) or value), partial_text=self.partial_text)
        return []

    def _item(self, value: Mapping[str, Any]) -> list[Delta]:
        item, index = as_map(value.get("item")), value.get("output_index")
        slot = index if isinstance(index, int) else len(self._items)
        self.progress += slot not in self._items
        self._items[slot] = item
        is_call = item.get("type") in ("function_call", "custom_tool_call")
        return [ToolCallParsed(_call(item))] if is_call else []

    def finish(self) -> Reply:
        """Return the reply. Raises ProviderError (transport) when the last event is missing."""
        if not self._is_done:
            raise truncated_reply_error(self.partial_text)
        items = [as_map(i) for i in as_list(self._head.get("output"))]
        # Some backends leave the output of the last event empty: use the items received before.
        items = items or [self._items[i] for i in sorted(self._items)]
        if not items and self._texts:
            items = [{"type": "message", "content": self.partial_text}]
        return _reply(self._head, items)


def headers(endpoint: Endpoint) -> dict[str, str]:
    quirks = quirks_of(endpoint.provider, model=endpoint.model, base_url=endpoint.base_url, api_mode="codex_responses")
    fields: dict[str, str] = {}
    if key := endpoint.api_key:
        fields |= {"api-key": key} if quirks.auth == "api-key" else {"authorization": f"Bearer {key}"}
    return merge_headers(JSON_HEADERS, quirks.headers, fields, endpoint.headers)


def build(request: ModelRequest) -> bytes:
    """Build the JSON body of a request. The same request gives the same bytes; encoded messages are cached."""
    replays = request.quirks.takes_encrypted_reasoning
    encode = partial(_encode, replays=replays)
    pieces = [f.body for f in encode_entries(request.entries, ("responses", replays), encode)]
    if request.marks_system and (texts := [t for t in request.system if t]):
        # `instructions` takes no mark.
        content = system_parts(texts, "input_text", breakpoint_mark())
        pieces.insert(0, dumps({"type": "message", "role": "developer", "content": content}))
    return join_body(_head(request), "input", pieces)


# For requests without a system prompt, such as summaries.
_NO_INSTRUCTIONS = "Do what the message asks."


def _head(request: ModelRequest) -> dict[str, Any]:
    """Return all keys of the request body but the input."""
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
        if request.tool_choice != AUTO:
            choice = request.tool_choice
            head["tool_choice"] = choice if choice == REQUIRED else {"type": "function", "name": choice}
        if not request.allows_parallel_calls:
            head["parallel_tool_calls"] = False
    if (answer := request.enforced_format) is not None:
        schema = {"type": "json_schema", "name": answer.name, "schema": answer.schema, "strict": answer.is_strict}
        is_schema = answer.schema is not None and quirks.answer_format == "json_schema"
        json_schema = {k: v for k, v in schema.items() if v is not None}
        head["text"] = {"format": json_schema if is_schema else {"type": "json_object"}}
    if request.cache_key:
        head["prompt_cache_key"] = request.cache_key
    texts = [] if request.marks_system else [t for t in request.system if t]
    if texts:
        head["instructions"] = "\n\n".join(texts)
    elif quirks.requires_instructions:
        head["instructions"] = _NO_INSTRUCTIONS
    return head | dict(quirks.extra) | dict(request.extra)


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    # The API defaults to strict schemas and refuses schemas that are not written for it.
    return {"type": "function", "strict": False, **function}


def _encode(message: Message, *, replays: bool) -> Fragment:
    if message.role == "tool":
        call_id = wire_id(message.tool_call_id or "", "responses")
        item = {"type": "function_call_output", "call_id": call_id, "output": _output(message)}
        return _fragment("tool", [item], frozenset((call_id,)))
    if message.role == "assistant":
        ids = frozenset(wire_id(c.id, "responses") for c in message.tool_calls)
        return _fragment("assistant", _assistant(message, replays=replays), ids)
    parts = [p for p in message.parts if not isinstance(p, TextPart) or p.text.strip()]
    content = [_part(p) for p in parts] or [{"type": "input_text", "text": EMPTY_TEXT}]
    return _fragment("user", [{"type": "message", "role": message.role, "content": content}])


def _fragment(role: str, items: list[dict[str, Any]], ids: frozenset[str] = frozenset()) -> Fragment:
    return Fragment(role, dumps(items)[1:-1], ids)


def _assistant(message: Message, *, replays: bool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for piece in split_message(message, _reasoning(message) if replays else []):
        if isinstance(piece, ToolCall):
            items.append(_responses_call(piece))
        elif isinstance(piece, str):
            if piece.strip():
                items.append(_responses_said(piece, message))
        else:
            items.append({k: piece[k] for k in _REASONING_KEYS if piece.get(k) is not None})
    # "Item 'rs_…' of type 'reasoning' was provided without its required following item."
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items or [_responses_said(EMPTY_TEXT, message)]


def _responses_said(text: str, message: Message) -> dict[str, Any]:
    # As plain text: the list form is an output item's, and servers that check types want its id and status too.
    item = {"type": "message", "role": "assistant", "content": text}
    phase = message.extra.get("phase")
    return {**item, "phase": phase} if isinstance(phase, str) else item


def _reasoning(message: Message) -> list[Mapping[str, Any]]:
    """Return the reasoning items to send back: only encrypted ones, since the service stores none itself."""
    return [d for d in message.reasoning_details if d.get("type") == "reasoning" and d.get("encrypted_content")]


def _responses_call(call: ToolCall) -> dict[str, Any]:
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
    return {"type": "input_text", "text": describe_part(part)}


def make_stream() -> ResponsesStream:
    """Return a parser for one streamed reply."""
    return ResponsesStream()
