"""Run tool calls: hooks, approval, concurrency, timeouts; every failure becomes a result."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.core.errors import ToolError, ToolRefused
from perdure.core.events import Event, OutputSpilled, ToolFinished, ToolStarted, ToolState
from perdure.core.foreign_code import await_foreign, call_foreign, describe_error
from perdure.core.messages import Message, TextPart, ToolCall, clean, tool_result
from perdure.core.ports import Clock, Outputs, OutputSink, StoredOutput
from perdure.tools.output_limits import OutputLimiter, ToolOutcome
from perdure.tools.registry import ToolRegistry
from perdure.tools.tool import CancelToken, Tool, ToolContext, ToolReply, check_by_schema

# Before: None lets the call run, a text stops it and is what the model reads.
PreToolCall = Callable[[ToolCall, Mapping[str, Any]], str | None]
# After: None keeps the reply, a reply takes its place.
PostToolCall = Callable[[ToolCall, ToolReply], ToolReply | None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hooks:
    """In the order they were added. One that raises is logged and passed over: it never breaks a turn."""

    pre_tool_call: list[PreToolCall] = field(default_factory=list)
    post_tool_call: list[PostToolCall] = field(default_factory=list)

    def stop_reason(self, call: ToolCall, arguments: Mapping[str, Any]) -> str | None:
        """Why the call must not run, or None."""
        for hook in self.pre_tool_call:
            try:
                reason = call_foreign(hook, call, arguments)
            except Exception:  # somebody else's code: the turn must survive it
                _log.exception("pre_tool_call hook %r failed on %s", hook, call.name)
                continue
            if reason is not None:
                return reason
        return None

    def reviewed(self, call: ToolCall, reply: ToolReply) -> ToolReply:
        """The reply after every hook has seen it."""
        for hook in self.post_tool_call:
            try:
                changed = call_foreign(hook, call, reply)
            except Exception:  # somebody else's code: the turn must survive it
                _log.exception("post_tool_call hook %r failed on %s", hook, call.name)
                continue
            if isinstance(changed, ToolReply):
                reply = changed
            elif changed is not None:
                _log.error("post_tool_call hook %r returned %s, not a ToolReply", hook, type(changed).__name__)
        return reply


INTERRUPTED = "[Interrupted before it finished: the outcome of this call is unknown. Check before you run it again.]"
DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ToolScope:
    """Whose calls these are."""

    task_id: str = ""
    conversation_id: str = ""
    user_key: str = ""


class Guard(Protocol):
    """Decides whether a call may run."""

    async def check(self, tool: Tool, arguments: Mapping[str, Any], scope: ToolScope) -> None:
        """Returns where it may; raises ToolError with the reason where it may not."""
        ...


class ToolRuntime:
    """Everything a call needs, wired once; `batch()` makes one run of it."""

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        clock: Clock,
        budgets: OutputLimiter | None = None,
        outputs: Outputs | None = None,
        hooks: Hooks | None = None,
        guard: Guard | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.registry = registry
        self.clock = clock
        self.budgets = budgets or OutputLimiter(outputs)
        self.outputs = outputs
        self.hooks = hooks or Hooks()
        self.guard = guard
        self.timeout_s = timeout_s

    def batch(
        self, calls: Sequence[ToolCall], scope: ToolScope, on_event: Callable[[Event], None] = lambda _: None
    ) -> Batch:
        return Batch(self, calls, scope=scope, on_event=on_event)


class Batch:
    """The calls of one assistant message, from first start to last result."""

    def __init__(
        self, runtime: ToolRuntime, calls: Sequence[ToolCall], *, scope: ToolScope, on_event: Callable[[Event], None]
    ) -> None:
        self._runtime = runtime
        self._calls = calls
        self._scope = scope
        self._emit = on_event
        self._outcomes: list[ToolOutcome | None] = [None] * len(calls)
        self._tokens = [CancelToken() for _ in calls]
        self._seconds: dict[str, float] = {}

    async def run(self) -> list[Message]:
        """Every result, in call order. On cancellation everything running is stopped before it propagates."""
        try:
            if len(self._calls) == 1 or any(self._is_interactive(c) for c in self._calls):
                for i in range(len(self._calls)):
                    await self._run_one(i)
            else:
                async with asyncio.TaskGroup() as group:
                    for i in range(len(self._calls)):
                        group.create_task(self._run_one(i))
        except BaseException:
            for token in self._tokens:
                token.cancel()
            raise
        finished = [o for o in self._outcomes if o is not None]
        fitted = await asyncio.to_thread(self._runtime.budgets.fit_turn, finished, self._scope.conversation_id)
        self._announce_spills(finished, fitted)
        in_order = iter(fitted)
        self._outcomes = [next(in_order) if o is not None else None for o in self._outcomes]
        return self.results()

    def results(self) -> list[Message]:
        """A result for every call, finished or not, in call order."""
        return [_as_message(call, o) for call, o in zip(self._calls, self._outcomes, strict=True)]

    @property
    def seconds(self) -> Mapping[str, float]:
        """How long each finished call took, by its id."""
        return self._seconds

    def states(self) -> Mapping[str, ToolState]:
        """How each call ended, by its id; one that was cut off is interrupted."""
        return {c.id: _state_of(o) for c, o in zip(self._calls, self._outcomes, strict=True)}

    def exit_codes(self) -> Mapping[str, int]:
        """The exit codes of commands that ran to their end, by the call's id."""
        found = [(c.id, o.reply.exit_code) for c, o in zip(self._calls, self._outcomes, strict=True) if o]
        return {call_id: code for call_id, code in found if code is not None}

    def spills(self) -> list[tuple[ToolCall, StoredOutput]]:
        """The outputs that lie elsewhere, whoever put them there: a budget, or the tool itself while it ran."""
        found = [(c, o.spilled or o.reply.stored) for c, o in zip(self._calls, self._outcomes, strict=True) if o]
        return [(call, stored) for call, stored in found if stored is not None]

    def _is_interactive(self, call: ToolCall) -> bool:
        return call.name in self._runtime.registry and self._runtime.registry.find(call.name).is_interactive

    async def _run_one(self, i: int) -> None:
        call, runtime = self._calls[i], self._runtime
        self._emit(ToolStarted(call))
        started_s = runtime.clock.monotonic_s()
        outcome = await self._outcome(call, self._tokens[i])
        fitted = await self._within_budget(outcome)
        self._outcomes[i] = fitted
        self._announce_spills([outcome], [fitted])
        seconds = self._seconds[call.id] = runtime.clock.monotonic_s() - started_s
        result, reply = _as_message(call, fitted), fitted.reply
        self._emit(
            ToolFinished(
                call,
                result,
                seconds,
                is_error=reply.is_error,
                state=_state_of(fitted),
                exit_code=reply.exit_code,
                is_registered=fitted.tool is not None,
            )
        )

    async def _outcome(self, call: ToolCall, token: CancelToken) -> ToolOutcome:
        tool: Tool | None = None
        try:
            tool = self._runtime.registry.find(call.name)
            reply = await await_foreign(self._reply(tool, call, token))
        except ToolError as error:
            reply = ToolReply(f"Error: {error}", is_error=True, is_refused=isinstance(error, ToolRefused))
        except Exception as error:  # a handler is anybody's code: its failure is for the model to read
            reply = ToolReply(clean(f"Error: {call.name} failed: {describe_error(error)}"), is_error=True)
        return ToolOutcome(tool, call.id, self._runtime.hooks.reviewed(call, reply))

    async def _reply(self, tool: Tool, call: ToolCall, token: CancelToken) -> ToolReply:
        given = read_arguments(call)
        if (reason := self._runtime.hooks.stop_reason(call, given)) is not None:
            raise ToolRefused(f"{call.name} was stopped by a hook: {reason}")
        check = tool.arguments.check if tool.arguments else None
        values = check(tool.name, given) if check else check_by_schema(tool.name, tool.parameters, given)
        if self._runtime.guard is not None:
            try:
                await self._runtime.guard.check(tool, values, self._scope)
            except ToolError as error:
                raise ToolRefused(str(error)) from None
        if tool.context_parameter:
            values[tool.context_parameter] = self._context(call, token)
        timeout_s = tool.timeout_s or self._runtime.timeout_s
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                return as_reply(await _called(tool, values))
        except Exception:
            if deadline.expired():
                raise ToolError(f"{call.name} was stopped: it took longer than {timeout_s:g} s") from None
            raise
        finally:
            # Whether done, timed out or cancelled: nothing of this call may go on running.
            token.cancel()

    def _context(self, call: ToolCall, token: CancelToken) -> ToolContext:
        outputs, scope = self._runtime.outputs, self._scope

        def open_sink() -> OutputSink:
            assert outputs is not None
            return outputs.begin(scope.conversation_id, call.id)

        return ToolContext(
            call_id=call.id,
            task_id=scope.task_id,
            conversation_id=scope.conversation_id,
            user_key=scope.user_key,
            cancel=token,
            open_sink=open_sink if outputs is not None else None,
        )

    async def _within_budget(self, outcome: ToolOutcome) -> ToolOutcome:
        if len(outcome.reply.text) <= self._runtime.budgets.limits.preview_chars:
            return outcome
        return await asyncio.to_thread(self._runtime.budgets.fit_one, outcome, self._scope.conversation_id)

    def _announce_spills(self, before: Sequence[ToolOutcome], after: Sequence[ToolOutcome]) -> None:
        by_id = {c.id: c for c in self._calls}
        for old, new in zip(before, after, strict=True):
            stored = new.spilled if new.spilled is not old.spilled else None
            if stored is not None and new.call_id in by_id:
                self._emit(OutputSpilled(by_id[new.call_id], stored.address, stored.chars))


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object. Raises ToolError that says where the JSON breaks."""
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError as error:
        raise ToolError(f"the arguments of {call.name} are not valid JSON ({error}); send them again, whole") from None
    if not isinstance(given, dict):
        raise ToolError(f"the arguments of {call.name} must be a JSON object, not {type(given).__name__}")
    return given


def as_reply(value: Any) -> ToolReply:
    """Whatever a handler returned, as text: bytes are decoded, values become JSON, nothing says so."""
    if isinstance(value, ToolReply):
        return value
    if isinstance(value, str):
        return ToolReply(clean(value))
    if isinstance(value, bytes | bytearray):
        return ToolReply(bytes(value).decode("utf-8", "replace"))
    if value is None:
        return ToolReply("(done, no output)")
    return ToolReply(clean(json.dumps(value, ensure_ascii=False, default=str)))


async def _called(tool: Tool, values: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(tool.handler):
        return await _in_task(tool.handler(**values))
    result = await _in_thread(lambda: tool.handler(**values))
    return await _in_task(result) if inspect.isawaitable(result) else result


async def _in_task(work: Awaitable[Any]) -> Any:
    """Await an async handler in a task of its own, so that cancelling "the current task" there cancels the call alone.

    A handler that suppresses its cancellation does not suppress the interrupt of the turn.
    """
    turn = asyncio.current_task()
    try:
        return await asyncio.create_task(_awaited(work))
    finally:
        if turn is not None and turn.cancelling():
            raise asyncio.CancelledError


async def _awaited(work: Awaitable[Any]) -> Any:
    return await await_foreign(work)


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Runs blocking work in a daemon thread: one that hangs can be left behind and never holds up the process's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def body() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = call_foreign(work)
        except StopIteration:  # a future refuses to carry this one
            error = RuntimeError("the handler raised StopIteration")
        except Exception as raised:
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=body, name="perdure-tool", daemon=True).start()
    return await future


def _state_of(outcome: ToolOutcome | None) -> ToolState:
    if outcome is None:
        return "interrupted"
    if outcome.reply.is_refused:
        return "refused"
    return "failed" if outcome.reply.is_error else "completed"


def _as_message(call: ToolCall, outcome: ToolOutcome | None) -> Message:
    if outcome is None:
        return tool_result(call.id, INTERRUPTED, call.name)
    reply = outcome.reply
    message = tool_result(call.id, reply.text, call.name)
    return message.with_content((TextPart(reply.text), *reply.parts)) if reply.parts else message
