"""Serialize events for clients, and the result of a message for the inbox.

An event is a JSON object: `{"type": "text_delta", "number": 7, "turn_id": "t_…", "text": "…"}`. The result is the final
event of a message: stored, compared and rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from perdure.commands.command import is_command
from perdure.core.events import TextDelta, TurnFinished
from perdure.core.messages import Message, ToolCall
from perdure.core.usage import CanonicalUsage
from perdure.gateway.events.types import CommandAnswered, GatewayEvent, SequencedEvent, Ticket
from perdure.store.inbox import InboundMessage, QueuedMessage

# Truncate tool results in the stream; the timeline has them in full.
RESULT_CHARS = 4_000
# Key of a message's digest in its stored result.
_DIGEST = "message_digest"
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_WORD_BOUNDARY = re.compile(r"(?<!^)(?=[A-Z])")
_FINAL_EVENTS = (TurnFinished, CommandAnswered)
# Clients match on the type, so it outlives a rename of the class.
_TYPE_NAMES = {"ContextUsageChanged": "gauge_moved", "RefusalDelta": "text_delta"}


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
    return isinstance(event, _FINAL_EVENTS)


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


# -- results -----------------------------------------------------------------------------------------------------------


def to_result(event: TurnFinished | CommandAnswered) -> dict[str, Any]:
    """Serialize the final event of a turn or command."""
    if isinstance(event, CommandAnswered):
        return {"kind": "command", "text": event.text, "level": event.level}
    usage = {f.name: getattr(event.usage, f.name) for f in fields(event.usage)}
    return {
        "kind": "turn",
        "outcome": event.outcome,
        "text": event.final_response,
        "error": event.error,
        "usage": usage,
        "client_calls": [call.to_dict() for call in event.client_calls],
        "finish": event.finish,
        "error_kind": event.error_kind,
        "missing_answer": event.missing_answer,
    }


def to_stored_result(result: Mapping[str, Any], inbound: InboundMessage) -> dict[str, Any]:
    """Return the result to store: with a digest of the message, whose content is deleted once it is answered."""
    return {**result, _DIGEST: _digest(inbound)}


def finished_event(result: Mapping[str, Any] | None, conversation_id: str | None) -> TurnFinished | CommandAnswered:
    """Rebuild the final event from a stored result."""
    stored = result or {}
    if stored.get("kind") == "command":
        return CommandAnswered(stored["text"], stored["level"], conversation_id)
    usage = CanonicalUsage(**stored["usage"]) if "usage" in stored else CanonicalUsage(reported=False)
    calls = tuple(ToolCall.from_dict(call) for call in stored.get("client_calls") or ())
    finish, outcome, kind = stored.get("finish", ""), stored.get("outcome", "failed"), stored.get("error_kind", "")
    missing = stored.get("missing_answer", "")
    return TurnFinished(outcome, stored.get("text", ""), usage, stored.get("error"), calls, finish, kind, missing)


def is_same_message(queued: QueuedMessage, inbound: InboundMessage) -> bool:
    """Return whether a message is the one stored under its idempotency key; old results may have no digest."""
    content = inbound.content
    # OpenAI clients address no chat: it is matched by history, and a retry may match another one. Their keys include
    # the conversation's name or history instead.
    is_addressed = inbound.platform != "openai"
    if is_addressed and _address(queued.inbound) != _address(inbound):
        return False
    # A command may have been replaced by the message it produced.
    if isinstance(content, str) and is_command(content):
        return True
    if queued.state != "done":
        return _digest(queued.inbound) == _digest(inbound)
    return (queued.result or {}).get(_DIGEST) in (None, _digest(inbound))


def _address(inbound: InboundMessage) -> tuple[str, str | None]:
    return inbound.chat, inbound.conversation_id


def _digest(inbound: InboundMessage) -> str:
    sent = [inbound.content, inbound.options] if inbound.options else inbound.content
    return hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
