"""What happened beside the words, kept with the conversation: spills, how long tools took, model switches, notices.

Compactions and recoveries are recorded where they are done, for only there is known why.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from perdure.agent.continuation import Emit
from perdure.agent.session import LiveSession
from perdure.core.errors import StoreError
from perdure.core.events import Event, ModelSwitched, Notice, TextDelta
from perdure.store.records import StoredEvent
from perdure.store.store import SessionStore
from perdure.tools.runtime import Batch

_log = logging.getLogger(__name__)


def keeping(emit: Emit, live: LiveSession, store: SessionStore) -> Emit:
    """The way events go out, with those worth keeping written down first."""

    def emit_and_keep(event: Event) -> None:
        # Nearly all there are say words, and those are kept as the message they make.
        told = _told(event) if type(event) is not TextDelta else None
        if told is not None:
            kind, payload = told
            try:
                store.ledger.record_event(StoredEvent(live.id, kind, payload))
            except StoreError as error:
                # A note that cannot be written down is no reason to end a turn.
                _log.warning("a %s was not kept: %s", kind, error)
        emit(event)

    return emit_and_keep


def of_tools(batch: Batch, session_id: str) -> list[StoredEvent]:
    """What is known of a batch of tool calls beside their results, to be written together with them."""
    events = [
        StoredEvent(
            session_id,
            "spill",
            {"tool": call.name, "call": call.id, "address": stored.address, "chars": stored.chars},
        )
        for call, stored in batch.spills()
    ]
    seconds = {call_id: round(s, 3) for call_id, s in batch.seconds.items()}
    known = {"seconds": seconds, "states": dict(batch.states()), "exit_codes": dict(batch.exit_codes())}
    events.append(StoredEvent(session_id, "tools", known))
    return events


def _told(event: Event) -> tuple[str, Mapping[str, Any]] | None:
    if isinstance(event, ModelSwitched):
        return "model_switch", {"old": event.old, "new": event.new, "reason": event.reason}
    if isinstance(event, Notice):
        return "notice", {"text": event.text, "level": event.level}
    return None
