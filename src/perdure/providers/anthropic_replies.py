"""Reads Anthropic Messages answers, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.core.errors import ProviderError
from perdure.core.events import ReasoningDelta, TextDelta, ToolCallParsed
from perdure.core.messages import ToolCall
from perdure.providers.classify import classify_error, error_in
from perdure.providers.encoding import json_object
from perdure.providers.exchange import Finish, Reply, SseEvent
from perdure.providers.replies import (
    Piece,
    Thought,
    as_list,
    as_map,
    as_text,
    assembled,
    broken_reply,
    cut_off,
    finished,
)
from perdure.providers.usage import normalize_usage

Delta = TextDelta | ReasoningDelta | ToolCallParsed

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
    """The reply in a whole body. Raises ProviderError where the body holds an error, or no answer."""
    body = as_map(body)
    if (found := error_in(body)) is not None:
        raise ProviderError(classify_error(None, found))
    if not isinstance(body.get("content"), list | tuple | str):
        raise broken_reply("transport", "the service answered without a reply in it")
    content = body["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    usage, reason = as_map(body.get("usage")), as_text(body.get("stop_reason"))
    return _reply([as_map(b) for b in blocks], body, usage=usage, reason=reason)


def _reply(blocks: list[Mapping[str, Any]], head: Mapping[str, Any], *, usage: Mapping[str, Any], reason: str) -> Reply:
    response_id = as_text(head.get("id"))
    pieces = [p for b in blocks if (p := _piece(b)) is not None]
    message = assembled(pieces, response_id=response_id)
    finish = finished(_FINISH.get(reason, "unknown"), message)
    return Reply(message, normalize_usage(usage, "anthropic_messages"), finish, as_text(head.get("model")), response_id)


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


def _arguments(given: object) -> str:
    """The input as text: an object re-written compactly, so that streamed and whole answers give the same history."""
    if isinstance(given, str):
        value = json_object(given) if given.strip() else {}
        return given if value is None else _arguments(value)
    if given is None:
        return "{}"
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"), default=str)


class AnthropicStream:
    """The answer as it arrives; `finish` gives the reply, or raises when its end never came."""

    def __init__(self) -> None:
        self._head: Mapping[str, Any] = {}
        self._usage: dict[str, Any] = {}
        # Blocks by their index, growing text kept as lists of pieces beside them.
        self._blocks: dict[int, dict[str, Any]] = {}
        self._grown: dict[tuple[int, str], list[str]] = {}
        self._reason = ""
        self._is_done = False

    @property
    def partial_text(self) -> str:
        """What has been said so far."""
        return "".join(as_text(b.get("text")) + self._text(i, "text") for i, b in self._blocks.items())

    def feed(self, event: SseEvent) -> list[Delta]:
        """What this event adds. Raises ProviderError where it tells of a failure."""
        data = event.data.strip()
        if not data or data == "[DONE]":
            return []
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            line = "the stream holds something that is not JSON"
            raise broken_reply("transport", line, partial_text=self.partial_text) from None
        if not isinstance(value, dict):
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
        if index not in self._blocks:  # a server that never opened the block
            kinds = {"text": "text", "input": "tool_use"}
            self._blocks[index] = {"type": kinds.get(key, "thinking")}
        self._grown.setdefault((index, key), []).append(text)
        return text

    def _other(self, kind: str, value: Mapping[str, Any]) -> list[Delta]:
        if kind == "message_start":
            self._head = as_map(value.get("message"))
            self._count(as_map(self._head.get("usage")))
        elif kind == "content_block_start":
            block = dict(as_map(value.get("content_block")))
            self._blocks[_index(value)] = block
            return [TextDelta(t)] if block.get("type") == "text" and (t := as_text(block.get("text"))) else []
        elif kind == "content_block_stop":
            index = _index(value)
            piece = _piece(self._whole(index)) if index in self._blocks else None
            return [ToolCallParsed(piece)] if isinstance(piece, ToolCall) else []
        elif kind == "message_delta":
            self._reason = as_text(as_map(value.get("delta")).get("stop_reason")) or self._reason
            self._count(as_map(value.get("usage")))
        elif kind == "message_stop":
            self._is_done = True
        elif (found := error_in(value)) is not None or kind == "error":
            verdict = classify_error(None, found if found is not None else value)
            raise ProviderError(verdict, partial_text=self.partial_text)
        return []

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Takes the larger of two figures: the last event's are cumulative, and some servers leave zeros in one."""
        for key, value in usage.items():
            known = self._usage.get(key)
            if isinstance(known, int) and isinstance(value, int):
                self._usage[key] = max(known, value)
            elif value is not None:
                self._usage[key] = value

    def _text(self, index: int, key: str) -> str:
        return "".join(self._grown.get((index, key), ()))

    def _whole(self, index: int) -> dict[str, Any]:
        block = dict(self._blocks[index])
        for key in ("text", "thinking", "signature"):
            if grown := self._text(index, key):
                block[key] = as_text(block.get(key)) + grown
        if grown := self._text(index, "input"):
            block["input"] = grown
        return block

    def finish(self) -> Reply:
        """The reply. Raises ProviderError (transport) when neither a stop reason nor the last event came."""
        if not self._reason and not self._is_done:
            raise cut_off(self.partial_text)
        blocks: list[Mapping[str, Any]] = [self._whole(i) for i in sorted(self._blocks)]
        return _reply(blocks, self._head, usage=self._usage, reason=self._reason or "end_turn")


def _index(value: Mapping[str, Any]) -> int:
    index = value.get("index")
    return index if isinstance(index, int) else 0
