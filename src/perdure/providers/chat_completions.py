"""The Chat Completions protocol: build requests, parse replies and streams.

Read first: `build`, then `parse`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from perdure.core.errors import ProviderError
from perdure.core.events import ReasoningDelta, RefusalDelta, TextDelta, ToolCallParsed
from perdure.core.messages import ImagePart, Message, Part, TextPart, ToolCall, canonical_json
from perdure.core.turn_options import AUTO, REQUIRED
from perdure.core.usage import NOT_REPORTED
from perdure.providers.codec import (
    EMPTY_TEXT,
    JSON_HEADERS,
    CacheControl,
    Fragment,
    Piece,
    Thought,
    as_list,
    as_map,
    as_text,
    breakpoint_mark,
    build_message,
    decode_event,
    dumps,
    encode_entries,
    join_body,
    last_markable,
    make_cache_control,
    merge_headers,
    normalize_finish,
    reply_error,
    system_parts,
    texts_of,
    truncated_reply_error,
    wire_arguments,
    wire_id,
    wire_name,
)
from perdure.providers.errors.classify import classify_error, find_error
from perdure.providers.registry import quirks_of
from perdure.providers.types import Delta, Endpoint, Finish, ModelRequest, Quirks, Reply, SseEvent, normalize_usage

__all__ = ["PATH", "ChatStream", "build", "headers", "parse"]

PATH = "/chat/completions"
IMAGES_FOLLOW = "[Images returned by the tools above]"
RESULTS_READ = "[The images of these results follow.]"

# Extra fields of calls and messages that are sent back: Gemini's thought signatures, audio ids.
_CALL_EXTRAS = ("extra_content",)
_MESSAGE_EXTRAS = ("audio", "prefix")

OPEN, CLOSE = "<think>", "</think>"


class ThinkSplitter:
    """Splits streamed text that starts with <think> into reasoning and text.

    Only a tag at the very start counts: later ones are ordinary text.
    """

    def __init__(self) -> None:
        self._buffer = ""
        # Leading blank pieces, buffered separately so that each is scanned once.
        self._blanks: list[str] = []
        # start → text, or start → thinking → gap (blank lines after the closing tag) → text
        self._state: Literal["start", "thinking", "gap", "text"] = "start"
        self._thoughts: list[str] = []
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """The text so far, without reasoning."""
        return "".join(self._texts)

    def feed(self, piece: str) -> tuple[str, str]:
        """Return what the piece adds to (reasoning, text); a possible start of a tag is buffered."""
        if self._state == "text":
            self._texts.append(piece)
            return "", piece
        if self._state == "start" and not self._buffer and (not piece or piece.isspace()):
            self._blanks.append(piece)
            return "", ""
        self._buffer += piece
        if self._state == "start":
            self._start()
        thought = self._think() if self._state == "thinking" else ""
        return thought, self._answer() if self._state in ("gap", "text") else ""

    def end(self, *, is_cut_off: bool) -> tuple[str, str]:
        """Return the complete (reasoning, text).

        An unclosed tag counts as text, unless the reply was truncated inside it.
        """
        thoughts = "".join(self._thoughts)
        if self._state == "start":
            return "", "".join(self._blanks) + self._buffer
        if self._state == "thinking":
            thoughts += self._buffer
            return (thoughts.strip(), "") if is_cut_off else ("", OPEN + thoughts)
        return thoughts.strip(), self.text

    def _start(self) -> None:
        opening = self._buffer.lstrip()
        if opening.startswith(OPEN):
            self._state, self._buffer = "thinking", opening[len(OPEN) :]
        elif not OPEN.startswith(opening):
            self._state, self._buffer = "text", "".join(self._blanks) + self._buffer

    def _think(self) -> str:
        thought, tag, rest = self._buffer.partition(CLOSE)
        if tag:
            self._state, self._buffer = "gap", rest
        else:
            keep = next((n for n in range(len(CLOSE) - 1, 0, -1) if self._buffer.endswith(CLOSE[:n])), 0)
            thought = self._buffer[: len(self._buffer) - keep]
            self._buffer = self._buffer[len(thought) :]
        self._thoughts.append(thought)
        return thought

    def _answer(self) -> str:
        text, self._buffer = self._buffer, ""
        if self._state == "gap":
            text = text.lstrip()
            if not text:
                return ""
            self._state = "text"
        self._texts.append(text)
        return text


_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "refusal": "refusal",
    "sensitive": "content_filter",
    "safety": "content_filter",
    "model_length": "context_overflow",
    "model_context_window_exceeded": "context_overflow",
}
# Finish reasons that are failures: Zhipu, DeepSeek, vLLM and OpenRouter in turn.
_DETAIL_CONTENT = ("text", "summary", "data", "signature")
_FAILED = frozenset({"network_error", "insufficient_system_resource", "abort", "error"})


def parse(body: Mapping[str, Any]) -> Reply:
    """Parse a complete response body. Raises ProviderError where it contains an error or no reply."""
    body = as_map(body)
    choice = as_map(next(iter(as_list(body.get("choices"))), None))
    if not choice:
        raise _find_failure(body) or reply_error("transport", "the response contains no reply")
    stream = ChatStream()
    message = choice.get("message") if isinstance(choice.get("message"), Mapping) else choice.get("delta")
    whole = {**as_map(message), "tool_calls": _number_calls(as_map(message).get("tool_calls"))}
    stream.take(
        {**body, "choices": [{**choice, "delta": whole, "finish_reason": choice.get("finish_reason") or "stop"}]}
    )
    return stream.finish()


def _number_calls(calls: object) -> list[Any]:
    """Number complete calls as in a stream: some servers give each the index 0, some none."""
    return [{**as_map(c), "index": i} for i, c in enumerate(as_list(calls))]


class _PartialToolCall:
    """A tool call whose pieces are still arriving in a stream."""

    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: dict[str, Any] = {}

    def take(self, raw: Mapping[str, Any]) -> bool:
        """Add a streamed piece; return whether it had a part of the arguments."""
        function = as_map(raw.get("function"))
        self.id = self.id or as_text(raw.get("id"))
        # A name is sent in one piece, yet some servers repeat it in every piece.
        self.name = self.name or as_text(function.get("name"))
        arguments = function.get("arguments")
        if arguments is not None:
            self.arguments.append(arguments if isinstance(arguments, str) else canonical_json(arguments))
        if isinstance(raw.get("extra_content"), Mapping):
            self.extra["extra_content"] = raw["extra_content"]
        return bool(arguments)

    def whole(self) -> ToolCall:
        arguments = "".join(self.arguments)
        return ToolCall(self.id, self.name, arguments if arguments.strip() else "{}", self.extra)


class ChatStream:
    """Parser for a streamed reply; `finish` returns it, or raises when the stream was truncated."""

    def __init__(self) -> None:
        self._split = ThinkSplitter()
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls: list[_PartialToolCall] = []
        self._slots: dict[int, _PartialToolCall] = {}
        self._emitted_calls = 0
        # Pieces of content parsed so far; events that add none are keep-alive signals.
        self.progress = 0
        self._refusal: list[str] = []
        self._finish = ""
        self._is_done = False
        self._usage: object = None
        self._model = ""
        self._id = ""

    @property
    def partial_text(self) -> str:
        """The text received so far."""
        return self._split.text

    def feed(self, event: SseEvent) -> list[Delta]:
        """Return the deltas of an event. Raises ProviderError where it reports an error."""
        data = event.data.strip()
        if not data:
            return []
        if data == "[DONE]":
            self._is_done = True
            return self._new_calls(len(self._calls))
        chunk = decode_event(data, self)
        return self.take(chunk) if chunk is not None else []

    def take(self, chunk: Mapping[str, Any]) -> list[Delta]:
        """Add a decoded chunk and return its deltas."""
        if chunk.get("error") or chunk.get("object") == "error" or "choices" not in chunk:
            failure = _find_failure(chunk, partial_text=self.partial_text)
            if failure is not None:
                raise failure
        self._model = self._model or as_text(chunk.get("model"))
        self._id = self._id or as_text(chunk.get("id"))
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        deltas: list[Delta] = []
        for choice in as_list(chunk.get("choices"))[:1]:
            self._choice(as_map(choice), deltas)
        return deltas

    def _choice(self, choice: Mapping[str, Any], deltas: list[Delta]) -> None:
        delta = as_map(choice.get("delta"))
        if delta:
            self._reasoning(delta, deltas)
            content = delta.get("content")
            if content:
                self.progress += 1
                self._content(content, deltas)
            if refusal := as_text(delta.get("refusal")):
                self.progress += 1
                self._refusal.append(refusal)
                deltas.append(RefusalDelta(refusal))
            if calls := as_list(delta.get("tool_calls")):
                for raw in calls:
                    self._call(as_map(raw))
                deltas += self._new_calls(len(self._calls) - 1)
            elif "function_call" in delta and isinstance(delta["function_call"], Mapping):
                self._call({"index": 0, "function": delta["function_call"]})
        if choice.get("usage") and not self._usage:
            self._usage = choice["usage"]
        if reason := as_text(choice.get("finish_reason")):
            if reason.lower() in _FAILED:
                line = f"the service aborted the reply ({reason})"
                is_busy = reason.lower() == "insufficient_system_resource"
                raise reply_error("overloaded" if is_busy else "transport", line, partial_text=self.partial_text)
            self.progress += not self._finish
            self._finish = reason.lower()
            deltas += self._new_calls(len(self._calls))

    def _reasoning(self, delta: Mapping[str, Any], deltas: list[Delta]) -> None:
        # Servers in transition send the same text under both names: take one.
        text = as_text(delta.get("reasoning_content")) or as_text(delta.get("reasoning"))
        if raw_details := delta.get("reasoning_details"):
            details = [as_map(d) for d in as_list(raw_details)]
            for detail in details:
                _merge_detail(self._details, detail)
            text = text or "".join(as_text(d.get("text")) or as_text(d.get("summary")) for d in details)
            self.progress += not text and any(detail.get(key) for detail in details for key in _DETAIL_CONTENT)
        if text:
            self.progress += 1
            self._thoughts.append(text)
            deltas.append(ReasoningDelta(text))

    def _content(self, content: object, deltas: list[Delta]) -> None:
        if not isinstance(content, str):
            thought, content = _parts(as_list(content))
            if thought:
                self._thoughts.append(thought)
                deltas.append(ReasoningDelta(thought))
        thought, text = self._split.feed(content)
        if thought:
            deltas.append(ReasoningDelta(thought))
        if text:
            deltas.append(TextDelta(text))

    def _call(self, raw: Mapping[str, Any]) -> None:
        """Append a piece to its call; a new id under a used index is a new call (Gemini sends index 0 for all)."""
        index = raw.get("index")
        slot = index if isinstance(index, int) else max(len(self._calls) - 1, 0) if not raw.get("id") else -1
        call = self._slots.get(slot)
        new_id = as_text(raw.get("id"))
        if call is None or (new_id and call.id and new_id != call.id):
            call = _PartialToolCall()
            self._calls.append(call)
            self._slots[slot if slot >= 0 else len(self._calls) - 1] = call
            self.progress += 1
        self.progress += call.take(raw)

    def _new_calls(self, until: int) -> list[Delta]:
        """Return tool calls that are complete and not emitted yet; the last one may grow until the reply ends."""
        fresh = self._calls[self._emitted_calls : until]
        self._emitted_calls = max(self._emitted_calls, until)
        return [ToolCallParsed(c.whole()) for c in fresh]

    def finish(self) -> Reply:
        """Return the reply. Raises ProviderError (transport) when no finish reason and no last event arrived."""
        if not self._finish and not self._is_done:
            raise truncated_reply_error(self.partial_text)
        finish = _FINISH.get(self._finish, "unknown" if self._finish else "stop")
        tagged, text = self._split.end(is_cut_off=finish in ("length", "context_overflow"))
        thoughts = "".join(self._thoughts) or tagged
        pieces: list[Piece] = [Thought(thoughts)]
        pieces += [Thought(detail=d) for d in self._details]
        refusal = "".join(self._refusal)
        pieces += [text or refusal, *(c.whole() for c in self._calls)]
        message = build_message(pieces, response_id=self._id)
        usage = normalize_usage(self._usage, "chat_completions") if self._usage else NOT_REPORTED
        is_refused = bool(refusal) and not text and not message.tool_calls
        finish = "refusal" if is_refused else normalize_finish(finish, message)
        return Reply(message, usage, finish, self._model, self._id)


def _parts(content: Sequence[Any]) -> tuple[str, str]:
    """Split content parts (Mistral) into reasoning and text."""
    thoughts, texts = [], []
    for part in map(as_map, content):
        inner = part.get("thinking")
        if inner is not None:
            thoughts.append(
                inner if isinstance(inner, str) else "".join(as_text(as_map(p).get("text")) for p in as_list(inner))
            )
        else:
            texts.append(as_text(part.get("text")))
    return "".join(thoughts), "".join(texts)


def _merge_detail(details: list[dict[str, Any]], piece: Mapping[str, Any]) -> None:
    """Merge a piece of a reasoning block into the block it continues, or append it as a new one."""
    last = details[-1] if details else {}
    growing = next((k for k in ("text", "summary") if isinstance(piece.get(k), str)), None)
    is_same = all(last.get(k) == piece.get(k) for k in ("type", "index")) and last.get("id") in (None, piece.get("id"))
    if not last or not is_same or (growing is None and not piece.get("signature")) or "data" in piece:
        details.append(dict(piece))
        return
    for key, value in piece.items():
        if key == growing:
            last[key] = as_text(last.get(key)) + as_text(value)
        elif value is not None:
            last[key] = value


def _find_failure(body: Mapping[str, Any], *, partial_text: str = "") -> ProviderError | None:
    """Return the error that a response body reports; None if it is a reply."""
    error = find_error(body)
    return ProviderError(classify_error(None, error), partial_text=partial_text) if error is not None else None


def headers(endpoint: Endpoint) -> dict[str, str]:
    quirks = quirks_of(endpoint.provider, model=endpoint.model, base_url=endpoint.base_url)
    fields: dict[str, str] = {}
    if endpoint.api_key:
        key = endpoint.api_key
        fields |= {"api-key": key} if quirks.auth == "api-key" else {"authorization": f"Bearer {key}"}
    return merge_headers(JSON_HEADERS, quirks.headers, fields, endpoint.headers)


def build(request: ModelRequest) -> bytes:
    """Build the JSON body of a request. The same request gives the same bytes; encoded messages are cached."""
    quirks = request.quirks
    key = ("chat", quirks.reasoning_field, quirks.call_ids, quirks.tool_images, request.cache_ttl is not None)
    encode = partial(_encode, quirks=quirks, in_parts=request.cache_ttl is not None)
    pieces: list[bytes] = []
    markable: list[bool] = []
    images: list[Mapping[str, Any]] = []
    for fragment in encode_entries(request.entries, key, encode):
        if images and fragment.role != "tool":
            pieces[-1] += b"," + _encode_images(images)
            images = []
        pieces.append(fragment.body)
        markable.append(fragment.is_markable)
        images += fragment.images
    if images:
        pieces[-1] += b"," + _encode_images(images)
    control = make_cache_control(request.cache_ttl) if request.cache_ttl is not None else None
    if control is not None:
        for i in last_markable(markable):
            # Not cached: cache_control moves on with the next call. Messages with images after them are not markable.
            pieces[i] = encode(request.entries[i].message, control=control).body
    if front := _system(request, control):
        pieces.insert(0, front)
    return join_body(_head(request), "messages", pieces)


def _head(request: ModelRequest) -> dict[str, Any]:
    """Return all keys of the request body but the messages."""
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
    if request.cache_key:
        head["prompt_cache_key"] = request.cache_key
    if request.tools:
        head["tools"] = [tool if tool.get("type") else {"type": "function", "function": tool} for tool in request.tools]
        head |= _tool_use(request)
    if (answer := request.enforced_format) is not None:
        schema = {"name": answer.name, "schema": answer.schema, "strict": answer.is_strict}
        is_schema = answer.schema is not None and quirks.answer_format == "json_schema"
        head["response_format"] = (
            {"type": "json_schema", "json_schema": {k: v for k, v in schema.items() if v is not None}}
            if is_schema
            else {"type": "json_object"}
        )
    return head | dict(quirks.extra) | dict(request.extra)


def _tool_use(request: ModelRequest) -> dict[str, Any]:
    """Return the request keys for tool choice and parallel calls, where they differ from the default."""
    keys: dict[str, Any] = {}
    if request.tool_choice == REQUIRED:
        keys["tool_choice"] = "required"
    elif request.tool_choice != AUTO:
        keys["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
    return keys if request.allows_parallel_calls else {**keys, "parallel_tool_calls": False}


def _effort(effort: str | None, quirks: Quirks) -> dict[str, Any]:
    if not effort or quirks.effort == "none":
        return {}
    if quirks.effort == "thinking":
        return {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}
    return {"reasoning": {"effort": effort}} if quirks.effort == "reasoning" else {"reasoning_effort": effort}


def _system(request: ModelRequest, control: CacheControl | None) -> bytes:
    """Encode the system message, if any; with `cache_control` it is sent as parts, and the first part carries it."""
    texts = [b for b in request.system if b]
    if not texts:
        return b""
    mark = {"cache_control": control} if control is not None else breakpoint_mark() if request.marks_system else None
    content = "\n\n".join(texts) if mark is None else system_parts(texts, "text", mark)
    return dumps({"role": "system", "content": content})


def _encode(message: Message, *, quirks: Quirks, in_parts: bool, control: CacheControl | None = None) -> Fragment:
    if message.role == "tool":
        return _result(message, quirks)
    if message.role == "assistant":
        return _assistant(message, quirks, in_parts=in_parts, control=control)
    payload: dict[str, Any] = {"role": message.role}
    parts = [_part(p) for p in message.parts if not _is_blank(p)]
    content = message.content if parts else EMPTY_TEXT
    _put_content(payload, parts or [{"type": "text", "text": EMPTY_TEXT}], content, in_parts=in_parts, control=control)
    if message.name:
        payload["name"] = message.name
    return Fragment("user", dumps(payload))


def _assistant(message: Message, quirks: Quirks, *, in_parts: bool, control: CacheControl | None) -> Fragment:
    payload: dict[str, Any] = {"role": "assistant"}
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
    _put_content(payload, parts, content, in_parts=in_parts, control=control)
    if quirks.reasoning_field in ("reasoning", "reasoning_content") and message.reasoning:
        payload[quirks.reasoning_field] = message.reasoning
    if quirks.reasoning_field == "reasoning" and (details := _router_details(message)):
        payload["reasoning_details"] = details
    if message.tool_calls:
        payload["tool_calls"] = [_call(c, quirks) for c in message.tool_calls]
    payload |= {k: message.extra[k] for k in _MESSAGE_EXTRAS if message.extra.get(k) is not None}
    return Fragment("assistant", dumps(payload), frozenset(wire_id(c.id, quirks.call_ids) for c in message.tool_calls))


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _put_content(
    payload: dict[str, Any],
    parts: list[dict[str, Any]],
    content: object,
    *,
    in_parts: bool,
    control: CacheControl | None,
) -> None:
    """Set the content of a message, as a string or as parts; without parts, nothing is set.

    With prompt caching always as parts, so that moving cache_control from one message to the next changes nothing else.
    """
    if not parts:
        payload["content"] = None
        if control is not None:
            payload["cache_control"] = control
        return
    if control is not None:
        parts[-1] = {**parts[-1], "cache_control": control}
    payload["content"] = content if isinstance(content, str) and not in_parts else parts


def _result(message: Message, quirks: Quirks) -> Fragment:
    """Encode a tool result as one string; its images go where the service accepts them."""
    call_id = wire_id(message.tool_call_id or "", quirks.call_ids)
    images = tuple(_part(p) for p in message.parts if isinstance(p, ImagePart))
    texts = texts_of(message.parts)
    content: object = "\n".join(texts)
    if images and quirks.tool_images == "inline":
        content, images = [_part(p) for p in message.parts], ()
    elif images and not texts:
        content = "[image below]"
    payload = {"role": "tool", "tool_call_id": call_id, "content": content}
    return Fragment("tool", dumps(payload), frozenset((call_id,)), images, is_markable=False)


def _encode_images(images: list[Mapping[str, Any]]) -> bytes:
    """Encode the user message with images returned by tools: this protocol takes images from the user only.

    A reply comes before it, because many services reject a user message right after a tool result.
    """
    reply = {"role": "assistant", "content": RESULTS_READ}
    return dumps(reply) + b"," + dumps({"role": "user", "content": [{"type": "text", "text": IMAGES_FOLLOW}, *images]})


def _part(part: Part) -> dict[str, Any]:
    payload = part.to_dict()
    payload.pop("cache_control", None)
    return {"type": "text", "text": part.text} if isinstance(part, TextPart) else payload


def _call(call: ToolCall, quirks: Quirks) -> dict[str, Any]:
    function = {"name": wire_name(call.name), "arguments": wire_arguments(call.arguments)}
    payload: dict[str, Any] = {"id": wire_id(call.id, quirks.call_ids), "type": "function", "function": function}
    return payload | {k: call.extra[k] for k in _CALL_EXTRAS if call.extra.get(k) is not None}


def _router_details(message: Message) -> list[dict[str, Any]]:
    """Return the reasoning details of a router; those of other protocols are not sent."""
    return [dict(d) for d in message.reasoning_details if str(d.get("type", "")).startswith("reasoning.")]


def make_stream() -> ChatStream:
    """Return a parser for one streamed reply."""
    return ChatStream()
