"""Decide who may see a queued message, its events and its result."""

from __future__ import annotations

from perdure.commands.command import is_command
from perdure.core.errors import NotFound
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store.inbox import QueuedMessage
from perdure.store.store import SessionStore


def is_visible_to(visibility: Visibility, queued: QueuedMessage, store: SessionStore) -> bool:
    """Whether a reader may see a queued message and its result: both its sender and its content must be visible."""
    return visibility.covers(queued.inbound.user) and visibility.covers(required_visibility(queued, store))


def required_visibility(queued: QueuedMessage, store: SessionStore) -> Visibility:
    """Return what a reader of a message's events and result must be able to see: normally its conversation's owner.

    A command of an administrator may answer with data of any user, so its result is for administrators.
    """
    content, result = queued.inbound.content, queued.result or {}
    is_a_command = result["kind"] == "command" if "kind" in result else isinstance(content, str) and is_command(content)
    if is_a_command and "admin" in queued.inbound.scopes:
        return EVERYONE
    if queued.conversation_id is None:
        return queued.inbound.user
    try:
        return store.conversations.get(queued.conversation_id).user
    except NotFound:  # deleted since: its owner is no longer known
        return EVERYONE if "admin" in queued.inbound.scopes else queued.inbound.user
