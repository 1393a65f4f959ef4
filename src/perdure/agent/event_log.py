"""Persist turn events with the conversation: spills, tool timings, model switches, notices.

Compactions and recoveries are recorded where they are done, for only there is known why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from perdure.agent.compaction import Emit
from perdure.agent.session import LiveSession
from perdure.core.events import Event, ModelSwitched, Notice, TextDelta
from perdure.store.records import StoredEvent
from perdure.tools.runtime import Batch


class EventRecorder:
    """Forwards events and has the relevant ones stored with the next write of the session."""

    def __init__(self, emit: Emit, live: LiveSession) -> None:
        self._emit = emit
        self._live = live

    def __call__(self, event: Event) -> None:
        # Most events are text deltas, which are stored as the message they form.
        payload = _payload(event) if type(event) is not TextDelta else None
        if payload is not None:
            self._live.record(StoredEvent(self._live.id, *payload))
            if not _is_on_event_loop():  # between turns: no write may follow
                self._live.flush()
        self._emit(event)


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def tool_events(batch: Batch, session_id: str) -> list[StoredEvent]:
    """Build the events of a batch of tool calls, stored with their results."""
    events = [
        StoredEvent(
            session_id,
            "spill",
            {"tool": call.name, "call": call.id, "address": stored.address, "chars": stored.chars},
        )
        for call, stored in batch.spills()
    ]
    seconds = {call_id: round(s, 3) for call_id, s in batch.seconds.items()}
    details = {"seconds": seconds, "states": dict(batch.states()), "exit_codes": dict(batch.exit_codes())}
    events.append(StoredEvent(session_id, "tools", details))
    return events


def _payload(event: Event) -> tuple[str, Mapping[str, Any]] | None:
    if isinstance(event, ModelSwitched):
        return "model_switch", {"old": event.old, "new": event.new, "reason": event.reason}
    if isinstance(event, Notice):
        return "notice", {"text": event.text, "level": event.level}
    return None
