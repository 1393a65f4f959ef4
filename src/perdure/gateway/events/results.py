"""The result of a message: how its final event is stored, rebuilt and compared, and who may see it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perdure.commands.command import is_command
from perdure.core.errors import NotFound
from perdure.core.events import TurnFinished
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import EVERYONE, Visibility, only
from perdure.gateway.events.types import CommandAnswered
from perdure.store.inbox import InboundMessage, QueuedMessage
from perdure.store.store import SessionStore

_DIGEST = "message_digest"


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
    }


def to_stored_result(result: Mapping[str, Any], content: str | Mapping[str, Any]) -> dict[str, Any]:
    """Add a digest of the message, whose content is deleted once it is answered."""
    return {**result, _DIGEST: _digest(content)}


def finished_event(result: Mapping[str, Any] | None, conversation_id: str | None) -> TurnFinished | CommandAnswered:
    """Rebuild the final event from a stored result."""
    stored = result or {}
    if stored.get("kind") == "command":
        return CommandAnswered(stored["text"], stored["level"], conversation_id)
    usage = CanonicalUsage(**stored["usage"]) if "usage" in stored else CanonicalUsage(reported=False)
    return TurnFinished(stored.get("outcome", "failed"), stored.get("text", ""), usage, stored.get("error"))


def is_same_message(queued: QueuedMessage, inbound: InboundMessage) -> bool:
    """Return whether a message is the one stored under its idempotency key; old results may have no digest."""
    content = inbound.content
    # OpenAI clients address no chat: it is matched by history, and a retry may match another one.
    is_addressed = inbound.platform != "openai"
    if is_addressed and (queued.inbound.chat, queued.inbound.queue_key) != (inbound.chat, inbound.queue_key):
        return False
    # A command may have been replaced by the message it produced.
    if isinstance(content, str) and is_command(content):
        return True
    if queued.state != "done":
        return _digest(queued.inbound.content) == _digest(content)
    return (queued.result or {}).get(_DIGEST) in (None, _digest(content))


def is_visible_to(visibility: Visibility, queued: QueuedMessage, store: SessionStore) -> bool:
    """Return whether a reader may see a message and its result: its sender's, and the words it may contain."""
    return visibility.includes(queued.inbound.user_key) and visibility.covers(visibility_of(queued, store))


def visibility_of(queued: QueuedMessage, store: SessionStore) -> Visibility:
    """Whose words a message's events and result may contain: those of the conversation it went to, whoever sent it.

    A command answers with all that its sender may see, so an administrator's is for administrators.
    """
    content, result = queued.inbound.content, queued.result or {}
    is_a_command = result["kind"] == "command" if "kind" in result else isinstance(content, str) and is_command(content)
    if is_a_command and "admin" in queued.inbound.scopes:
        return EVERYONE
    if queued.conversation_id is None:
        return only(queued.inbound.user_key)
    try:
        return only(store.conversations.get(queued.conversation_id).user_key)
    except NotFound:  # deleted since: whose it was cannot be told any more
        return EVERYONE if "admin" in queued.inbound.scopes else only(queued.inbound.user_key)


def _digest(content: str | Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
