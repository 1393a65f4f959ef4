"""Persist turn events with the conversation: spills, tool timings, model switches, notices.

Compactions and recoveries are recorded where they are done, for only there is known why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from perdure.agent.compaction import Emit
from perdure.agent.session import LiveSession
from perdure.context.engine import RunInThread
from perdure.core.errors import StoreError
from perdure.core.events import Event, ModelSwitched, Notice, TextDelta
from perdure.store.records import StoredEvent
from perdure.store.store import SessionStore
from perdure.tools.runtime import Batch

_log = logging.getLogger(__name__)


class EventRecorder:
    """Forwards events and persists the relevant ones, in order, off the event loop."""

    def __init__(self, emit: Emit, live: LiveSession, store: SessionStore, keep: RunInThread) -> None:
        self._emit = emit
        self._live = live
        self._store = store
        self._keep = keep
        self._writes: set[asyncio.Task[None]] = set()
        self._order = asyncio.Lock()

    def __call__(self, event: Event) -> None:
        # Most events are text deltas, which are stored as the message they form.
        payload = _payload(event) if type(event) is not TextDelta else None
        if payload is not None:
            self._record(StoredEvent(self._live.id, *payload))
        self._emit(event)

    async def finish(self) -> None:
        """Wait for pending writes, even if interrupted meanwhile."""
        while self._writes:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(self._writes)

    def _record(self, event: StoredEvent) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no running event loop in this thread
            self._write(event)
            return
        task = loop.create_task(self._write_in_order(event))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write_in_order(self, event: StoredEvent) -> None:
        async with self._order:
            await self._keep(partial(self._write, event))

    def _write(self, event: StoredEvent) -> None:
        try:
            self._store.ledger.record_event(event)
        except StoreError as error:
            # A note that cannot be written down is no reason to end a turn.
            _log.warning("a %s was not kept: %s", event.kind, error)


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
