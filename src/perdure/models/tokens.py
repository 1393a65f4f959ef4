"""How many tokens a request comes to, before a provider says so.

SKELETON: right names, rough numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.core.messages import Message, canonical_json


def estimate_text(text: str, model: str | None = None) -> int:
    """The tokens of one text."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def estimate_message(message: Message, model: str | None = None) -> int:
    """The tokens of one message, its calls, reasoning and framing included."""
    calls = sum(estimate_text(c.name + c.arguments, model) + 8 for c in message.tool_calls)
    return estimate_text(message.text, model) + calls + 4


def estimate_tokens(
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    system: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    model: str | None = None,
) -> int:
    """The size of a whole request: history, system prompt and tools schema."""
    total = sum(estimate_message(Message.from_dict(m), model) for m in messages)
    total += estimate_text(system, model) if system else 0
    return total + (estimate_text(canonical_json(tools), model) if tools else 0)
