"""Schedules: prompts that gateways run by the clock, and the record of their runs.

A run and its message in the inbox are inserted in the transaction that moves the schedule to its next due time, and
only if that is still the one the caller read. So each due time is run by one process, once; a process that dies leaves
either nothing or a message that another process claims.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from perdure.core.errors import NotFound, StoreError
from perdure.core.visibility import OWNER, AnyUser, user_from_key
from perdure.store.db.database import (
    Row,
    Transaction,
    insert,
    text,
    to_int,
    to_optional_int,
    to_optional_text,
    to_text,
    to_time_ms,
)
from perdure.store.inbox import InboundMessage, QueuedMessage, insert_message
from perdure.store.queries import StoreContext

T = TypeVar("T")

# Older runs of a schedule are deleted; their conversations stay.
MAX_RUNS = 100
_COLUMNS = (
    "id, name, user_key, prompt, every_ms, cron, timezone, model, allowed, created_at, next_at, missed, missed_since,"
    " folder"
)
_RUN_COLUMNS = (
    "schedule, due_at, is_manual, message, started_at, missed, missed_since, conversation, outcome, detail, finished_at"
)
_NAME_CHARS = 40
_NO_NAME = re.compile(r"[^\w]+")


class NameTaken(StoreError):
    """Raised when another schedule already has this name."""


@dataclass(frozen=True, slots=True)
class MissedRuns:
    """The number of due times that passed without a run, and the first of them."""

    count: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """The fields of a schedule to be added; it recurs by an interval or by a cron expression."""

    prompt: str
    timezone: str
    next_at_ms: int
    every_ms: int | None = None
    cron: str | None = None
    name: str | None = None
    model: str | None = None
    # Permission rules for calls that would need approval.
    allowed: tuple[str, ...] = ()
    user: AnyUser = OWNER
    # The folder that its runs work in; None: that of the process that runs them.
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A stored schedule; an interval counts from `created_at_ms`."""

    id: str
    name: str
    user: AnyUser
    prompt: str
    every_ms: int | None
    cron: str | None
    timezone: str
    model: str | None
    allowed: tuple[str, ...]
    created_at_ms: int
    next_at_ms: int
    # Not yet reported by a run.
    missed: MissedRuns | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """A run of a schedule; without an outcome while its message is pending."""

    schedule_id: str
    due_at_ms: int
    is_manual: bool
    message_id: str
    started_at_ms: int
    missed: MissedRuns | None = None
    conversation_id: str | None = None
    outcome: str | None = None
    # Why it failed, and which calls were refused.
    detail: str = ""
    finished_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run to be started. A manual run has `next_at_ms` None and leaves the schedule's next due time unchanged."""

    due_at_ms: int
    next_at_ms: int | None = None
    missed: MissedRuns | None = None


class Schedules:
    """Add, list and remove schedules; start and finish their runs."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def add(self, new: NewSchedule) -> Schedule:
        """Store a schedule, named after its prompt by default. Raises NameTaken."""

        def work(tx: Transaction) -> Schedule:
            names = {to_text(r[0]) for r in tx.rows("SELECT name FROM schedule")}
            if new.name is not None and text(new.name) in names:
                raise NameTaken(f"a schedule is called {new.name!r} already; choose another name, or remove it first")
            name = text(new.name) if new.name is not None else _free_name(new.prompt, names)
            schedule = Schedule(
                self._context.ids.new("sch_"), name, new.user, text(new.prompt), new.every_ms, new.cron,
                new.timezone, new.model, new.allowed, self._now, new.next_at_ms,
                folder=new.folder and text(new.folder),
            )  # fmt: skip
            insert(tx, "schedule", {
                "id": schedule.id, "name": name, "user_key": text(schedule.user.stored_key), "prompt": schedule.prompt,
                "every_ms": new.every_ms, "cron": new.cron, "timezone": text(new.timezone),
                "model": new.model and text(new.model), "allowed": json.dumps(new.allowed), "created_at": self._now,
                "next_at": new.next_at_ms, "missed": 0, "missed_since": None, "folder": schedule.folder,
            })  # fmt: skip
            return schedule

        return self._context.database.write(work)

    def all(self) -> list[Schedule]:
        """Return every schedule, the next due first."""
        return self._read(f"SELECT {_COLUMNS} FROM schedule ORDER BY next_at, name", (), _schedule)

    def due(self) -> list[Schedule]:
        """Return the schedules whose due time has come, the earliest first."""
        sql = f"SELECT {_COLUMNS} FROM schedule WHERE next_at <= ? ORDER BY next_at, name"
        return self._read(sql, (self._now,), _schedule)

    def get(self, name_or_id: str) -> Schedule:
        """Return a schedule by name or id. Raises NotFound."""
        sql = f"SELECT {_COLUMNS} FROM schedule WHERE name = ? OR id = ?"
        matches = self._read(sql, (text(name_or_id), text(name_or_id)), _schedule)
        if not matches:
            raise NotFound(f"no schedule is called {name_or_id!r}; `perdure schedule list` shows them")
        return matches[0]

    def remove(self, schedule: Schedule) -> bool:
        """Delete a schedule and the record of its runs; conversations and a running turn stay."""
        return self._context.database.write(lambda tx: tx.run("DELETE FROM schedule WHERE id = ?", (schedule.id,)) > 0)

    def start_run(
        self, schedule: Schedule, run: RunStart, inbound: InboundMessage, *, owner: str, ttl_ms: int
    ) -> QueuedMessage | None:
        """Store a run with its message, owned by the caller; None when another process was first."""

        def work(tx: Transaction) -> QueuedMessage | None:
            if run.next_at_ms is not None and not _move(tx, schedule, run.next_at_ms, missed=None):
                return None
            if tx.row("SELECT 1 FROM schedule WHERE id = ?", (schedule.id,)) is None:
                return None
            _delete_old_runs(tx, schedule.id)
            insert(tx, "schedule_run", {
                "schedule": schedule.id, "due_at": run.due_at_ms, "is_manual": int(run.next_at_ms is None),
                "message": inbound.id, "started_at": self._now, "missed": run.missed.count if run.missed else 0,
                "missed_since": run.missed.since_ms if run.missed else None, "conversation": None, "outcome": None,
                "detail": "", "finished_at": None,
            })  # fmt: skip
            return insert_message(tx, inbound, owner=owner, expires_at_ms=self._now + ttl_ms, now_ms=self._now)

        return self._context.database.write(work)

    def skip(self, schedule: Schedule, *, next_at_ms: int, missed: MissedRuns) -> bool:
        """Move a schedule to its next due time without a run; False when another process was first."""
        return self._context.database.write(lambda tx: _move(tx, schedule, next_at_ms, missed=missed))

    def runs(self, schedule: Schedule, *, limit: int = MAX_RUNS) -> list[ScheduleRun]:
        """Return the runs of a schedule, newest first."""
        sql = f"SELECT {_RUN_COLUMNS} FROM schedule_run WHERE schedule = ? ORDER BY due_at DESC LIMIT ?"
        return self._read(sql, (schedule.id, limit), _run)

    def open_runs(self) -> list[ScheduleRun]:
        """Return the runs without an outcome."""
        return self._read(f"SELECT {_RUN_COLUMNS} FROM schedule_run WHERE outcome IS NULL ORDER BY due_at", (), _run)

    def finish_run(self, run: ScheduleRun, *, outcome: str, detail: str = "", conversation_id: str | None) -> bool:
        """Record how a run ended; False when it has an outcome already."""
        sql = (
            "UPDATE schedule_run SET outcome = ?, detail = ?, conversation = ?, finished_at = ?"
            " WHERE schedule = ? AND due_at = ? AND outcome IS NULL"
        )
        values = (outcome, text(detail), conversation_id, self._now, run.schedule_id, run.due_at_ms)
        return self._context.database.write(lambda tx: tx.run(sql, values)) > 0

    @property
    def _now(self) -> int:
        return self._context.clock.now_ms()

    def _read(self, sql: str, values: tuple[str | int, ...], build: Callable[[Row], T]) -> list[T]:
        return [build(row) for row in self._context.database.read(lambda tx: tx.rows(sql, values))]


def _move(tx: Transaction, schedule: Schedule, next_at_ms: int, *, missed: MissedRuns | None) -> bool:
    """Set the schedule's next due time; return False if another process has changed it since it was read."""
    changed = tx.run(
        "UPDATE schedule SET next_at = ?, missed = ?, missed_since = ? WHERE id = ? AND next_at = ?",
        (
            next_at_ms,
            missed.count if missed else 0,
            missed.since_ms if missed else None,
            schedule.id,
            schedule.next_at_ms,
        ),
    )
    return changed > 0


def _delete_old_runs(tx: Transaction, schedule_id: str) -> None:
    """Delete the oldest runs beyond the limit, except those without an outcome."""
    tx.run(
        "DELETE FROM schedule_run WHERE schedule = ? AND outcome IS NOT NULL AND due_at <= (SELECT due_at FROM"
        " schedule_run WHERE schedule = ? ORDER BY due_at DESC LIMIT 1 OFFSET ?)",
        (schedule_id, schedule_id, MAX_RUNS - 1),
    )


def _free_name(prompt: str, names: set[str]) -> str:
    """Return a name made of the prompt's first words that no other schedule has."""
    words = _NO_NAME.sub("-", text(prompt[:200]).lower()).strip("-")
    base = words if len(words) <= _NAME_CHARS else words[:_NAME_CHARS].rpartition("-")[0] or words[:_NAME_CHARS]
    base = base or "schedule"
    number, name = 1, base
    while name in names:
        number += 1
        name = f"{base}-{number}"
    return name


def _parse_missed(count: object, since: object) -> MissedRuns | None:
    return MissedRuns(to_int(count), to_time_ms(since)) if to_int(count) > 0 else None


def _schedule(row: Row) -> Schedule:
    (
        ident, name, user_key, prompt, every_ms, cron, timezone, model, allowed, created_at, next_at, missed, since,
        folder,
    ) = row  # fmt: skip
    try:
        rules = json.loads(to_text(allowed))
    except ValueError:
        rules = []  # a damaged row allows nothing
    return Schedule(
        to_text(ident), to_text(name), user_from_key(to_text(user_key)), to_text(prompt), to_optional_int(every_ms),
        to_optional_text(cron), to_text(timezone), to_optional_text(model),
        tuple(map(str, rules)) if isinstance(rules, list) else (), to_time_ms(created_at), to_time_ms(next_at),
        _parse_missed(missed, since), to_optional_text(folder),
    )  # fmt: skip


def _run(row: Row) -> ScheduleRun:
    schedule, due_at, is_manual, message, started_at, missed, since, conversation, outcome, detail, finished_at = row
    return ScheduleRun(
        to_text(schedule), to_time_ms(due_at), bool(is_manual), to_text(message), to_time_ms(started_at),
        _parse_missed(missed, since), to_optional_text(conversation), to_optional_text(outcome), to_text(detail),
        to_optional_int(finished_at),
    )  # fmt: skip
