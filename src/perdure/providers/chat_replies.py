"""Reads Chat Completions answers, whole or streamed, and the many ways compatible servers spell them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import ProviderError
from perdure.core.events import ReasoningDelta, TextDelta, ToolCallParsed
from perdure.core.messages import ToolCall, canonical_json
from perdure.core.usage import NOT_REPORTED
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
from perdure.providers.think_tags import ThinkSplitter
from perdure.providers.usage import normalize_usage

Delta = TextDelta | ReasoningDelta | ToolCallParsed

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
    "content_filter": "refusal",
    "refusal": "refusal",
    "sensitive": "refusal",
    "safety": "refusal",
    "model_length": "context_overflow",
    "model_context_window_exceeded": "context_overflow",
}
# Reasons that are no end but a failure: Zhipu, DeepSeek, vLLM and OpenRouter in turn.
_FAILED = frozenset({"network_error", "insufficient_system_resource", "abort", "error"})


def parse(body: Mapping[str, Any]) -> Reply:
    """The reply in a whole body. Raises ProviderError where the body holds an error, or no answer."""
    body = as_map(body)
    choice = as_map(next(iter(as_list(body.get("choices"))), None))
    if not choice:
        raise _failure(body) or broken_reply("transport", "the service answered without a reply in it")
    stream = ChatStream()
    message = choice.get("message") if isinstance(choice.get("message"), Mapping) else choice.get("delta")
    whole = {**as_map(message), "tool_calls": _indexed(as_map(message).get("tool_calls"))}
    stream.take(
        {**body, "choices": [{**choice, "delta": whole, "finish_reason": choice.get("finish_reason") or "stop"}]}
    )
    return stream.finish()


def _indexed(calls: object) -> list[Any]:
    """Whole calls, numbered as a stream would: some servers give each the index 0, some none."""
    return [{**as_map(c), "index": i} for i, c in enumerate(as_list(calls))]


class _PartialToolCall:
    """A call growing in a stream."""

    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: dict[str, Any] = {}

    def take(self, raw: Mapping[str, Any]) -> None:
        function = as_map(raw.get("function"))
        self.id = self.id or as_text(raw.get("id"))
        # A name comes whole, yet some servers repeat it in every piece.
        self.name = self.name or as_text(function.get("name"))
        arguments = function.get("arguments")
        if arguments is not None:
            self.arguments.append(arguments if isinstance(arguments, str) else canonical_json(arguments))
        if isinstance(raw.get("extra_content"), Mapping):
            self.extra["extra_content"] = raw["extra_content"]

    def whole(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.arguments).strip() or "{}", self.extra)


class ChatStream:
    """The answer as it arrives; `finish` gives the reply, or raises when its end never came."""

    def __init__(self) -> None:
        self._split = ThinkSplitter()
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls: list[_PartialToolCall] = []
        self._slots: dict[int, _PartialToolCall] = {}
        self._told = 0
        self._refusal: list[str] = []
        self._finish = ""
        self._is_done = False
        self._usage: object = None
        self._model = ""
        self._id = ""

    @property
    def partial_text(self) -> str:
        """What has been said so far."""
        return self._split.text

    def feed(self, event: SseEvent) -> list[Delta]:
        """What this event adds. Raises ProviderError where it tells of a failure."""
        data = event.data.strip()
        if not data:
            return []
        if data == "[DONE]":
            self._is_done = True
            return self._new_calls(len(self._calls))
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            line = "the stream holds something that is not JSON"
            raise broken_reply("transport", line, partial_text=self.partial_text) from None
        return self.take(chunk) if isinstance(chunk, dict) else []

    def take(self, chunk: Mapping[str, Any]) -> list[Delta]:
        """What a chunk, already decoded, adds."""
        if chunk.get("error") or chunk.get("object") == "error" or "choices" not in chunk:
            failure = _failure(chunk, partial_text=self.partial_text)
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
                self._content(content, deltas)
            if refusal := as_text(delta.get("refusal")):
                self._refusal.append(refusal)
                deltas.append(TextDelta(refusal))
            if calls := as_list(delta.get("tool_calls")):
                for raw in calls:
                    self._call(as_map(raw))
                deltas += self._new_calls(len(self._calls) - 1)
            elif isinstance(delta.get("function_call"), Mapping):
                self._call({"index": 0, "function": delta["function_call"]})
        if choice.get("usage") and not self._usage:
            self._usage = choice["usage"]
        if reason := as_text(choice.get("finish_reason")):
            if reason.lower() in _FAILED:
                line = f"the service broke the reply off ({reason})"
                is_busy = reason.lower() == "insufficient_system_resource"
                raise broken_reply("overloaded" if is_busy else "transport", line, partial_text=self.partial_text)
            self._finish = reason.lower()
            deltas += self._new_calls(len(self._calls))

    def _reasoning(self, delta: Mapping[str, Any], deltas: list[Delta]) -> None:
        # Servers in transition send the same text under both names: take one.
        text = as_text(delta.get("reasoning_content")) or as_text(delta.get("reasoning"))
        details = [as_map(d) for d in as_list(delta.get("reasoning_details"))]
        for detail in details:
            _merge_detail(self._details, detail)
        text = text or "".join(as_text(d.get("text")) or as_text(d.get("summary")) for d in details)
        if text:
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
        """Adds a piece to its call; a new id under an index in use is a new call (Gemini numbers all of them 0)."""
        index = raw.get("index")
        slot = index if isinstance(index, int) else max(len(self._calls) - 1, 0) if not raw.get("id") else -1
        call = self._slots.get(slot)
        new_id = as_text(raw.get("id"))
        if call is None or (new_id and call.id and new_id != call.id):
            call = _PartialToolCall()
            self._calls.append(call)
            self._slots[slot if slot >= 0 else len(self._calls) - 1] = call
        call.take(raw)

    def _new_calls(self, until: int) -> list[Delta]:
        """Calls that are whole and have not been told yet; the last one grows until the reply ends."""
        fresh = self._calls[self._told : until]
        self._told = max(self._told, until)
        return [ToolCallParsed(c.whole()) for c in fresh]

    def finish(self) -> Reply:
        """The reply. Raises ProviderError (transport) when neither a reason nor the last event came."""
        if not self._finish and not self._is_done:
            raise cut_off(self.partial_text)
        finish = _FINISH.get(self._finish, "unknown" if self._finish else "stop")
        tagged, text = self._split.end(is_cut_off=finish in ("length", "context_overflow"))
        thoughts = "".join(self._thoughts) or tagged
        pieces: list[Piece] = [Thought(thoughts)]
        pieces += [Thought(detail=d) for d in self._details]
        refusal = "".join(self._refusal)
        pieces += [text or refusal, *(c.whole() for c in self._calls)]
        message = assembled(pieces, response_id=self._id)
        usage = normalize_usage(self._usage, "chat_completions") if self._usage else NOT_REPORTED
        is_refused = bool(refusal) and not text and not message.tool_calls
        return Reply(message, usage, "refusal" if is_refused else finished(finish, message), self._model, self._id)


def _parts(content: Sequence[Any]) -> tuple[str, str]:
    """Content given as parts (Mistral): what it thinks, and what it says."""
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
    """Adds a piece of a reasoning block to the block it continues; what is whole starts one of its own."""
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


def _failure(body: Mapping[str, Any], *, partial_text: str = "") -> ProviderError | None:
    """The failure a body tells of; None where it tells of none."""
    found = error_in(body)
    return ProviderError(classify_error(None, found), partial_text=partial_text) if found is not None else None
