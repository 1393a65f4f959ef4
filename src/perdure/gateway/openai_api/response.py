"""Format responses of Chat Completions: complete, or as stream chunks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perdure.core.events import ReasoningDelta, RefusalDelta, TextDelta
from perdure.core.messages import ToolCall
from perdure.core.usage import CanonicalUsage
from perdure.gateway.openai_api.parameters import MODEL
from perdure.gateway.openai_api.turn import CompletionTurn

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
DONE = b"data: [DONE]\n\n"
IDLE = b": idle\n\n"


@dataclass(frozen=True, slots=True)
class ResponseBuilder:
    """Builds the response objects of one turn."""

    turn_id: str
    created_s: int

    def build_completion(self, turn: CompletionTurn) -> dict[str, Any]:
        calls = [_call_to_dict(call) for call in turn.client_calls]
        message: dict[str, Any] = {"role": "assistant", "content": turn.text, "refusal": None}
        if turn.is_refusal:
            message |= {"content": None, "refusal": turn.text}
        if calls:
            message |= {"content": turn.text or None, "tool_calls": calls}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(turn)}
        extension = {"perdure": {"conversation_id": turn.conversation_id}}
        usage = usage_to_dict(turn.usage)
        return {**self._envelope("chat.completion"), "choices": [choice], "usage": usage, **extension}

    async def stream(self, turn: CompletionTurn, *, with_usage: bool) -> AsyncIterator[bytes]:
        """Yield the response as server-sent chunks."""
        yield self._chunk({"role": "assistant", "content": ""})
        async for delta in turn.deltas():
            if delta is None:
                yield IDLE
            else:
                yield self._chunk({_delta_field(delta): delta.text})
        if (failure := turn.failure) is not None:
            yield format_chunk(failure.body)
            yield DONE
            return
        for i, call in enumerate(turn.client_calls):
            yield self._chunk({"tool_calls": [{"index": i, **_call_to_dict(call)}]})
        extension = {"perdure": {"conversation_id": turn.conversation_id}}
        yield self._chunk({}, reason=finish_reason(turn), **extension)
        if with_usage:
            usage = usage_to_dict(turn.usage)
            yield format_chunk({**self._envelope("chat.completion.chunk"), "choices": [], "usage": usage})
        yield DONE

    def _chunk(self, delta: dict[str, Any], *, reason: FinishReason | None = None, **extra: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return format_chunk({**self._envelope("chat.completion.chunk"), "choices": [choice], **extra})

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.turn_id}", "object": kind, "created": self.created_s, "model": MODEL}


def finish_reason(turn: CompletionTurn) -> FinishReason:
    if turn.client_calls:
        return "tool_calls"
    if turn.is_filtered:
        return "content_filter"
    return "length" if turn.is_cut else "stop"


def _delta_field(delta: TextDelta | ReasoningDelta) -> str:
    if isinstance(delta, ReasoningDelta):
        return "reasoning_content"
    return "refusal" if isinstance(delta, RefusalDelta) else "content"


def usage_to_dict(usage: CanonicalUsage) -> dict[str, Any]:
    """Return the token usage of the whole turn, including its tool-call rounds."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def list_model_objects(created_s: int) -> Sequence[dict[str, Any]]:
    return [{"id": MODEL, "object": "model", "created": created_s, "owned_by": "perdure"}]


def format_chunk(value: Any) -> bytes:
    # ASCII output keeps lone surrogates, which cannot be encoded, as escapes.
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _call_to_dict(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
