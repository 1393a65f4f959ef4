"""User callbacks: progress, streaming, approvals, clarifying questions."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

from perdure.core.concurrency import await_foreign, run_foreign
from perdure.core.errors import ConfigError, ToolError, kind_label
from perdure.core.events import (
    CallFinished,
    CallStarted,
    CompactionFinished,
    CompactionStarted,
    Event,
    ModelSwitched,
    Notice,
    ReasoningDelta,
    Recovered,
    RetryScheduled,
    StatusChanged,
    TextDelta,
    ToolCallParsed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Refusal, parse_refusal

_LOG = logging.getLogger(__name__)


class CallbackAsker:
    """Asks the user through the `clarify_callback` of the caller (the Asker port)."""

    def __init__(self, callback: Callable[[str, Sequence[str]], Any]) -> None:
        self._callback = callback

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """Return the answer. Raises ToolError, which the model reads, if the callback fails."""
        try:
            return str(await await_foreign(_run_callback(self._callback, question, tuple(choices))))
        except Exception as error:  # third-party code: the turn continues without it
            _LOG.exception("clarify_callback failed")
            raise ToolError(f"the question could not be put: {type(error).__name__}") from error


class CallbackApprover:
    """Asks for approval through the `approval_callback` of the caller (the Approver port).

    True approves this call only.
    """

    def __init__(self, callback: Callable[[str, str], Any]) -> None:
        self._callback = callback

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        """Return the callback's answer.

        Text such as "no, use git stash" is a refusal with its reason. A failing callback or an unknown value is a "no".
        """
        return await _ask_for_approval(self._callback, request.action, request.reason)


class BlockingApprover:
    """Asks an approver whose `approve` is not async, in a worker thread; it answers like an `approval_callback`."""

    def __init__(self, approve: Callable[[ApprovalRequest], Any]) -> None:
        self._approve = approve

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        return await _ask_for_approval(self._approve, request)


async def _ask_for_approval(callback: Callable[..., Any], *arguments: Any) -> ApprovalAnswer | Refusal:
    try:
        answer = await await_foreign(_run_callback(callback, *arguments))
    except Exception:  # third-party code: no approval, no run
        _LOG.exception("the callback for approvals failed")
        return "no"
    if answer is True:
        return "once"
    return next((choice for choice in get_args(ApprovalAnswer) if choice == answer), None) or parse_refusal(answer)


async def _run_callback(callback: Callable[..., Any], *arguments: Any) -> Any:
    answer = await run_foreign(callback, *arguments)
    return await answer if inspect.isawaitable(answer) else answer


Callback = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The optional callbacks of an agent's caller. Events are sent to all but the last two, which answer questions."""

    # (phase "start" | "end", call, result message or None), around each tool
    tool_progress_callback: Callback | None = None
    # (is_thinking) when the model starts and stops working on a reply
    thinking_callback: Callback | None = None
    # (text) of a thinking model's reasoning, as it arrives
    reasoning_callback: Callback | None = None
    # (final_response) after each whole turn
    step_callback: Callback | None = None
    # (text) per streamed piece
    stream_delta_callback: Callback | None = None
    # (call) when a tool call has been read from the stream
    tool_gen_callback: Callback | None = None
    # (what) on changes of state: compaction, recovery, model switch, notices
    status_callback: Callback | None = None
    # (question, choices) → the answer
    clarify_callback: Callable[[str, Sequence[str]], str] | None = None
    # (action, reason) → "once" | "session" | "always" | "no"
    approval_callback: Callable[[str, str], ApprovalAnswer] | None = None

    @classmethod
    def from_mapping(cls, callbacks: Mapping[str, Any]) -> Callbacks:
        """Build callbacks from a dict by name.

        Raises ConfigError for an unknown name or a value that is not callable.
        """
        names = [f.name for f in fields(cls)]
        for name, callback in callbacks.items():
            if name not in names:
                near = difflib.get_close_matches(str(name), names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
                raise ConfigError(f"there is no callback {name!r}; {hint}")
            if callback is not None and not callable(callback):
                raise ConfigError(f"{name} takes a function, not {callback!r:.80}")
        return cls(**callbacks)

    def hear(self, event: Event) -> None:
        """Call the callback that is registered for this kind of event, if there is one."""
        match event:
            case TextDelta(text):
                _call(self.stream_delta_callback, text)
            case ReasoningDelta(text):
                _call(self.reasoning_callback, text)
            case ToolCallParsed(call):
                _call(self.tool_gen_callback, call)
            case ToolStarted(call):
                _call(self.tool_progress_callback, "start", call, None)
            case ToolFinished(call=call, result=result):
                _call(self.tool_progress_callback, "end", call, result)
            case CallStarted():
                _call(self.thinking_callback, True)
            case CallFinished():
                _call(self.thinking_callback, False)
            case TurnFinished(final_response=text):
                _call(self.step_callback, text)
            case _:
                if (line := status_line(event)) is not None:
                    _call(self.status_callback, line)


def status_line(event: Event) -> str | None:
    """Describe a compaction, recovery, model switch or notice in one line; None for other events."""
    match event:
        case StatusChanged(status):
            return status.replace("_", " ")
        case CompactionStarted(before_tokens=before):
            return f"compacting a history of about {before:,} tokens"
        case CompactionFinished(outcome=outcome, before_tokens=before, after_tokens=after, message=message):
            if message and outcome not in ("compacted", "digest"):
                return message
            figures = f"{before:,} → {after:,} tokens"
            return f"{message} About {figures}." if message else f"Compacted: about {figures}."
        case Recovered(verdict=verdict, action=action):
            return f"{kind_label(verdict.kind)}: {action}"
        case RetryScheduled(verdict=verdict, wait_s=wait_s, attempt=attempt):
            return f"{kind_label(verdict.kind)}: trying again in {math.ceil(wait_s)} s (attempt {attempt})"
        case ModelSwitched(old, new, reason):
            return f"model {old} → {new} ({reason})" if old != new else f"model {new} ({reason})"
        case Notice(text=text):
            return text
        case _:
            return None


def _call(callback: Callback | None, *arguments: Any) -> None:
    """Call a callback in the thread of the listener; an async one is run to its end there."""
    if callback is not None:
        answer = callback(*arguments)
        if inspect.isawaitable(answer):
            asyncio.run(_await(answer))


async def _await(answer: Awaitable[Any]) -> None:
    await answer
