"""Select the reasoning of earlier replies that a request sends back; the rest stays in the log.

| route                                   | what is sent back                                             |
|-----------------------------------------|---------------------------------------------------------------|
| anthropic_messages                      | thinking the service signed, in every turn                    |
| codex_responses                         | encrypted reasoning items, in every turn                      |
| chat_completions, `<think>` tags        | all of it: these models are trained to see it again           |
| chat_completions, a field for reasoning | the current tool loop's; signed or encrypted details always   |
| chat_completions, no such field         | nothing                                                       |

Services with a field for it need the reasoning between a call and its results, and their chat templates drop that of
finished turns. Sending it would only fill the window. Signed reasoning is always sent back: it is small or not billed,
and the cached prefix stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.messages import Message
from perdure.providers.registry import quirks_of
from perdure.providers.types import ApiMode, Endpoint, ReasoningField

_EXTRAS = ("reasoning_content", "thinking")
_SHORT_CHARS = 300
_SEALS = ("signature", "encrypted_content", "data")


@dataclass(frozen=True, slots=True)
class ReasoningRule:
    """The reasoning one route sends back."""

    mode: ApiMode
    field: ReasoningField | None = None

    @classmethod
    def of(cls, endpoint: Endpoint) -> ReasoningRule:
        quirks = quirks_of(
            endpoint.provider, model=endpoint.model, base_url=endpoint.base_url, api_mode=endpoint.api_mode
        )
        return cls(endpoint.api_mode, quirks.reasoning_field)

    def filter_message(self, message: Message, *, is_current: bool) -> Message:
        """Return the message with only the reasoning this route sends back; `is_current`: its tool loop is still
        running."""
        if not has_reasoning(message):
            return message
        if self.mode != "chat_completions":
            details = message.reasoning_details
            # All or nothing: the details of two services in one message cannot be separated again.
            return _with(message, None, details if any(map(_is_sealed, details)) else ())
        if self.field == "think_tags":
            return _with(message, message.reasoning, ())
        text = message.reasoning if is_current and self.field is not None else None
        if self.field != "reasoning":
            return _with(message, text, ())
        return _with(message, text, tuple(d for d in message.reasoning_details if is_current or _is_sealed(d)))


def shorten_reasoning(message: Message) -> Message:
    """Shorten the readable reasoning to its two ends: some services refuse a tool call without any."""
    text = message.reasoning
    if not text or len(text) <= 2 * _SHORT_CHARS:
        return message
    short = f"{text[:_SHORT_CHARS]} [… reasoning omitted …] {text[-_SHORT_CHARS:]}"
    return _with(message, short, tuple(d for d in message.reasoning_details if _is_sealed(d)))


def has_reasoning(message: Message) -> bool:
    return bool(message.reasoning or message.reasoning_details) or any(key in message.extra for key in _EXTRAS)


def _is_sealed(detail: Mapping[str, Any]) -> bool:
    return any(detail.get(key) for key in _SEALS) or detail.get("type") == "redacted_thinking"


def _with(message: Message, text: str | None, details: tuple[Mapping[str, Any], ...]) -> Message:
    has_extras = any(key in message.extra for key in _EXTRAS)
    if text == message.reasoning and details == message.reasoning_details and not has_extras:
        return message
    extra = {k: v for k, v in message.extra.items() if k not in _EXTRAS} if has_extras else message.extra
    return replace(message, reasoning=text, reasoning_details=details, extra=extra)
