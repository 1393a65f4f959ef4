"""What came of a message, as it is kept in the inbox and told again to whoever asks twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perdure.commands.command import is_command
from perdure.core.events import TurnFinished
from perdure.core.usage import CanonicalUsage
from perdure.gateway.telling.chats import CommandAnswered
from perdure.store.inbox import QueuedMessage

_DIGEST = "message_digest"


def result_of(event: TurnFinished | CommandAnswered) -> dict[str, Any]:
    """A turn's or a command's end as JSON."""
    if isinstance(event, CommandAnswered):
        return {"kind": "command", "text": event.text, "level": event.level}
    usage = {f.name: getattr(event.usage, f.name) for f in fields(event.usage)}
    return {
        "kind": "turn",
        "outcome": event.outcome,
        "text": event.final_response,
        "error": event.error,
        "usage": usage,
    }


def kept_result(result: Mapping[str, Any], content: str | Mapping[str, Any]) -> dict[str, Any]:
    """A result as it is kept: with a digest of its message, whose text is not kept once it is answered."""
    return {**result, _DIGEST: _digest(content)}


def is_message_of(taken: QueuedMessage, content: str | Mapping[str, Any]) -> bool:
    """Whether a message is the one that was taken under its key; one answered long ago may have no digest."""
    # A command may have been replaced by the message it made.
    if isinstance(content, str) and is_command(content):
        return True
    if taken.state != "done":
        return _digest(taken.letter.content) == _digest(content)
    return (taken.result or {}).get(_DIGEST) in (None, _digest(content))


def _digest(content: str | Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def finished_event(result: Mapping[str, Any] | None, conversation_id: str | None) -> TurnFinished | CommandAnswered:
    """The event of an end that was kept."""
    kept = result or {}
    if kept.get("kind") == "command":
        return CommandAnswered(kept["text"], kept["level"], conversation_id)
    usage = CanonicalUsage(**kept["usage"]) if "usage" in kept else CanonicalUsage(reported=False)
    return TurnFinished(kept.get("outcome", "failed"), kept.get("text", ""), usage, kept.get("error"))
