"""Format responses in OpenAI's shapes: complete, or as stream chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from perdure.core.events import Outcome
from perdure.core.usage import CanonicalUsage
from perdure.gateway.openai_api.request import MODEL

FinishReason = Literal["stop", "length"]
DONE = b"data: [DONE]\n\n"
# The call budget is used up; the other outcomes map to "stop".
_REASONS: dict[Outcome, FinishReason] = {"budget": "length"}


@dataclass(frozen=True, slots=True)
class ResponseBuilder:
    """Builds the response objects of one turn."""

    turn_id: str
    created_s: int

    def build_completion(
        self, text: str, outcome: Outcome, usage: CanonicalUsage, conversation_id: str | None
    ) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None,
            "finish_reason": finish_reason(outcome),
        }
        extension = {"perdure": {"conversation_id": conversation_id}}
        return {**self._envelope("chat.completion"), "choices": [choice], "usage": usage_to_dict(usage), **extension}

    def chunk(self, delta: dict[str, Any], *, reason: FinishReason | None = None, **extra: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return format_chunk({**self._envelope("chat.completion.chunk"), "choices": [choice], **extra})

    def usage_chunk(self, usage: CanonicalUsage) -> bytes:
        return format_chunk({**self._envelope("chat.completion.chunk"), "choices": [], "usage": usage_to_dict(usage)})

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.turn_id}", "object": kind, "created": self.created_s, "model": MODEL}


def finish_reason(outcome: Outcome) -> FinishReason:
    return _REASONS.get(outcome, "stop")


def usage_to_dict(usage: CanonicalUsage) -> dict[str, Any]:
    """Return the token usage of the whole turn, including its tool-call rounds."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def list_model_objects(created_s: int) -> list[dict[str, Any]]:
    return [{"id": MODEL, "object": "model", "created": created_s, "owned_by": "perdure"}]


def format_chunk(value: Any) -> bytes:
    # ASCII output keeps lone surrogates, which cannot be encoded, as escapes.
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
