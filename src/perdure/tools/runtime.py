"""Run tool calls: hooks, approval, concurrency, timeouts; every failure becomes a result."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from perdure.core.concurrency import (
    CancelToken,
    await_foreign,
    describe_error,
    run_abandonable,
    run_foreign,
    run_shielded,
)
from perdure.core.display import join_preview
from perdure.core.errors import ToolError, ToolRefused
from perdure.core.events import Event, OutputSpilled, ToolFinished, ToolOutput, ToolStarted
from perdure.core.messages import Message, TextPart, ToolCall, ToolState, clean, tool_result
from perdure.core.ports import Checkpoints, Clock, Outputs, OutputSink, StoredOutput
from perdure.core.visibility import OWNER, AnyUser
from perdure.tools.builtin.terminal import BackgroundProcess
from perdure.tools.checkpoints import FileSnapshot
from perdure.tools.deferred import DeferredTools
from perdure.tools.hooks import Hooks
from perdure.tools.output_limits import OutputLimiter, OutputLimits, ToolOutcome
from perdure.tools.permissions import Permissions
from perdure.tools.return_values import collect_items
from perdure.tools.tool import (
    OutputPreview,
    Tool,
    ToolContext,
    ToolRegistry,
    ToolReply,
    to_reply,
    validate_arguments,
)
from perdure.tools.workspace import Workspace
from perdure.tools.workspace_copies import CommandSnapshot, WorkspaceCopies

_log = logging.getLogger(__name__)
# How long a cancelled async handler may take to clean up.
_CANCEL_GRACE_S = 2.0


INTERRUPTED = "[Interrupted before it finished: the outcome of this call is unknown. Check before you run it again.]"
DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ToolScope:
    """The task, conversation and user on whose behalf tool calls run."""

    task_id: str = ""
    conversation_id: str = ""
    user: AnyUser = OWNER
    # The output limits of the model's window; None: those of the runtime.
    limits: OutputLimits | None = None
    # The call that is being checked; "" for all of them.
    call_id: str = ""


class Guard(Protocol):
    """Decides whether a tool call may run (port); `ApprovalGuard` implements it."""

    async def check(self, tool: Tool, arguments: Mapping[str, Any], scope: ToolScope) -> None:
        """Return if the call may run; raise ToolError with the reason if not."""
        ...


class ToolRuntime:
    """Everything tool calls need: registry, hooks, guard, output limits, checkpoints.

    `batch()` runs the calls of one message.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        clock: Clock,
        output_limiter: OutputLimiter | None = None,
        outputs: Outputs | None = None,
        hooks: Hooks | None = None,
        guard: Guard | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        processes: Callable[[], Sequence[BackgroundProcess]] = lambda: (),
        permissions: Permissions | None = None,
        checkpoints: Checkpoints | None = None,
        workspace: Workspace | None = None,
        copies: WorkspaceCopies | None = None,
        deferred: DeferredTools | None = None,
    ) -> None:
        self.registry = registry
        self.clock = clock
        self.output_limiter = output_limiter or OutputLimiter(outputs)
        self.outputs = outputs
        self.hooks = hooks or Hooks()
        self.guard = guard
        self.timeout_s = timeout_s
        # The commands that run in the background, for surfaces that show them.
        self.processes = processes
        # The mode and rules that the guard follows; a surface may change the mode.
        self.permissions = permissions or Permissions()
        # Where files are copied to before they are changed, and the folder their paths are relative to.
        self.checkpoints = checkpoints
        self.workspace = workspace
        # The files of that folder before a shell command; the agents of a folder share them.
        self.copies = copies
        # Tools whose schemas are not sent; None: all are.
        self.deferred = deferred

    def offer(self) -> list[dict[str, Any]]:
        """Return the tool schemas to send to the model; they are the same as long as the tools are."""
        return self.registry.schemas() if self.deferred is None else self.deferred.offer(self.registry)

    def resolve(self, call: ToolCall) -> ToolCall:
        """Return the call to run: for a `use_tool` call, the call of the tool it names."""
        return call if self.deferred is None else self.deferred.resolve(call, self.registry)

    def batch(
        self, calls: Sequence[ToolCall], scope: ToolScope, on_event: Callable[[Event], None] = lambda _: None
    ) -> Batch:
        return Batch(self, calls, scope=scope, on_event=on_event)


class Batch:
    """Runs the tool calls of one assistant message concurrently and collects their results."""

    def __init__(
        self, runtime: ToolRuntime, calls: Sequence[ToolCall], *, scope: ToolScope, on_event: Callable[[Event], None]
    ) -> None:
        self._runtime = runtime
        # As the model made them, and the calls they stand for: the same ids, in the same order.
        self._requested = calls
        self._calls = [runtime.resolve(call) for call in calls]
        self._scope = scope
        self._emit = on_event
        limiter = runtime.output_limiter
        self._limiter = limiter if scope.limits is None else limiter.within(scope.limits)
        self._outcomes: list[ToolOutcome | None] = [None] * len(calls)
        self._tokens = [CancelToken() for _ in calls]
        self._seconds: dict[str, float] = {}
        # How long each call waited for the guard, which may ask a person.
        self._approval_s: dict[str, float] = {}
        # The last output preview of each call, by call id.
        self._previews: dict[str, OutputPreview] = {}

    async def run(self) -> list[Message]:
        """Return every result in call order. Cancellation stops the running calls before it propagates."""
        try:
            if len(self._calls) == 1 or any(self._is_interactive(c) for c in self._calls):
                for i in range(len(self._calls)):
                    await self._run_one(i)
            else:
                async with asyncio.TaskGroup() as group:
                    for positions in self._independent():
                        group.create_task(self._run_in_order(positions))
        except BaseException:
            for token in self._tokens:
                token.cancel()
            raise
        finished = [o for o in self._outcomes if o is not None]
        limited = finished
        if self._limiter.exceeds_turn(finished):
            limited = await asyncio.to_thread(self._limiter.limit_turn, finished, self._scope.conversation_id)
        self._announce_spills(finished, limited)
        in_order = iter(limited)
        self._outcomes = [next(in_order) if o is not None else None for o in self._outcomes]
        return self.results()

    def results(self) -> list[Message]:
        """Return a result for every call, in call order; an unfinished call gets an "interrupted" one."""
        return [
            _as_message(call, o) if o is not None else self._interrupted_result(call)
            for call, o in zip(self._requested, self._outcomes, strict=True)
        ]

    @property
    def seconds(self) -> Mapping[str, float]:
        """Duration of each finished call, by call id."""
        return self._seconds

    def states(self) -> Mapping[str, ToolState]:
        """Return the final state of each call by id; an unfinished call is interrupted."""
        return {c.id: _state_of(o) for c, o in zip(self._calls, self._outcomes, strict=True)}

    def exit_codes(self) -> Mapping[str, int]:
        """Return the exit codes of commands that ran to completion, by call id."""
        pairs = [(c.id, o.reply.exit_code) for c, o in zip(self._calls, self._outcomes, strict=True) if o]
        return {call_id: code for call_id, code in pairs if code is not None}

    def spills(self) -> list[tuple[ToolCall, StoredOutput]]:
        """Return the stored outputs, whether an output limit or the tool itself stored them."""
        pairs = [(c, o.spilled or o.reply.stored) for c, o in zip(self._calls, self._outcomes, strict=True) if o]
        return [(call, stored) for call, stored in pairs if stored is not None]

    def _interrupted_result(self, call: ToolCall) -> Message:
        """Return the result of an interrupted call, with its last output preview."""
        preview = self._previews.get(call.id)
        reply = ToolReply(INTERRUPTED, is_error=True)
        if preview is not None:
            printed = clean(join_preview(preview.first, preview.last))
            reply = replace(reply, text=f"{INTERRUPTED}\nIt had printed by then:\n{printed}")
            reply = self._runtime.hooks.apply_post_hooks(call, reply)
        return tool_result(call.id, reply.text, call.name, state="interrupted")

    def _is_interactive(self, call: ToolCall) -> bool:
        return call.name in self._runtime.registry and self._runtime.registry.find(call.name).is_interactive

    def _independent(self) -> list[list[int]]:
        """Return the positions of the calls in groups; calls of one group change the same thing and run in order."""
        groups: dict[object, list[int]] = {}
        for i, call in enumerate(self._calls):
            groups.setdefault(self._find_change_key(call) or i, []).append(i)
        return list(groups.values())

    def _find_change_key(self, call: ToolCall) -> tuple[str, str] | None:
        """Return a key of what a call changes (a file, or the tool's state), by which calls depend on each other.

        None if nothing.
        """
        if call.name not in self._runtime.registry:
            return None
        tool = self._runtime.registry.find(call.name)
        if tool.is_ordered:
            return ("tool", tool.name)
        parameter = tool.written_path_parameter
        path = (call.parsed_arguments() or {}).get(parameter) if parameter else None
        return ("file", os.path.normpath(path)) if isinstance(path, str) and path else None

    async def _run_in_order(self, positions: Sequence[int]) -> None:
        for i in positions:
            await self._run_one(i)

    async def _run_one(self, i: int) -> None:
        call, runtime = self._calls[i], self._runtime
        self._emit(ToolStarted(call))
        started_s = runtime.clock.monotonic_s()
        outcome = await self._outcome(call, self._tokens[i])
        limited = await self._limit(outcome)
        self._outcomes[i] = limited
        self._announce_spills([outcome], [limited])
        elapsed_s = runtime.clock.monotonic_s() - started_s
        seconds = self._seconds[call.id] = elapsed_s - self._approval_s.get(call.id, 0.0)
        result, reply = _as_message(self._requested[i], limited), limited.reply
        self._emit(
            ToolFinished(
                call,
                result,
                seconds,
                is_error=reply.is_error,
                state=_state_of(limited),
                exit_code=reply.exit_code,
                is_registered=limited.tool is not None,
                diff=reply.diff,
            )
        )

    async def _outcome(self, call: ToolCall, token: CancelToken) -> ToolOutcome:
        tool: Tool | None = None
        try:
            tool = self._runtime.registry.find(call.name)
            reply = await await_foreign(self._reply(tool, call, token))
        except ToolError as error:
            reply = ToolReply(f"Error: {error}", is_error=True, is_refused=isinstance(error, ToolRefused))
        except Exception as error:  # handlers are user code: report the failure to the model
            reply = ToolReply(clean(f"Error: {call.name} failed: {describe_error(error)}"), is_error=True)
        return ToolOutcome(tool, call.id, self._runtime.hooks.apply_post_hooks(call, reply))

    async def _reply(self, tool: Tool, call: ToolCall, token: CancelToken) -> ToolReply:
        arguments = parse_arguments(call)
        if (reason := self._runtime.hooks.stop_reason(call, arguments)) is not None:
            raise ToolRefused(f"{call.name} was stopped by a hook: {reason}")
        if tool.arguments is not None:
            values = tool.arguments.validate(tool.name, arguments)
        else:
            values = await asyncio.to_thread(validate_arguments, tool.name, tool.parameters, arguments)
        await self._check_permission(tool, call, values)
        if tool.context_parameter:
            values[tool.context_parameter] = self._context(call, token)
        timeout_s = tool.timeout_s or self._runtime.timeout_s
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                snapshot = await self._snapshot(tool, values)
                try:
                    result = await _call_handler(tool, values)
                    # In a thread: a value may be large, and runs code of its own to become text.
                    return to_reply(result) if type(result) is str else await run_foreign(to_reply, result)
                finally:
                    if snapshot is not None:
                        await run_shielded(snapshot.record)
        except Exception:
            if deadline.expired():
                raise ToolError(f"{call.name} was stopped: it took longer than {timeout_s:g} s") from None
            raise
        finally:
            # Done, timed out or cancelled: nothing of this call may keep running.
            token.cancel()

    async def _snapshot(self, tool: Tool, values: Mapping[str, Any]) -> FileSnapshot | CommandSnapshot | None:
        """Read the file that the call will change, or those that a command could change, for a checkpoint."""
        checkpoints, workspace, copies = self._runtime.checkpoints, self._runtime.workspace, self._runtime.copies
        if checkpoints is None or workspace is None or not self._scope.conversation_id:
            return None
        if tool.command_parameter is not None and copies is not None:
            return await asyncio.to_thread(CommandSnapshot, checkpoints, self._scope.conversation_id, copies)
        path = values.get(tool.written_path_parameter) if tool.written_path_parameter is not None else None
        if not isinstance(path, str):
            return None
        try:
            target = workspace.resolve(path)
        except ToolError:  # the tool itself reports it
            return None
        return await asyncio.to_thread(FileSnapshot, checkpoints, self._scope.conversation_id, target)

    async def _check_permission(self, tool: Tool, call: ToolCall, values: Mapping[str, Any]) -> None:
        """Ask the guard whether the call may run. Raises ToolRefused with its reason."""
        if self._runtime.guard is None:
            return
        clock, started_s = self._runtime.clock, self._runtime.clock.monotonic_s()
        try:
            await self._runtime.guard.check(tool, values, replace(self._scope, call_id=call.id))
        except ToolError as error:
            raise ToolRefused(str(error)) from None
        finally:
            self._approval_s[call.id] = clock.monotonic_s() - started_s

    def _context(self, call: ToolCall, token: CancelToken) -> ToolContext:
        outputs, scope = self._runtime.outputs, self._scope

        def open_sink() -> OutputSink:
            assert outputs is not None
            return outputs.begin(scope.conversation_id, call.id)

        return ToolContext(
            call_id=call.id,
            task_id=scope.task_id,
            conversation_id=scope.conversation_id,
            user=scope.user,
            cancel=token,
            open_sink=open_sink if outputs is not None else None,
            max_result_chars=self._limiter.limits.result_chars,
            show_output=self._preview_emitter(call, token),
        )

    def _preview_emitter(self, call: ToolCall, token: CancelToken) -> Callable[[OutputPreview], None]:
        """Return a function that emits previews on the event loop, until the call has ended."""
        loop = asyncio.get_running_loop()

        def emit(preview: OutputPreview) -> None:
            if not token.is_cancelled:
                self._emit(ToolOutput(call, preview.first, preview.last, preview.lines))

        def show(preview: OutputPreview) -> None:
            self._previews[call.id] = preview
            if not loop.is_closed():
                loop.call_soon_threadsafe(emit, preview)

        return show

    async def _limit(self, outcome: ToolOutcome) -> ToolOutcome:
        if len(outcome.reply.text) <= self._limiter.limits.preview_chars:
            return outcome
        return await asyncio.to_thread(self._limiter.limit_result, outcome, self._scope.conversation_id)

    def _announce_spills(self, before: Sequence[ToolOutcome], after: Sequence[ToolOutcome]) -> None:
        by_id = {c.id: c for c in self._calls}
        for old, new in zip(before, after, strict=True):
            stored = new.spilled if new.spilled is not old.spilled else None
            if stored is not None and new.call_id in by_id:
                self._emit(OutputSpilled(by_id[new.call_id], stored.address, stored.chars))


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Parse the arguments as a JSON object. Raises ToolError with the position of the syntax error."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError as error:
        raise ToolError(f"the arguments of {call.name} are not valid JSON ({error}); send them again, whole") from None
    if not isinstance(arguments, dict):
        raise ToolError(f"the arguments of {call.name} must be a JSON object, not {type(arguments).__name__}")
    return arguments


async def _call_handler(tool: Tool, values: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(tool.handler):
        result = await _in_task(tool.handler(**values))
    else:
        result = await run_abandonable(lambda: tool.handler(**values), name="perdure-tool")
        result = await _in_task(result) if inspect.isawaitable(result) else result
    if isinstance(result, Iterator | AsyncIterator):
        return await _in_task(collect_items(result, name=tool.name))
    return result


async def _in_task(work: Awaitable[Any]) -> Any:
    """Await an async handler in its own task, so that cancelling the current task inside it cancels this call only.

    A handler that suppresses CancelledError does not delay the interrupt of the turn beyond a short grace period.
    """
    handler = asyncio.create_task(_await_handler(work))
    try:
        await asyncio.wait({handler})
    except asyncio.CancelledError:
        handler.cancel()
        # A handler that suppresses the cancellation, or hangs while cleaning up, is abandoned.
        await asyncio.wait({handler}, timeout=_CANCEL_GRACE_S)
        handler.add_done_callback(_discard_result)
        raise
    return handler.result()


def _discard_result(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def _await_handler(work: Awaitable[Any]) -> Any:
    return await await_foreign(work)


def _state_of(outcome: ToolOutcome | None) -> ToolState:
    if outcome is None:
        return "interrupted"
    if outcome.reply.is_refused:
        return "refused"
    return "failed" if outcome.reply.is_error else "completed"


def _as_message(call: ToolCall, outcome: ToolOutcome) -> Message:
    reply = outcome.reply
    message = tool_result(call.id, reply.text, call.name, state=_state_of(outcome))
    return message.with_content((TextPart(reply.text), *reply.parts)) if reply.parts else message
