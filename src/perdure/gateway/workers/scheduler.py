"""Run schedules: start what is due, report what was missed, record how runs ended.

A run is a message in the inbox, of the platform `schedule` and in a chat of its own, so that it is queued, leased,
resumed after a crash and accounted like every other message. After a pause only the newest due time is run, late; the
earlier ones count as missed, and so does a due time at which the run before it has not finished. The next run reports
them, once.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from perdure.commands.command import is_command
from perdure.core.errors import ConfigError, LeaseLost, NotFound
from perdure.core.ports import Clock
from perdure.core.turn_options import TurnOptions, Unattended
from perdure.core.visibility import AnyUser
from perdure.gateway.events.types import ChatKey
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.queue import OWNERSHIP_TTL_MS, ConversationQueues
from perdure.gateway.workers.recurrence import Recurrence
from perdure.gateway.workers.routing import ChatRouting, chat_key, queue_key
from perdure.store.encoding import IdSource
from perdure.store.inbox import InboundMessage, QueuedMessage
from perdure.store.leases import holder_id, is_holder_dead
from perdure.store.records import Span
from perdure.store.schedules import MissedRuns, RunStart, Schedule, ScheduleRun
from perdure.store.store import SessionStore
from perdure.tools.approval import advance_rules

_log = logging.getLogger(__name__)
PLATFORM = "schedule"
# A run that starts later than this after its due time reports the delay.
_LATE_MS = 120_000
# A schedule that cannot be read (an unknown time zone on this machine) is looked at again after this time.
_RETRY_MS = 3_600_000
_MAX_REFUSALS, _REFUSAL_CHARS, _DETAIL_CHARS = 5, 300, 2_000


class Scheduler:
    """Starts the due runs of a store's schedules; several processes may do so at once."""

    def __init__(
        self, store: SessionStore, queues: ConversationQueues, *, owner: str, clock: Clock, ids: IdSource
    ) -> None:
        self._store = store
        self._queues = queues
        self._owner = owner
        self._clock = clock
        self._ids = ids

    async def run_due(self) -> None:
        """Record the outcomes of finished runs, then start what is due."""
        if self._queues.is_stopping:
            return
        await run_blocking(record_outcomes, self._store)
        for schedule in await run_blocking(self._store.schedules.due):
            queued = await run_blocking(self._start_due, schedule)
            if queued is not None:
                self._queues.wake(queued, is_first=True)

    async def run_now(self, schedule: Schedule) -> QueuedMessage:
        """Start a run by hand; the next due time stays. Raises NotFound for a schedule that was removed."""
        run = RunStart(self._clock.now_ms())
        queued = await run_blocking(self._start, schedule, run)
        if queued is None:
            raise NotFound(f"the schedule {schedule.name!r} was removed")
        self._queues.wake(queued, is_first=True)
        return queued

    def _start_due(self, schedule: Schedule) -> QueuedMessage | None:
        """Start the newest due run, or count it as missed while the one before it goes on."""
        now_ms = self._clock.now_ms()
        try:
            due = Recurrence.of(schedule).due_times(schedule.next_at_ms, now_ms)
        except ConfigError as error:
            _log.warning("schedule %s cannot be run: %s", schedule.name, error)
            self._store.schedules.skip(
                schedule, next_at_ms=now_ms + _RETRY_MS, missed=_add(schedule.missed, 1, schedule.next_at_ms)
            )
            return None
        is_busy = any(run.schedule_id == schedule.id and not run.is_manual for run in self._store.schedules.open_runs())
        if is_busy:
            missed = _add(schedule.missed, due.earlier + 1, schedule.next_at_ms)
            if self._store.schedules.skip(schedule, next_at_ms=due.next_ms, missed=missed):
                _log.warning("schedule %s: still running, a due run was left out", schedule.name)
            return None
        earlier = _add(schedule.missed, due.earlier, schedule.next_at_ms) if due.earlier else schedule.missed
        queued = self._start(schedule, RunStart(due.newest_ms, due.next_ms, earlier))
        if queued is not None and earlier is not None:
            _log.warning("schedule %s: %s", schedule.name, describe_missed(earlier, schedule.timezone))
        return queued

    def _start(self, schedule: Schedule, run: RunStart) -> QueuedMessage | None:
        chat = chat_of_run(schedule.user, schedule.id, run.due_at_ms)
        options = TurnOptions(unattended=Unattended(schedule.allowed, schedule.folder), model=schedule.model)
        inbound = InboundMessage(
            self._ids.new("t_"),
            queue_key(chat, None),
            chat.platform,
            chat.user,
            chat.chat,
            _prompt(schedule, run, self._clock.now_ms()),
            ("chat", "read", "shell"),
            chat.chat,
            options.to_dict(),
        )
        return self._store.schedules.start_run(schedule, run, inbound, owner=self._owner, ttl_ms=OWNERSHIP_TTL_MS)


def chat_of_run(user: AnyUser, schedule_id: str, due_at_ms: int) -> ChatKey:
    """Return the chat of a run: each has its own, so that it starts a conversation."""
    return ChatKey(PLATFORM, user, f"{schedule_id}:{due_at_ms}")


def record_outcomes(store: SessionStore) -> None:
    """Record how finished runs ended, whichever process ran them."""
    routing = ChatRouting(store)
    for run in store.schedules.open_runs():
        try:
            queued = store.inbox.get(run.message_id)
        except NotFound:  # deleted together with its conversation
            store.schedules.finish_run(
                run, outcome="unknown", detail="its conversation was deleted", conversation_id=None
            )
            continue
        if queued.state != "done":
            continue
        inbound = queued.inbound
        outcome, detail = _outcome_of(queued, store)
        is_new = store.schedules.finish_run(run, outcome=outcome, detail=detail, conversation_id=queued.conversation_id)
        if is_new and outcome != "completed":
            _log.warning("a run of schedule %s: %s", run.schedule_id, outcome)
        chat = ChatKey(inbound.platform, inbound.user, inbound.chat)
        _delete_empty(store, chat)
        # The conversation goes on by its own id; no other message comes to the chat of the run.
        routing.set(chat, None)


def finished_run(store: SessionStore, schedule: Schedule, queued: QueuedMessage) -> ScheduleRun:
    """Return the run of a finished message, also where its schedule was removed meanwhile."""
    for run in store.schedules.runs(schedule):
        if run.message_id == queued.id and run.outcome is not None:
            return run
    outcome, detail = _outcome_of(queued, store)
    ended_ms = queued.done_at_ms or 0
    return ScheduleRun(
        schedule.id,
        ended_ms,
        is_manual=True,
        message_id=queued.id,
        started_at_ms=ended_ms,
        conversation_id=queued.conversation_id,
        outcome=outcome,
        detail=detail,
        finished_at_ms=ended_ms,
    )


def locate_run(store: SessionStore, run: ScheduleRun) -> ScheduleRun:
    """Return a run with its conversation, also while it has no outcome."""
    if run.conversation_id is not None or run.outcome is not None:
        return run
    try:
        return replace(run, conversation_id=store.inbox.get(run.message_id).conversation_id)
    except NotFound:
        return run


def _delete_empty(store: SessionStore, chat: ChatKey) -> None:
    """Delete conversations of a run without a message, created by a process that died before it began."""
    for conversation in store.conversations.list(chat_key=chat_key(chat), source=PLATFORM).conversations:
        if conversation.last_seq == 0:
            with (
                suppress(LeaseLost),
                store.leases.hold(conversation.id, holder_id(), is_dead=is_holder_dead) as lease,
            ):
                store.delete(conversation.id, lease=lease)


def describe_missed(missed: MissedRuns, timezone: str) -> str:
    """Describe missed runs: how many, and since when."""
    many = "1 earlier run was missed" if missed.count == 1 else f"{missed.count:,} earlier runs were missed"
    return f"{many}, since {format_time(missed.since_ms, timezone)}"


def format_time(ms: int, timezone: str) -> str:
    """Format a time in the time zone of its schedule; in UTC where this machine does not know that."""
    try:
        zone: tzinfo = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        zone = UTC
    return datetime.fromtimestamp(ms / 1000, zone).strftime("%Y-%m-%d %H:%M %Z")


def _add(missed: MissedRuns | None, count: int, since_ms: int) -> MissedRuns:
    if missed is None:
        return MissedRuns(count, since_ms)
    return MissedRuns(missed.count + count, min(missed.since_ms, since_ms))


def _prompt(schedule: Schedule, run: RunStart, now_ms: int) -> str:
    """Return the prompt, with a note on a late start and on missed runs; a slash command takes no note."""
    notes = []
    if now_ms - run.due_at_ms > _LATE_MS:
        notes.append(f"it was due at {format_time(run.due_at_ms, schedule.timezone)} and starts late")
    if run.missed is not None:
        notes.append(describe_missed(run.missed, schedule.timezone))
    if not notes or is_command(schedule.prompt):
        return schedule.prompt
    return f"{schedule.prompt}\n\n[Note on this scheduled run: {'; '.join(notes)}.]"


def _outcome_of(queued: QueuedMessage, store: SessionStore) -> tuple[str, str]:
    """Return how a run ended, and why, with the calls that were refused in it."""
    result = queued.result or {}
    if result.get("kind") == "command":
        is_error = result.get("level") == "error"
        return ("failed", str(result.get("text", ""))[:_DETAIL_CHARS]) if is_error else ("completed", "")
    refused = _refused_calls(queued, store)
    parts = [str(result["error"])] if result.get("error") else []
    parts += _describe_refusals(refused)
    outcome = str(result.get("outcome") or "failed")
    if refused:
        outcome += ", 1 call refused" if len(refused) == 1 else f", {len(refused)} calls refused"
    return outcome, "\n".join(parts)[:_DETAIL_CHARS]


def _refused_calls(queued: QueuedMessage, store: SessionStore) -> list[str]:
    """Return the error texts of the tool calls that were refused during a run."""
    if queued.conversation_id is None:
        return []
    try:
        conversation = store.conversations.get(queued.conversation_id)
    except NotFound:
        return []
    entries = store.log.read(conversation.id, Span(1, conversation.last_seq)) if conversation.last_seq else ()
    return [entry.message.text for entry in entries if entry.message.tool_state == "refused"]


def _describe_refusals(refused: Sequence[str]) -> Iterator[str]:
    """Yield the rules that would allow the refused calls, then the reasons of the first ones."""
    rules = dict.fromkeys(rule for text in refused for rule in advance_rules(text))
    if rules:
        options = " ".join(f"--allow {shlex.quote(rule)}" for rule in list(rules)[:_MAX_REFUSALS])
        yield f"to allow what was refused, add the schedule again with: {options}"
    for text in refused[:_MAX_REFUSALS]:
        yield " ".join(text.split())[:_REFUSAL_CHARS]
    if len(refused) > _MAX_REFUSALS:
        yield f"and {len(refused) - _MAX_REFUSALS} more refused calls"
