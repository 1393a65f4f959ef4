"""The Anthropic Messages protocol: build requests, parse replies and streams."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.core.errors import ProviderError
from perdure.core.events import ReasoningDelta, TextDelta, ToolCallParsed
from perdure.core.messages import Entry, ImagePart, Message, OtherPart, Part, TextPart, ToolCall
from perdure.core.turn_options import AUTO, REQUIRED
from perdure.providers.codec import (
    EMPTY_TEXT,
    JSON_HEADERS,
    MARKED_MESSAGES,
    CacheControl,
    Fragment,
    Piece,
    Thought,
    as_list,
    as_map,
    as_text,
    build_message,
    data_url,
    decode_event,
    describe_part,
    dumps,
    encode_entries,
    json_object,
    make_cache_control,
    merge_headers,
    normalize_finish,
    reply_error,
    split_message,
    truncated_reply_error,
    wire_arguments,
    wire_id,
    wire_name,
)
from perdure.providers.errors.classify import classify_error, find_error
from perdure.providers.registry import quirks_of
from perdure.providers.types import (
    Delta,
    Endpoint,
    Finish,
    ModelRequest,
    Reply,
    SseEvent,
    last_prompt_usage,
    normalize_usage,
)

__all__ = ["PATH", "AnthropicStream", "build", "headers", "parse"]

PATH = "/v1/messages"
VERSION = "2023-06-01"

# OAuth tokens of a subscription login start with this; they are sent as bearer tokens.
_OAUTH_PREFIX = "sk-ant-oat"
_OAUTH_BETA = "oauth-2025-04-20"
_OPENERS = {"user": b'{"role":"user","content":[', "assistant": b'{"role":"assistant","content":['}
_NATIVE_PARTS = frozenset({"document", "image", "search_result"})

# The API requires max_tokens: the default by model family where none is set.
_OUTPUT_DEFAULTS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"claude-3-(?:opus|haiku|sonnet)|claude-2|claude-instant"), 4_096),
    (re.compile(r"claude-3[-.]5"), 8_192),
    (re.compile(r"claude"), 32_000),
)
_OUTPUT_DEFAULT = 8_192

# Models that take a thinking budget; later ones take an effort and choose for themselves.
_BUDGET_MODELS = re.compile(
    r"claude-3[-.]7|claude-(?:opus|sonnet|haiku)-4(?:$|[-.][0-5](?:$|[-@:])|-20|[@:])|claude-4-(?:opus|sonnet)"
)
_NO_THINKING = re.compile(r"claude-3-(?:opus|haiku|sonnet)|claude-3[-.]5|claude-2|claude-instant")
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_000, "max": 48_000}
_EFFORTS = {"minimal": "low"}
_MIN_BUDGET = 1_024
_MAX_TEMPERATURE = 1.0
# The share of max_tokens reserved for the text when the thinking budget must shrink to fit.
_ANSWER_SHARE = 0.25


def output_default(model: str) -> int:
    """Return the max_tokens to send for a model if the caller sets none, since this protocol requires it."""
    name = model.lower()
    return next((cap for pattern, cap in _OUTPUT_DEFAULTS if pattern.search(name)), _OUTPUT_DEFAULT)


def thinking_keys(model: str, effort: str | None, max_tokens: int) -> dict[str, Any]:
    """Return the request keys for a reasoning effort; {} if the model cannot think or max_tokens is too small."""
    name = model.lower()
    if not effort or effort == "none" or _NO_THINKING.search(name):
        return {}
    if "claude" in name and not _BUDGET_MODELS.search(name):
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": _EFFORTS.get(effort, effort)},
        }
    budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), int(max_tokens * (1 - _ANSWER_SHARE)))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _MIN_BUDGET else {}


_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "stop": "stop",
    "tool_use": "tool_calls",
    "tool_calls": "tool_calls",
    "max_tokens": "length",
    "length": "length",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_overflow",
}


def parse(body: Mapping[str, Any]) -> Reply:
    """Parse a complete response body. Raises ProviderError where it contains an error or no reply."""
    body = as_map(body)
    if (error := find_error(body)) is not None:
        raise ProviderError(classify_error(None, error))
    if not isinstance(body.get("content"), list | tuple | str):
        raise reply_error("transport", "the response contains no reply")
    content = body["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    usage, reason = as_map(body.get("usage")), as_text(body.get("stop_reason"))
    return _reply([as_map(b) for b in blocks], body, usage=usage, reason=reason)


def _reply(blocks: list[Mapping[str, Any]], head: Mapping[str, Any], *, usage: Mapping[str, Any], reason: str) -> Reply:
    response_id = as_text(head.get("id"))
    pieces = [p for b in blocks if (p := _piece(b)) is not None]
    message = build_message(pieces, response_id=response_id)
    finish = normalize_finish(_FINISH.get(reason, "unknown"), message)
    counted = normalize_usage(usage, "anthropic_messages")
    return Reply(message, counted, finish, as_text(head.get("model")), response_id, last_prompt_usage(usage))


def _piece(block: Mapping[str, Any]) -> Piece | None:
    kind = block.get("type")
    if kind == "text":
        return as_text(block.get("text"))
    if kind == "thinking":
        detail = {"type": "thinking", "thinking": as_text(block.get("thinking"))}
        if signature := as_text(block.get("signature")):
            detail["signature"] = signature
        return Thought(detail["thinking"], detail)
    if kind == "redacted_thinking":
        return Thought(detail={"type": "redacted_thinking", "data": as_text(block.get("data"))})
    if kind == "tool_use":
        return ToolCall(as_text(block.get("id")), as_text(block.get("name")), _arguments(block.get("input")))
    return None


def _arguments(raw: object) -> str:
    """Return a call's input as compact JSON, so that streamed and complete replies give the same history."""
    if isinstance(raw, str):
        value = json_object(raw) if raw.strip() else {}
        return raw if value is None else _arguments(value)
    if raw is None:
        return "{}"
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":"), default=str)


class AnthropicStream:
    """Parser for a streamed reply; `finish` returns it, or raises when the stream was truncated."""

    def __init__(self) -> None:
        self._head: Mapping[str, Any] = {}
        self._usage: dict[str, Any] = {}
        # Blocks by index; their streamed text is stored as lists of deltas.
        self._blocks: dict[int, dict[str, Any]] = {}
        self._deltas_by_key: dict[tuple[int, str], list[str]] = {}
        self._reason = ""
        self._is_done = False
        # Pieces of content parsed so far; events that add none are keep-alive signals.
        self.progress = 0

    @property
    def partial_text(self) -> str:
        """The text received so far."""
        return "".join(as_text(b.get("text")) + self._text(i, "text") for i, b in self._blocks.items())

    def feed(self, event: SseEvent) -> list[Delta]:
        """Return the deltas of an event. Raises ProviderError where it reports an error."""
        data = event.data.strip()
        value = None if not data or data == "[DONE]" else decode_event(data, self)
        if value is None:
            return []
        kind = as_text(value.get("type")) or event.name
        if kind == "content_block_delta":
            return self._delta(value)
        return self._other(kind, value)

    def _delta(self, value: Mapping[str, Any]) -> list[Delta]:
        index, delta = _index(value), as_map(value.get("delta"))
        kind = delta.get("type")
        if kind == "text_delta":
            text = self._grow(index, "text", delta.get("text"))
            return [TextDelta(text)] if text else []
        if kind == "thinking_delta":
            text = self._grow(index, "thinking", delta.get("thinking"))
            return [ReasoningDelta(text)] if text else []
        if kind == "input_json_delta":
            self._grow(index, "input", delta.get("partial_json"))
        elif kind == "signature_delta":
            self._grow(index, "signature", delta.get("signature"))
        return []

    def _grow(self, index: int, key: str, piece: object) -> str:
        text = as_text(piece)
        if index not in self._blocks:  # a server that omits content_block_start
            kinds = {"text": "text", "input": "tool_use"}
            self._blocks[index] = {"type": kinds.get(key, "thinking")}
        self.progress += bool(text)
        self._deltas_by_key.setdefault((index, key), []).append(text)
        return text

    def _other(self, kind: str, value: Mapping[str, Any]) -> list[Delta]:
        if kind == "message_start":
            self._head = as_map(value.get("message"))
            self._count(as_map(self._head.get("usage")))
        elif kind == "content_block_start":
            block, index = dict(as_map(value.get("content_block"))), _index(value)
            # Text and thinking blocks open empty; a tool call or a redacted block is content by itself.
            has_content = block.get("type") not in ("text", "thinking") or bool(block.get("text"))
            self.progress += has_content and index not in self._blocks
            self._blocks[index] = block
            return [TextDelta(t)] if block.get("type") == "text" and (t := as_text(block.get("text"))) else []
        elif kind == "content_block_stop":
            index = _index(value)
            piece = _piece(self._whole(index)) if index in self._blocks else None
            return [ToolCallParsed(piece)] if isinstance(piece, ToolCall) else []
        elif kind == "message_delta":
            reason = as_text(as_map(value.get("delta")).get("stop_reason"))
            self.progress += bool(reason) and not self._reason
            self._reason = reason or self._reason
            self._count(as_map(value.get("usage")))
        elif kind == "message_stop":
            self._is_done = True
        elif (error := find_error(value)) is not None or kind == "error":
            verdict = classify_error(None, error if error is not None else value)
            raise ProviderError(verdict, partial_text=self.partial_text)
        return []

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Merge usage by the larger value: the last event is cumulative, and some servers send zeros."""
        for key, value in usage.items():
            stored = self._usage.get(key)
            if isinstance(stored, int) and isinstance(value, int):
                self._usage[key] = max(stored, value)
            elif value is not None:
                self._usage[key] = value

    def _text(self, index: int, key: str) -> str:
        return "".join(self._deltas_by_key.get((index, key), ()))

    def _whole(self, index: int) -> dict[str, Any]:
        block = dict(self._blocks[index])
        for key in ("text", "thinking", "signature"):
            if text := self._text(index, key):
                block[key] = as_text(block.get(key)) + text
        if text := self._text(index, "input"):
            block["input"] = text
        return block

    def finish(self) -> Reply:
        """Return the reply. Raises ProviderError (transport) when neither a stop reason nor the last event arrived."""
        if not self._reason and not self._is_done:
            raise truncated_reply_error(self.partial_text)
        blocks: list[Mapping[str, Any]] = [self._whole(i) for i in sorted(self._blocks)]
        return _reply(blocks, self._head, usage=self._usage, reason=self._reason or "end_turn")


def _index(value: Mapping[str, Any]) -> int:
    index = value.get("index")
    return index if isinstance(index, int) else 0


def headers(endpoint: Endpoint) -> dict[str, str]:
    quirks = quirks_of(endpoint.provider, model=endpoint.model, base_url=endpoint.base_url)
    fields: dict[str, str] = {}
    if key := endpoint.api_key:
        if key.startswith(_OAUTH_PREFIX):
            fields |= {"authorization": f"Bearer {key}", "anthropic-beta": _OAUTH_BETA}
        elif quirks.auth == "bearer" or "openrouter.ai" in endpoint.base_url:
            fields["authorization"] = f"Bearer {key}"
        else:
            fields["x-api-key"] = key
    return merge_headers(JSON_HEADERS, {"anthropic-version": VERSION}, quirks.headers, fields, endpoint.headers)


def build(request: ModelRequest) -> bytes:
    """Build the JSON body of a request. The same request gives the same bytes; encoded messages are cached."""
    encoded = list(encode_entries(request.entries, "anthropic", _encode))
    separators: list[bytes] = []
    previous = ""
    for fragment in encoded:
        role = "assistant" if fragment.role == "assistant" else "user"
        if role == previous:
            separators.append(b",")
        else:
            separators.append(b"]}," + _OPENERS[role] if previous else _OPENERS[role])
        previous = role
    blocks = [f.body for f in encoded]
    control = make_cache_control(request.cache_ttl) if request.cache_ttl is not None else None
    if control is not None:
        for i in _cache_breakpoints(separators, encoded):
            blocks[i] = _with_cache_control(request.entries[i], encoded[i], control)
    head = dumps(_head(request, control))
    out = [head[:-1], b',"messages":[']
    for pair in zip(separators, blocks, strict=True):
        out += pair
    out.append(b"]}]}" if blocks else b"]}")
    return b"".join(out)


def _cache_breakpoints(separators: Sequence[bytes], encoded: Sequence[Fragment]) -> list[int]:
    """Return the last entries of the last three merged messages that can carry cache_control."""
    breakpoints: list[int] = []
    is_end = True
    for i in range(len(separators) - 1, -1, -1):
        if is_end and encoded[i].is_markable:
            breakpoints.append(i)
            if len(breakpoints) == MARKED_MESSAGES:
                break
        is_end = separators[i] != b","
    return breakpoints


def _with_cache_control(entry: Entry, fragment: Fragment, control: CacheControl) -> bytes:
    """Encode an entry with cache_control on its last block. Not cached: it moves on with the next call."""
    message = entry.message
    if fragment.role == "tool":  # use the id of its call, which the message itself may lack
        message = replace(message, tool_call_id=next(iter(fragment.ids)))
    return _encode(message, control=control).body


def _head(request: ModelRequest, control: CacheControl | None) -> dict[str, Any]:
    """Return all keys of the request body but the messages."""
    head: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens or output_default(request.model),
    }
    if request.is_streaming:
        head["stream"] = True
    thinking = thinking_keys(request.model, request.reasoning_effort, head["max_tokens"]) if _may_think(request) else {}
    if request.temperature is not None and not thinking and request.quirks.takes_temperature:
        head["temperature"] = min(request.temperature, _MAX_TEMPERATURE)
    head |= thinking
    if request.tools:
        head["tools"] = [_tool(t) for t in request.tools]
        head |= _tool_use(request, may_force=not thinking)
    system: list[dict[str, Any]] = [{"type": "text", "text": t} for t in request.system if t.strip()]
    if system:
        if control is not None:
            system[0]["cache_control"] = control
        head["system"] = system
    return head | dict(request.quirks.extra) | dict(request.extra)


def _tool_use(request: ModelRequest, *, may_force: bool) -> dict[str, Any]:
    """Return the `tool_choice` keys of the request; a forced call is not possible together with thinking."""
    choice: dict[str, Any] = {"type": "auto"}
    if may_force and request.tool_choice != AUTO:
        is_any = request.tool_choice == REQUIRED
        choice = {"type": "any"} if is_any else {"type": "tool", "name": wire_name(request.tool_choice)}
    if not request.allows_parallel_calls:
        choice["disable_parallel_tool_use"] = True
    return {"tool_choice": choice} if choice != {"type": "auto"} else {}


def _may_think(request: ModelRequest) -> bool:
    """Whether thinking may be enabled: not in the middle of a tool loop that began without it, which is refused."""
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


def _encode(message: Message, *, control: CacheControl | None = None) -> Fragment:
    if message.role == "tool":
        call_id = wire_id(message.tool_call_id or "", "anthropic")
        return _fragment("tool", [_result(message, call_id)], ids=frozenset((call_id,)), control=control)
    if message.role == "assistant":
        ids = frozenset(wire_id(c.id, "anthropic") for c in message.tool_calls)
        return _fragment("assistant", _assistant(message), ids=ids, control=control)
    return _fragment("user", _parts(message.parts) or [{"type": "text", "text": EMPTY_TEXT}], control=control)


def _fragment(
    role: str, blocks: list[dict[str, Any]], *, ids: frozenset[str] = frozenset(), control: CacheControl | None
) -> Fragment:
    takes_mark = blocks[-1]["type"] not in ("thinking", "redacted_thinking")
    if control is not None and takes_mark:
        blocks[-1] = {**blocks[-1], "cache_control": control}
    return Fragment(role, dumps(blocks)[1:-1], ids, is_markable=takes_mark)


def _assistant(message: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for piece in split_message(message, _thinking(message)):
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
    """Return the thinking blocks to send back: only those this service signed, since others would be refused."""
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
    """Convert a part of an unknown kind: blocks of this protocol pass, OpenAI files become documents, others a note."""
    raw = part.raw
    if raw.get("type") in _NATIVE_PARTS:
        return {k: v for k, v in raw.items() if k != "cache_control"}
    file = raw.get("file")
    if isinstance(file, Mapping) and (embedded := data_url(str(file.get("file_data", "")))):
        return {"type": "document", "source": {"type": "base64", "media_type": embedded[0], "data": embedded[1]}}
    return {"type": "text", "text": describe_part(part)}


def make_stream() -> AnthropicStream:
    """Return a parser for one streamed reply."""
    return AnthropicStream()
