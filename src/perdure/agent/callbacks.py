"""The callbacks of a surface, as a thin adapter over events. One that raises is logged and never breaks a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
    StatusChanged,
    TextDelta,
    ToolCallParsed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from perdure.core.ports import ApprovalAnswer

Callback = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a surface wants to hear. The last two return an answer, so they are asked through ports instead."""

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

    def hear(self, event: Event) -> None:
        """Passes one event on to whichever callback it belongs to."""
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
                if (said := status_line(event)) is not None:
                    _call(self.status_callback, said)


def status_line(event: Event) -> str | None:
    """A change of state in one line; None for events that are none."""
    match event:
        case StatusChanged(status):
            return status.replace("_", " ")
        case CompactionStarted(before_tokens=before):
            return f"compacting a history of about {before:,} tokens"
        case CompactionFinished(before_tokens=before, after_tokens=after, message=message):
            return message or f"compacted: about {before:,} → {after:,} tokens"
        case Recovered(verdict=verdict, action=action):
            return f"{verdict.kind.replace('_', ' ')}: {action}"
        case ModelSwitched(old, new, reason):
            return f"model {old} → {new} ({reason})"
        case Notice(text=text):
            return text
        case _:
            return None


def _call(callback: Callback | None, *arguments: Any) -> None:
    if callback is not None:
        callback(*arguments)
