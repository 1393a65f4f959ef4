"""What came of a message, as it is kept in the inbox and told again to whoever asks twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perdure.core.events import TurnFinished
from perdure.core.usage import CanonicalUsage
from perdure.gateway.telling.chats import CommandAnswered


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


def finished_event(result: Mapping[str, Any] | None, conversation_id: str | None) -> TurnFinished | CommandAnswered:
    """The event of an end that was kept."""
    kept = result or {}
    if kept.get("kind") == "command":
        return CommandAnswered(kept["text"], kept["level"], conversation_id)
    usage = CanonicalUsage(**kept["usage"]) if "usage" in kept else CanonicalUsage(reported=False)
    return TurnFinished(kept.get("outcome", "failed"), kept.get("text", ""), usage, kept.get("error"))
