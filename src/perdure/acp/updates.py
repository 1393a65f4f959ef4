"""Build the session updates sent to an editor: while a turn runs, and when a stored conversation is loaded."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from acp import (
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message,
)
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    CurrentModeUpdate,
    FileEditToolCallContent,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    ToolKind,
    UsageUpdate,
    UserMessageChunk,
)

from perdure.acp.content import CallPresenter, ToolContent, message_blocks, plan_entries, text_content
from perdure.agent.callbacks import status_line
from perdure.core.display import cut_off_label
from perdure.core.events import (
    CallFinished,
    CallStarted,
    Event,
    ReasoningDelta,
    StatusChanged,
    TextDelta,
    ToolCallParsed,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.core.messages import Entry, Message, ToolCall
from perdure.core.ports import ApprovalRequest
from perdure.core.rules import find_call

SessionUpdate = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | SessionInfoUpdate
    | UsageUpdate
)

_TITLE_CHARS = 200


@dataclass(slots=True)
class _LiveCall:
    """A tool call that the editor displays: its id there, and its diff."""

    update_id: str
    title: str
    kind: ToolKind
    diff: list[FileEditToolCallContent] = field(default_factory=list)
    has_started: bool = False
    is_finished: bool = False


class TurnUpdates:
    """Translates the events of a conversation to session updates; remembers the tool calls of the running turn.

    Models reuse call ids, within a conversation and even within a turn. The editor's ids are unique: they have the
    number of the turn and of the call.
    """

    def __init__(self, presenter: CallPresenter) -> None:
        self._presenter = presenter
        self._calls: dict[tuple[str, str], _LiveCall] = {}
        self._prefix = ""
        self._count = 0
        self._window_tokens = 0

    def translate(self, event: Event) -> Iterator[SessionUpdate]:
        """Yield the updates for an event. Call it at the time of the event: a diff needs the file before the edit."""
        match event:
            case TurnStarted(task_id=task_id):
                self._prefix, self._count = task_id, 0
                self._calls.clear()
            case TextDelta(text):
                yield update_agent_message_text(text)
            case ReasoningDelta(text):
                yield update_agent_thought_text(text)
            case ToolCallParsed(call):
                yield self._start(call, "")
            case ToolStarted(call, helper):
                yield from self._begin(call, helper)
            case ToolOutput(call, first, last, helper=helper):
                yield from self._preview(call, helper, f"{first}\n…\n{last}" if last else first)
            case ToolFinished():
                yield from self._finish(event)
            case TurnFinished():
                yield from self._end_calls()
            case CallStarted(window_tokens=window_tokens):
                self._window_tokens = window_tokens
            # A failed call reports no tokens: the last figure stays.
            case CallFinished(usage=usage) if usage.reported and (used := usage.prompt_tokens + usage.output_tokens):
                yield UsageUpdate(session_update="usage_update", used=used, size=self._window_tokens)
            case StatusChanged():
                pass
            case _:
                if line := status_line(event):
                    yield update_agent_thought_text(f"[{line}]\n\n")

    def permission_call(self, request: ApprovalRequest) -> ToolCallUpdate:
        """Return the tool call to ask approval for, with what it does and the reason for asking."""
        live = next((c for (_, call_id), c in self._calls.items() if call_id == request.call_id), None)
        diff: list[ToolContent] = list(live.diff) if live is not None else []
        why = "\n\n".join(filter(None, (request.reason, request.covers)))
        action = [] if diff else text_content(request.action, is_code=True)
        return ToolCallUpdate(
            tool_call_id=live.update_id if live is not None else request.call_id or "approval",
            title=live.title if live is not None else request.action[:_TITLE_CHARS],
            status="pending",
            kind=live.kind if live is not None else None,
            content=[*diff, *action, *text_content(why)],
        )

    def await_permission(self, request: ToolCallUpdate) -> Iterator[SessionUpdate]:
        """Yield the update that marks the call as pending while the user is asked."""
        if any(call.update_id == request.tool_call_id for call in self._calls.values()):
            yield update_tool_call(request.tool_call_id, status="pending")

    def settle_permission(self, request: ToolCallUpdate) -> Iterator[SessionUpdate]:
        """Yield the update that marks the call as running after the user allowed it."""
        live = next((c for c in self._calls.values() if c.update_id == request.tool_call_id), None)
        if live is not None:
            yield update_tool_call(live.update_id, status="in_progress", content=live.diff)

    def _start(self, call: ToolCall, helper: str) -> ToolCallStart:
        self._count += 1
        title, kind = self._presenter.title(call), self._presenter.kind(call)
        live = _LiveCall(f"{self._prefix}-{self._count}", title, kind)
        live.diff = self._presenter.diff(call, reads_file=True)
        self._calls[helper, call.id] = live
        return start_tool_call(
            live.update_id,
            title,
            kind=kind,
            status="pending",
            content=live.diff,
            locations=self._presenter.locations(call),
            raw_input=call.parsed_arguments() or {},
        )

    def _begin(self, call: ToolCall, helper: str) -> Iterator[SessionUpdate]:
        live = self._calls.get((helper, call.id))
        if live is None or live.has_started:
            yield self._start(call, helper)
            live = self._calls[helper, call.id]
        live.has_started = True
        if live.diff:  # another call of the turn may have changed the file since
            live.diff = self._presenter.diff(call, reads_file=True)
        yield update_tool_call(live.update_id, status="in_progress", content=live.diff or None)

    def _preview(self, call: ToolCall, helper: str, text: str) -> Iterator[SessionUpdate]:
        live = self._calls.get((helper, call.id))
        if live is not None:
            yield update_tool_call(live.update_id, content=text_content(text, is_code=True))

    def _finish(self, event: ToolFinished) -> Iterator[SessionUpdate]:
        call, live = event.call, self._calls.get((event.helper, event.call.id))
        if live is None:
            return
        is_done, live.is_finished = event.state == "completed", True
        yield _finished_update(self._presenter, live.update_id, call, event.result, live.diff if is_done else [])
        items = (call.parsed_arguments() or {}).get("items")
        if call.name == "todo" and is_done and not event.helper and items is not None:
            yield update_plan(plan_entries(items))

    def _end_calls(self) -> Iterator[SessionUpdate]:
        """Yield the updates that end calls without a result: cut off, or parsed from a reply that was dropped."""
        for live in self._calls.values():
            if not live.is_finished:
                live.is_finished = True
                yield update_tool_call(live.update_id, status="failed")


def _finished_update(
    presenter: CallPresenter,
    update_id: str,
    call: ToolCall,
    result: Message,
    diff: Sequence[FileEditToolCallContent],
) -> ToolCallProgress:
    is_done = result.tool_state in ("completed", None)
    return update_tool_call(
        update_id,
        status="completed" if is_done else "failed",
        content=presenter.result(call, result.text, diff if is_done else ()),
    )


def history_updates(entries: Sequence[Entry], presenter: CallPresenter) -> Iterator[SessionUpdate]:
    """Yield a stored conversation as updates, in order: messages of both sides, and each tool call with its result."""
    calls: tuple[ToolCall, ...] = ()
    ids: dict[int, str] = {}
    for number, entry in enumerate(entries):
        message = entry.message
        if message.is_real_user:
            yield from (update_user_message(block) for block in message_blocks(message))
        elif message.role == "assistant" and message.kind == "assistant":
            if message.reasoning:
                yield update_agent_thought_text(message.reasoning)
            if message.text.strip():
                yield update_agent_message_text(message.text)
            if label := cut_off_label(message):
                yield update_agent_thought_text(f"[{label}]\n\n")
            calls = message.tool_calls
            ids = {id(call): f"m{entry.seq}-{n}" for n, call in enumerate(calls, 1)}
            results = takewhile(
                lambda e: e.message.role == "tool", (entries[i] for i in range(number + 1, len(entries)))
            )
            answered_ids = {e.message.tool_call_id for e in results} if calls else set()
            for call in calls:
                yield _stored_call(presenter, ids[id(call)], call, has_result=call.id in answered_ids)
        elif message.role == "tool" and (stored := find_call(calls, message.tool_call_id)) is not None:
            diff = presenter.diff(stored, reads_file=False)
            yield _finished_update(presenter, ids[id(stored)], stored, message, diff)


def _stored_call(presenter: CallPresenter, update_id: str, call: ToolCall, *, has_result: bool) -> ToolCallStart:
    return start_tool_call(
        update_id,
        presenter.title(call),
        kind=presenter.kind(call),
        # A call that a crash cut off has no result, and never gets one.
        status="in_progress" if has_result else "failed",
        locations=presenter.locations(call),
        raw_input=call.parsed_arguments() or {},
    )


# Text that waits for a slow editor is merged into chunks of about this size.
_MERGED_CHARS = 8_000


class UpdateQueue:
    """Sends session updates in order. `put` queues one without waiting; `flush` waits until all are sent."""

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: collections.deque[SessionUpdate] = collections.deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, update: SessionUpdate) -> None:
        merged = _merge(self._waiting[-1], update) if self._waiting else None
        if merged is not None:
            self._waiting[-1] = merged
        else:
            self._waiting.append(update)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            try:
                await self._send(self._waiting.popleft())
            except ConnectionError:  # the editor is gone; the process ends as soon as its input does
                self._waiting.clear()


def _merge(first: SessionUpdate, second: SessionUpdate) -> SessionUpdate | None:
    """Join two chunks of the same message text into one update; None for other pairs."""
    match first, second:
        case AgentMessageChunk(), AgentMessageChunk():
            text = _joined_text(first.content, second.content)
            return update_agent_message_text(text) if text is not None else None
        case AgentThoughtChunk(), AgentThoughtChunk():
            text = _joined_text(first.content, second.content)
            return update_agent_thought_text(text) if text is not None else None
        case _:
            return None


def _joined_text(first: object, second: object) -> str | None:
    if not isinstance(first, TextContentBlock) or not isinstance(second, TextContentBlock):
        return None
    return first.text + second.text if len(first.text) < _MERGED_CHARS else None
