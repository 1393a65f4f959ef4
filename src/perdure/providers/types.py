"""What goes to a model and what comes back: every wire mode builds from the one and parses into the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.core.messages import Entry, Message
from perdure.core.usage import NOT_REPORTED, CanonicalUsage

ApiMode = Literal["chat_completions", "codex_responses", "anthropic_messages"]
Finish = Literal["stop", "tool_calls", "length", "refusal", "context_overflow", "unknown"]
CacheTtl = Literal["5m", "1h"]


ReasoningField = Literal["reasoning_content", "reasoning", "think_tags"]
EffortStyle = Literal["reasoning_effort", "reasoning", "thinking", "none"]
CallIds = Literal["openai", "responses", "anthropic", "mistral"]
ToolImages = Literal["follow", "inline", "omit"]
AuthStyle = Literal["bearer", "x-api-key", "api-key"]


@dataclass(frozen=True, slots=True)
class Quirks:
    """How a service departs from its protocol, as data: one row per service in `services.py`."""

    # Where a thinking model wants its own reasoning back on chat_completions; None: nowhere.
    reasoning_field: ReasoningField | None = None
    # How a reasoning effort is asked for on chat_completions.
    effort: EffortStyle = "reasoning_effort"
    max_tokens_key: str | None = "max_tokens"
    takes_temperature: bool = True
    # `stream_options.include_usage`: without it many services report nothing.
    takes_stream_options: bool = True
    supports_cache_control: bool = False
    # Encrypted reasoning items may be asked for (codex_responses).
    takes_encrypted_reasoning: bool = True
    call_ids: CallIds = "openai"
    # Images inside tool results on chat_completions: in a user message behind them, in place, or left out.
    tool_images: ToolImages = "follow"
    auth: AuthStyle | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Wire keys every request to this service carries.
    extra: Mapping[str, Any] = field(default_factory=dict)


NO_QUIRKS = Quirks()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call. `entries` is a projected history: every rule of `core.rules` holds for it, no system message in it."""

    model: str
    entries: Sequence[Entry]
    # The cached prompt first; notes added by a compaction are blocks of their own behind it.
    system: tuple[str, ...] = ()
    # OpenAI-style function schemas.
    tools: tuple[Mapping[str, Any], ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    is_streaming: bool = True
    # None: this route takes no cache marks.
    cache_ttl: CacheTtl | None = None
    # Wire keys a user or a route adds, as they are.
    extra: Mapping[str, Any] = field(default_factory=dict)
    # How the service this goes to departs from its protocol; `routes.aimed` fills it in.
    quirks: Quirks = NO_QUIRKS


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered: one assistant message, what it cost, and why it stopped."""

    message: Message
    usage: CanonicalUsage = NOT_REPORTED
    finish: Finish = "unknown"
    model: str = ""
    response_id: str = ""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One server-sent event as it came off the wire; `name` is "" where the service names none."""

    name: str
    data: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a call goes and as whom: one row of a route."""

    provider: str
    base_url: str
    api_mode: ApiMode
    model: str
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
