"""Request and reply types shared by the three protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.core.events import ReasoningDelta, RetryScheduled, TextDelta, ToolCallParsed
from perdure.core.messages import Entry, Message
from perdure.core.turn_options import AUTO, AnswerFormat
from perdure.core.usage import NOT_REPORTED, CanonicalUsage

ApiMode = Literal["chat_completions", "codex_responses", "anthropic_messages"]
Finish = Literal["stop", "tool_calls", "length", "refusal", "context_overflow", "unknown"]
CacheTtl = Literal["5m", "1h"]
# Emitted while a reply is streamed.
Delta = TextDelta | ReasoningDelta | ToolCallParsed
# What a caller hears of a request while it is under way.
RequestEvent = Delta | RetryScheduled


ReasoningField = Literal["reasoning_content", "reasoning", "think_tags"]
EffortStyle = Literal["reasoning_effort", "reasoning", "thinking", "none"]
CallIds = Literal["openai", "responses", "anthropic", "mistral"]
ToolImages = Literal["follow", "inline", "omit"]
AuthStyle = Literal["bearer", "x-api-key", "api-key"]
FormatSupport = Literal["json_schema", "json_object"]


@dataclass(frozen=True, slots=True)
class Quirks:
    """Deviations of a service from its protocol, as data; one row per provider in `registry.py`."""

    # The field that returns reasoning to the model on chat_completions; None: reasoning is not sent back.
    reasoning_field: ReasoningField | None = None
    # The request parameter for the reasoning effort on chat_completions.
    effort: EffortStyle = "reasoning_effort"
    max_tokens_key: str | None = "max_tokens"
    takes_temperature: bool = True
    # `stream_options.include_usage`: without it many services report no usage.
    takes_stream_options: bool = True
    supports_cache_control: bool = False
    # Encrypted reasoning items may be requested (codex_responses).
    takes_encrypted_reasoning: bool = True
    call_ids: CallIds = "openai"
    # Images in tool results on chat_completions: in a user message after them, inline, or omitted.
    tool_images: ToolImages = "follow"
    # JSON answers that the service enforces; None: the prompt has the format, and the answer is checked.
    answer_format: FormatSupport | None = None
    # The service takes a format and tools in one request; many refuse that, or then call no tool.
    takes_format_with_tools: bool = False
    auth: AuthStyle | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Keys added to every request body.
    extra: Mapping[str, Any] = field(default_factory=dict)


NO_QUIRKS = Quirks()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model request. `entries` is a projected history: valid by `core.rules`, without a system message."""

    model: str
    entries: Sequence[Entry]
    # The cached prompt first; notes added by a compaction follow as separate blocks.
    system: tuple[str, ...] = ()
    # OpenAI-style function schemas.
    tools: tuple[Mapping[str, Any], ...] = ()
    # AUTO, REQUIRED, or the name of the tool to call.
    tool_choice: str = AUTO
    allows_parallel_calls: bool = True
    answer_format: AnswerFormat | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    is_streaming: bool = True
    # None: this route takes no cache_control.
    cache_ttl: CacheTtl | None = None
    # Extra body keys from the user or the route, sent verbatim.
    extra: Mapping[str, Any] = field(default_factory=dict)
    # Set by `routes.adapt_request` for the endpoint.
    quirks: Quirks = NO_QUIRKS

    @property
    def enforced_format(self) -> AnswerFormat | None:
        """The answer format, where the service enforces it in a request like this one."""
        quirks = self.quirks
        if quirks.answer_format is None or (self.tools and not quirks.takes_format_with_tools):
            return None
        return self.answer_format


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply: one assistant message, its usage and finish reason."""

    message: Message
    usage: CanonicalUsage = NOT_REPORTED
    finish: Finish = "unknown"
    model: str = ""
    response_id: str = ""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One server-sent event; `name` is "" where the service sends none."""

    name: str
    data: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider, address, model and key: one row of a route."""

    provider: str
    base_url: str
    api_mode: ApiMode
    model: str
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
