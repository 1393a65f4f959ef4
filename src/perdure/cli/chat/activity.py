"""The state of a running turn, for display: the plan, delegated agents, running tools and their output, retries."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.cli.chat.tool_output import shorten_preview
from perdure.cli.style import Style, cut_row, safe
from perdure.commands.format import count
from perdure.core.display import call_target
from perdure.core.errors import kind_label
from perdure.core.events import (
    Event,
    HelperFinished,
    HelperStarted,
    RetryScheduled,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnStarted,
)
from perdure.core.messages import ToolCall

TARGET_CHARS = 60
_WAITING = "waiting for you"
_QUEUED = "waiting for its approval"
_PLAN_ROWS = 6
_PLAN_MARKS = {"completed": "✓", "in_progress": "▸", "cancelled": "–"}


@dataclass(slots=True)
class RunningCall:
    """A tool call without a result yet; `helper` is the agent whose call it is."""

    call: ToolCall
    began_s: float
    helper: str
    output: ToolOutput | None = None
    # Whether it runs only once its approval is given, and whether its question waits behind another one.
    is_asked: bool = False
    is_queued: bool = False


@dataclass(slots=True)
class Helper:
    """A delegated agent that is running, with a number in order of start."""

    number: int
    task: str
    began_s: float
    steps: int = 0
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class _Retry:
    reason: str
    attempt: int
    until_s: float


def named_call(call: ToolCall, max_chars: int = TARGET_CHARS) -> str:
    """Format a tool call in one line: the tool and its target."""
    call = call.dispatched
    return safe(f"{call.name} {call_target(call, max_chars=max(8, max_chars))}").rstrip()


def failure_label(state: str, exit_code: int | None) -> str:
    """Return a label for how an unsuccessful call ended: refused, failed, stopped or its exit code."""
    if state == "refused":
        return "refused"
    if state == "interrupted":
        return "stopped"
    return f"exit {exit_code}" if exit_code else "failed"


class Activity:
    """Tracks what is running in a turn, from its events. Used from one thread."""

    def __init__(
        self,
        ink: Style,
        *,
        tool_lines: int,
        clock_s: Callable[[], float] = time.monotonic,
        awaits_approval: Callable[[str], bool] = lambda call_id: False,
    ) -> None:
        self._ink = ink
        self._tool_lines = tool_lines
        self._clock_s = clock_s
        self._awaits_approval = awaits_approval
        self._calls: dict[tuple[str, str], RunningCall] = {}
        self._helpers: dict[str, Helper] = {}
        self._retry: _Retry | None = None
        self.plan: Sequence[Mapping[str, Any]] = ()
        self._conversation_id = ""
        self._is_working = False

    # -- events ------------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Update the state from an event; any event ends the display of a pending retry."""
        match event:
            case TurnStarted(conversation_id=conversation_id):
                self._is_working = True
                if conversation_id != self._conversation_id:
                    self.plan, self._conversation_id = (), conversation_id
            case ToolStarted(call=call, helper=helper):
                self._calls[helper, call.id] = RunningCall(call, self._clock_s(), helper)
            case ToolOutput(call=call, helper=helper):
                if (running := self._calls.get((helper, call.id))) is not None:
                    running.output = event
            case ToolFinished(call=call, helper=helper):
                self._calls.pop((helper, call.id), None)
                if helper in self._helpers:
                    self._helpers[helper].steps += 1
                elif call.name == "todo" and not event.is_error:
                    self.plan = _plan_of(call) or self.plan
            case HelperStarted(helper=helper, task=task):
                self._helpers[helper] = Helper(len(self._helpers) + 1, _one_line(task), self._clock_s())
            case HelperFinished(helper=helper):
                if helper in self._helpers:
                    self._helpers[helper].is_done = True
            case RetryScheduled():
                until_s = self._clock_s() + event.wait_s
                self._retry = _Retry(kind_label(event.verdict.kind), event.attempt, until_s)
                return
            case _:
                pass
        self._retry = None

    def hold(self, call_id: str) -> None:
        """Mark a call as waiting for approval."""
        for running in self._calls.values():
            running.is_asked = running.is_asked or running.call.id == call_id

    def release(self, call_id: str) -> None:
        """Mark a call as approved; its seconds count from now on."""
        for running in self._calls.values():
            if running.is_asked and running.call.id == call_id:
                running.is_asked, running.began_s = False, self._clock_s()

    def helper(self, helper: str) -> Helper | None:
        return self._helpers.get(helper)

    def is_running(self, call: ToolCall) -> bool:
        return ("", call.id) in self._calls

    def end(self) -> list[RunningCall]:
        """Forget everything but the plan at the end of a turn; return the calls that have no result."""
        unfinished = list(self._calls.values())
        self._calls.clear()
        self._helpers.clear()
        self._retry = None
        self._is_working = False
        return unfinished

    # -- what is drawn -----------------------------------------------------------------------------------------------

    def lines(self, width: int) -> list[str]:
        """Return the rows that show what is running, none wider than `width`."""
        self._follow_queue()
        return [*self._plan_rows(width), *self._helper_rows(width), *self._call_rows(width), *self._retry_rows(width)]

    def _follow_queue(self) -> None:
        """Note which calls wait for their approval; the seconds of one that no longer does count from now on."""
        for running in self._calls.values():
            was_queued, running.is_queued = running.is_queued, self._awaits_approval(running.call.id)
            if was_queued and not running.is_queued:
                running.began_s = self._clock_s()

    def _since(self, running: RunningCall) -> str:
        """Return how long a call has been running, or what it waits for."""
        if running.is_asked:
            return _WAITING
        return _QUEUED if running.is_queued else f"{self._clock_s() - running.began_s:.0f} s"

    def _plan_rows(self, width: int) -> Iterator[str]:
        if not self._is_working or is_plan_done(self.plan):
            return
        yield self._ink.dim(cut_row(plan_summary(self.plan), width))
        for mark, item in _visible_steps(self.plan):
            row = cut_row(f"  {mark} {safe(str(item.get('text', '')))}", width)
            yield self._ink.bold(row) if item.get("status") == "in_progress" else self._ink.dim(row)

    def _helper_rows(self, width: int) -> Iterator[str]:
        now_s = self._clock_s()
        for key, helper in self._helpers.items():
            if helper.is_done:
                continue
            calls = [running for (owner, _), running in self._calls.items() if owner == key]
            steps = f" · {helper.steps} step{'s' if helper.steps != 1 else ''}" if helper.steps else ""
            what = named_call(calls[-1].call, width // 3) if calls else "thinking"
            since = self._since(calls[-1]) if calls else f"{now_s - helper.began_s:.0f} s"
            row = f"◇ helper {helper.number}: {_short(helper.task, width // 3)}{steps} · {what} … {since}"
            yield self._ink.key(cut_row(row, width))

    def _call_rows(self, width: int) -> Iterator[str]:
        for running in self._calls.values():
            if running.helper in self._helpers:
                continue
            output = running.output
            lines = f" · {count(output.lines, 'line')}" if output is not None and output.lines > 1 else ""
            end = f" … {self._since(running)}{lines}"
            target = named_call(running.call, width - len(running.call.name) - len(end) - 4)
            yield self._ink.key(cut_row(f"● {target}", width - len(end)) + end)
            if output is not None:
                yield from shorten_preview(output, most=self._tool_lines, width=width, ink=self._ink)

    def _retry_rows(self, width: int) -> Iterator[str]:
        if self._retry is not None:
            left_s = max(0, math.ceil(self._retry.until_s - self._clock_s()))
            when = f"trying again in {left_s} s" if left_s else "trying again"
            yield self._ink.warn(cut_row(f"◌ {self._retry.reason}: {when} (attempt {self._retry.attempt})", width))

    @property
    def is_waiting(self) -> bool:
        """Whether there is something more specific to show than "thinking"."""
        return bool(self._calls or self._helpers or self._retry)


def plan_summary(plan: Sequence[Mapping[str, Any]]) -> str:
    """Format the plan in one line: `plan: 1 of 3 done · now: Fix the parser`."""
    done = sum(item.get("status") in ("completed", "cancelled") for item in plan)
    current = next((str(item.get("text", "")) for item in plan if item.get("status") == "in_progress"), "")
    return safe(f"plan: {done} of {len(plan)} done" + (f" · now: {_one_line(current)}" if current else ""))


def is_plan_done(plan: Sequence[Mapping[str, Any]]) -> bool:
    return all(item.get("status") in ("completed", "cancelled") for item in plan)


def plan_lines(plan: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for every step of the plan, with its mark."""
    return (f"  {_mark(item)} {safe(str(item.get('text', '')))}" for item in plan)


def _visible_steps(plan: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the steps of the plan around the current one."""
    first_open = next((n for n, item in enumerate(plan) if item.get("status") in ("in_progress", "pending")), 0)
    start = max(0, min(first_open - 1, len(plan) - _PLAN_ROWS))
    return [(_mark(item), item) for item in plan[start : start + _PLAN_ROWS]]


def _mark(item: Mapping[str, Any]) -> str:
    return _PLAN_MARKS.get(str(item.get("status")), "·")


def _plan_of(call: ToolCall) -> Sequence[Mapping[str, Any]]:
    items = (call.parsed_arguments() or {}).get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else ()


def _one_line(text: str) -> str:
    return " ".join(safe(text).split())


def _short(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
