"""The events of a turn as frozen values. Terminal, gateway and web UI are driven by these alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from perdure.core.errors import ErrorVerdict
from perdure.core.messages import Message, ToolCall, ToolState
from perdure.core.usage import CanonicalUsage

Outcome = Literal["completed", "interrupted", "budget", "failed"]
# Why a turn that completed, or reached its step limit, has no text of the model; "" where it has one.
MissingAnswer = Literal["", "no_answer", "refusal", "content_filter", "step_limit"]
CompactionOutcome = Literal["compacted", "digest", "nothing_to_do", "failed"]


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """Emitted once the user message of a turn is stored."""

    task_id: str
    session_id: str
    conversation_id: str = ""


@dataclass(frozen=True, slots=True)
class CallStarted:
    """Emitted before a request is sent, with the context usage at that moment."""

    model: str
    estimate_tokens: int
    window_tokens: int
    threshold_tokens: int
    provider: str = ""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Emitted for each piece of streamed text."""

    text: str


@dataclass(frozen=True, slots=True)
class RefusalDelta(TextDelta):
    """Emitted for each piece of streamed text with which the model declines to answer, where its provider marks it."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Emitted for each piece of streamed reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallParsed:
    """Emitted when a whole tool call has been read from the stream; it has not run yet."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallFinished:
    """Emitted when a model call has ended; `verdict` classifies the error, "" for a success."""

    model: str
    usage: CanonicalUsage
    cost_usd: float | None = None
    provider: str = ""
    verdict: str = ""
    # Why the reply ended, in the words of `providers.types.Finish`; "" where there is no reply.
    finish: str = ""


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """Emitted when a request failed temporarily and will be sent again; `attempt` is the number of the next attempt."""

    verdict: ErrorVerdict
    wait_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """Emitted when a tool call starts to run."""

    call: ToolCall
    # The id of the delegated agent whose call it is; "" for the agent itself.
    helper: str = ""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Emitted while a tool runs, with start and end of its output so far; the next one replaces it."""

    call: ToolCall
    first: str
    # "" where `first` is all of it.
    last: str
    lines: int
    helper: str = ""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """Emitted when a tool call has a result."""

    call: ToolCall
    result: Message
    seconds: float
    is_error: bool = False
    state: ToolState = "completed"
    exit_code: int | None = None
    # False where the model made the tool's name up.
    is_registered: bool = True
    helper: str = ""
    # What the call removed (`-`) and added (`+`), where it replaced a file.
    diff: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputSpilled:
    """Emitted when a tool result was too large for the context; all of it is stored at `address`."""

    call: ToolCall
    address: str
    chars: int


@dataclass(frozen=True, slots=True)
class HelperStarted:
    """Emitted when a delegated child agent starts; its tool events have the same `helper` id."""

    helper: str
    task: str


@dataclass(frozen=True, slots=True)
class HelperFinished:
    helper: str
    outcome: Outcome
    seconds: float


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """Emitted before a compaction."""

    reason: str
    before_tokens: int


@dataclass(frozen=True, slots=True)
class CompactionFinished:
    """Emitted after a compaction, with its outcome."""

    outcome: CompactionOutcome
    before_tokens: int
    after_tokens: int
    session_id: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ModelSwitched:
    """Emitted when the conversation switches to another model or endpoint, by the user or a fallback."""

    old: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """Emitted when a failed call is answered by a recovery action, such as another endpoint or a compaction."""

    verdict: ErrorVerdict
    action: str


@dataclass(frozen=True, slots=True)
class StatusChanged:
    status: Literal["thinking", "calling", "running_tools", "compacting", "idle"]


@dataclass(frozen=True, slots=True)
class Notice:
    """Emitted with a message for the user; it is never sent to the model."""

    text: str
    level: Literal["info", "warning"] = "info"


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """Emitted as the last event of a turn, with its outcome."""

    outcome: Outcome
    final_response: str
    usage: CanonicalUsage = field(default_factory=CanonicalUsage)
    error: str | None = None
    # Calls of the client's own tools, whose results the next message brings.
    client_calls: tuple[ToolCall, ...] = ()
    # Why the last reply ended, in the words of `providers.types.Finish`; "" where there is none. "refusal": the model
    # declined to answer; "content_filter": its provider cut the reply off.
    finish: str = ""
    # Of a turn that failed at its provider: the kind of the error, in the words of `core.errors.ErrorKind`.
    error_kind: str = ""
    # Where it is not "", `final_response` is a line for people in place of the answer.
    missing_answer: MissingAnswer = ""


Event = (
    TurnStarted
    | CallStarted
    | TextDelta
    | RefusalDelta
    | ReasoningDelta
    | ToolCallParsed
    | CallFinished
    | RetryScheduled
    | ToolStarted
    | ToolOutput
    | ToolFinished
    | OutputSpilled
    | HelperStarted
    | HelperFinished
    | CompactionStarted
    | CompactionFinished
    | ModelSwitched
    | Recovered
    | StatusChanged
    | Notice
    | TurnFinished
)

# Publishes an event of a turn; never blocks.
Emit = Callable[[Event], None]
