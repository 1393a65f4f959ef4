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
