"""Reads OpenAI Responses answers, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.core.errors import ProviderError
from perdure.core.events import ReasoningDelta, TextDelta, ToolCallParsed
from perdure.core.messages import ToolCall
from perdure.providers.classify import classify_error, error_in
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

_INCOMPLETE: dict[str, Finish] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "length": "length",
    "content_filter": "refusal",
    "model_context_window_exceeded": "context_overflow",
    "context_length_exceeded": "context_overflow",
}
_LAST = frozenset({"response.completed", "response.incomplete", "response.done"})
_TEXT_DELTAS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING_DELTAS = frozenset(
    {"response.reasoning_summary_text.delta", "response.reasoning_text.delta", "response.reasoning.delta"}
)


def parse(body: Mapping[str, Any]) -> Reply:
    """The reply in a whole body. Raises ProviderError where the body holds an error, or no answer."""
    body = as_map(body)
    _raise_failure(body)
    if not isinstance(body.get("output"), list | tuple):
        raise broken_reply("transport", "the service answered without a reply in it")
    return _reply(body, [as_map(i) for i in as_list(body["output"])])


def _raise_failure(body: Mapping[str, Any], *, partial_text: str = "") -> None:
    found = error_in(body)
    if found is None and body.get("status") in ("failed", "cancelled"):
        raise broken_reply("transport", f"the service reports: {body['status']}", partial_text=partial_text)
    if found is not None:
        raise ProviderError(classify_error(None, found), partial_text=partial_text)


def _reply(head: Mapping[str, Any], items: list[Mapping[str, Any]]) -> Reply:
    pieces: list[Piece] = []
    extra: dict[str, Any] = {}
    is_refused = False
    for item in items:
        kind = item.get("type")
        if kind == "reasoning":
            pieces.append(_thought(item))
        elif kind in ("function_call", "custom_tool_call"):
            pieces.append(_call(item))
        elif kind == "message":
            text, refused = _said(item)
            is_refused = is_refused or refused
            pieces.append(text)
            if phase := as_text(item.get("phase")):
                extra["phase"] = phase
    response_id = as_text(head.get("id"))
    message = assembled(pieces, response_id=response_id, extra=extra)
    finish = "refusal" if is_refused else finished(_finish(head), message)
    usage = normalize_usage(head.get("usage"), "codex_responses")
    return Reply(message, usage, finish, as_text(head.get("model")), response_id)


def _finish(head: Mapping[str, Any]) -> Finish:
    if head.get("status") == "incomplete":
        return _INCOMPLETE.get(as_text(as_map(head.get("incomplete_details")).get("reason")), "length")
    return "stop"


def _thought(item: Mapping[str, Any]) -> Thought:
    texts = [as_text(as_map(p).get("text")) for key in ("summary", "content") for p in as_list(item.get(key))]
    kept = {k: item[k] for k in ("type", "id", "summary", "content", "encrypted_content") if item.get(k) is not None}
    return Thought("\n\n".join(t for t in texts if t), kept)


def _call(item: Mapping[str, Any]) -> ToolCall:
    """A call under its `call_id`, which results name; the item's own id is kept beside it."""
    item_id = as_text(item.get("id"))
    arguments = item.get("arguments") if item.get("type") == "function_call" else item.get("input")
    text = (
        arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {}, default=str)
    )
    extra = {"item_id": item_id} if item_id else {}
    return ToolCall(as_text(item.get("call_id")) or item_id, as_text(item.get("name")), text.strip() or "{}", extra)


def _said(item: Mapping[str, Any]) -> tuple[str, bool]:
    """What a message item says, and whether it is a refusal."""
    content = item.get("content")
    if isinstance(content, str):
        return content, False
    parts = [as_map(p) for p in as_list(content)]
    text = "".join(as_text(p.get("text")) for p in parts)
    refusal = "".join(as_text(p.get("refusal")) for p in parts)
    return text or refusal, bool(refusal) and not text


class ResponsesStream:
    """The answer as it arrives; `finish` gives the reply, or raises when its end never came."""

    def __init__(self) -> None:
        self._head: Mapping[str, Any] = {}
        self._items: dict[int, Mapping[str, Any]] = {}
        self._texts: list[str] = []
        self._is_done = False

    @property
    def partial_text(self) -> str:
        """What has been said so far."""
        return "".join(self._texts)

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
        text = value.get("delta")
        if isinstance(text, str) and text:
            if kind in _TEXT_DELTAS:
                self._texts.append(text)
                return [TextDelta(text)]
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
        elif kind == "error" or kind == "response.error" or (not kind and error_in(value) is not None):
            raise ProviderError(classify_error(None, error_in(value) or value), partial_text=self.partial_text)
        return []

    def _item(self, value: Mapping[str, Any]) -> list[Delta]:
        item, index = as_map(value.get("item")), value.get("output_index")
        self._items[index if isinstance(index, int) else len(self._items)] = item
        is_call = item.get("type") in ("function_call", "custom_tool_call")
        return [ToolCallParsed(_call(item))] if is_call else []

    def finish(self) -> Reply:
        """The reply. Raises ProviderError (transport) when the last event never came."""
        if not self._is_done:
            raise cut_off(self.partial_text)
        items = [as_map(i) for i in as_list(self._head.get("output"))]
        # Some backends leave the last event's output empty: what came item by item stands.
        items = items or [self._items[i] for i in sorted(self._items)]
        if not items and self._texts:
            items = [{"type": "message", "content": self.partial_text}]
        return _reply(self._head, items)
