"""Serialize events to JSON: `{"type": "text_delta", "number": 7, "turn_id": "t_…", "text": "…"}`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from perdure.core.events import TextDelta, TurnFinished
from perdure.core.messages import Message, ToolCall
from perdure.core.usage import CanonicalUsage
from perdure.gateway.events.types import CommandAnswered, GatewayEvent, SequencedEvent, Ticket

# Truncate tool results in the stream; the timeline has them in full.
RESULT_CHARS = 4_000
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_WORD_BOUNDARY = re.compile(r"(?<!^)(?=[A-Z])")
# Clients match on the type, so it outlives a rename of the class.
_TYPE_NAMES = {"ContextUsageChanged": "gauge_moved"}


def encode_event(sequenced: SequencedEvent) -> dict[str, Any]:
    """Return one event as a JSON object."""
    event = sequenced.event
    common = {"type": event_type(event), "number": sequenced.number, "turn_id": sequenced.turn_id}
    if isinstance(event, TextDelta):  # by far the most frequent
        return {**common, "text": event.text}
    return {**common, **{f.name: _to_json_value(getattr(event, f.name)) for f in fields(event)}}


def to_json(value: Any) -> str:
    """Return compact ASCII JSON, which can carry every character, including lone surrogates."""
    return _ENCODER.encode(value)


def ticket_to_dict(ticket: Ticket) -> dict[str, Any]:
    return {"turn_id": ticket.turn_id, "conversation_id": ticket.conversation_id, "state": ticket.state}


def event_type(event: GatewayEvent) -> str:
    return _type_name(type(event).__name__)


def is_final(event: GatewayEvent) -> bool:
    """Return whether this is the last event of its message."""
    return isinstance(event, TurnFinished | CommandAnswered)


@cache
def _type_name(name: str) -> str:
    return _TYPE_NAMES.get(name) or _WORD_BOUNDARY.sub("_", name).lower()


def _to_json_value(value: Any) -> Any:
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Message):
        return _message_to_dict(value)
    if isinstance(value, ToolCall):
        return {"id": value.id, "name": value.name, "arguments": value.arguments[:RESULT_CHARS]}
    if isinstance(value, CanonicalUsage):
        return usage_to_dict(value)
    if isinstance(value, Mapping):
        return {str(k): _to_json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _to_json_value(getattr(value, f.name)) for f in fields(value)}
    return str(value)


def usage_to_dict(usage: CanonicalUsage) -> dict[str, Any]:
    """Return the token counts of each class and their totals."""
    return {f.name: getattr(usage, f.name) for f in fields(usage)} | {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.total_tokens,
    }


def _message_to_dict(message: Message) -> dict[str, Any]:
    text = message.text
    return {"role": message.role, "text": text[:RESULT_CHARS], "is_cut": len(text) > RESULT_CHARS, "chars": len(text)}
