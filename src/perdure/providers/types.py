"""Request and reply types shared by the three protocols, and the usage that services report, as one record.

Usage comes in three schemas, each with the names of its variants. Anthropic's `input_tokens` excludes cached tokens;
the other two include them, so they are subtracted here. Invalid counts (text, NaN, negative numbers) are treated as
absent: a record without a prompt count is "not reported", and an invalid count voids the whole record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from perdure.core.arguments import to_count
from perdure.core.errors import ErrorVerdict
from perdure.core.events import ReasoningDelta, RetryScheduled, TextDelta, ToolCallParsed
from perdure.core.messages import Entry, Message
from perdure.core.turn_options import AUTO, AnswerFormat
from perdure.core.usage import NOT_REPORTED, CanonicalUsage, as_mapping

ApiMode = Literal["chat_completions", "codex_responses", "anthropic_messages"]
Finish = Literal["stop", "tool_calls", "length", "refusal", "content_filter", "context_overflow", "unknown"]
CacheTtl = Literal["5m", "1h"]
# Emitted while a reply is streamed.
Delta = TextDelta | ReasoningDelta | ToolCallParsed
# The events of a request while it is under way.
RequestEvent = Delta | RetryScheduled


ReasoningField = Literal["reasoning_content", "reasoning", "think_tags"]
EffortStyle = Literal["reasoning_effort", "reasoning", "thinking", "none"]
CallIds = Literal["openai", "responses", "anthropic", "mistral"]
ToolImages = Literal["follow", "inline"]
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
    # `prompt_cache_key`: requests with the same key are routed to the same cache.
    takes_cache_key: bool = False
    # `prompt_cache_breakpoint` on the models that have explicit breakpoints.
    takes_cache_breakpoints: bool = False
    # Seconds that a prefix cached without cache_control is served after its last use, at least; None: unknown.
    cache_lifetime_s: float | None = None
    # Encrypted reasoning items may be requested (codex_responses).
    takes_encrypted_reasoning: bool = True
    # Requests without `instructions` are refused (codex_responses).
    requires_instructions: bool = False
    call_ids: CallIds = "openai"
    # Images in tool results on chat_completions: in a user message after them, or inline.
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
    """A request to a model. `entries` is a projected history: valid by `core.rules`, without a system message."""

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
    # The same for all requests of a conversation; "": the service takes none.
    cache_key: str = ""
    # Whether the end of the system prompt is marked as an explicit breakpoint.
    marks_system: bool = False
    # Extra body keys from the user or the route, sent verbatim.
    extra: Mapping[str, Any] = field(default_factory=dict)
    # Set by `routes.adapt_request` for the endpoint.
    quirks: Quirks = NO_QUIRKS

    @property
    def enforced_format(self) -> AnswerFormat | None:
        """The answer format, if the service itself enforces it in a request like this one; None otherwise."""
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
    # The usage of the last prompt, where the service made several for one request; `usage` is the sum of them.
    last_usage: CanonicalUsage | None = None


def overflow_verdict(reply: Reply, *, window: int | None = None) -> ErrorVerdict | None:
    """Return the verdict on a reply that ended because the window was full; None for any other end.

    Some services only truncate such a reply. An empty one counts as an overflow where the prompt is near the window:
    with a small prompt, max_tokens or hidden reasoning is the cause.
    """
    is_empty = not reply.message.text and not reply.message.tool_calls and not reply.usage.output_tokens
    is_cut_off = reply.finish == "length" and reply.usage.reported and is_empty
    is_near_window = window is not None and reply.usage.prompt_tokens * 2 >= window
    if reply.finish == "context_overflow" or (is_cut_off and is_near_window):
        return ErrorVerdict("prompt_too_long", "the model stopped because its context window was full")
    return None


@dataclass(frozen=True, slots=True)
class SseEvent:
    """A server-sent event; `name` is "" where the service sends none."""

    name: str
    data: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider, address, model and API key: where a request can be sent."""

    provider: str
    base_url: str
    api_mode: ApiMode
    model: str
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # The environment variable that the address is from; None for one from a setting, or the provider's own.
    address_variable: str | None = field(default=None, compare=False)
    # Whether the address is the provider's own, not one that was configured.
    is_default_address: bool = field(default=False, compare=False)
    # Whether an SDK client of the caller's has the address and the key.
    is_of_client: bool = field(default=False, compare=False)

    @property
    def address_name(self) -> str:
        """The source of the address, to check if it is wrong: a client, a variable, a setting, or the default."""
        if self.is_of_client:
            return "the base_url of the client"
        if self.address_variable is not None:
            return f"the variable {self.address_variable}"
        return "the address" if self.is_default_address else "`model.base_url`"

    @property
    def server_name(self) -> str:
        """The provider; of a server of the user's own, its host and port."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2] if self.provider == "custom" else self.provider


# More than any service could bill for one call: larger values are errors.
_MAX_TOKENS = 10**12

_MALFORMED = -1


@dataclass(frozen=True, slots=True)
class _Names:
    """Paths to the counts of a schema that includes cached tokens; the first present value wins."""

    prompt: tuple[str, ...]
    output: tuple[str, ...]
    cached: tuple[str, ...]
    written: tuple[str, ...]


# The comments name the services that use each variant.
_CHAT = _Names(
    prompt=("prompt_tokens", "promptTokens", "prompt_eval_count"),  # the last: Ollama
    output=("completion_tokens", "completionTokens", "eval_count"),
    cached=(
        "prompt_tokens_details.cached_tokens",
        "prompt_cache_hit_tokens",  # DeepSeek
        "cached_tokens",  # Moonshot
        "cache_read_input_tokens",  # LiteLLM
    ),
    written=(
        "prompt_tokens_details.cache_write_tokens",  # OpenAI, OpenRouter
        "prompt_tokens_details.cache_creation_tokens",
        "prompt_tokens_details.cache_creation_input_tokens",  # DashScope
        "cache_creation_input_tokens",  # LiteLLM
    ),
)
_RESPONSES = _Names(
    prompt=("input_tokens", "inputTokens"),  # the last: Bedrock
    output=("output_tokens", "outputTokens"),
    cached=("input_tokens_details.cached_tokens",),
    written=("input_tokens_details.cache_creation_tokens", "input_tokens_details.cache_write_tokens"),
)
_ANTHROPIC_READ = ("cache_read_input_tokens", "cacheReadInputTokens")
_ANTHROPIC_WRITTEN = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_WRITTEN_5M = ("cache_creation.ephemeral_5m_input_tokens",)
_WRITTEN_1H = ("cache_creation.ephemeral_1h_input_tokens", "prompt_tokens_details.cache_write_1h_tokens")
_REASONING = (
    "completion_tokens_details.reasoning_tokens",
    "output_tokens_details.reasoning_tokens",
    "output_tokens_details.thinking_tokens",
    "reasoning_tokens",  # Perplexity, SambaNova
)


def normalize_usage(raw: object, api_mode: str) -> CanonicalUsage:
    """Normalize a service's usage. Never raises; invalid usage is "not reported"."""
    usage = as_mapping(raw)
    if not usage:
        return NOT_REPORTED
    shape = _shape(usage, api_mode)
    if shape == "anthropic_messages":
        return _anthropic(usage)
    if shape == "codex_responses":
        return _inclusive(usage, _RESPONSES)
    return _inclusive(usage, _CHAT)


def _shape(usage: Mapping[str, Any], api_mode: str) -> str:
    """Return the schema of the mode, unless only another schema's counts are present: proxies mix them up."""
    has_chat = any(k in usage for k in _CHAT.prompt + _CHAT.output)
    has_native = any(k in usage for k in _RESPONSES.prompt + _RESPONSES.output)
    if api_mode in ("codex_responses", "anthropic_messages"):
        return api_mode if has_native or not has_chat else "chat_completions"
    if has_chat or not has_native:
        return "chat_completions"
    has_anthropic = any(k in usage for k in (*_ANTHROPIC_READ, *_ANTHROPIC_WRITTEN))
    return "anthropic_messages" if has_anthropic else "codex_responses"


# Billed at the prices of another model, and never part of the sums.
_OTHER_MODELS = ("advisor_message",)


def _anthropic(usage: Mapping[str, Any]) -> CanonicalUsage:
    """Normalize the usage of a response; where it had several prompts, the sums leave out those of a compaction."""
    billed = [_anthropic_prompt(i) for i in _iterations(usage)]
    reported = _anthropic_prompt(usage)
    total = sum((u for u in billed if u.reported), start=CanonicalUsage())
    return total if total.total_tokens > reported.total_tokens else reported


def last_prompt_usage(raw: object) -> CanonicalUsage | None:
    """Return the usage of the last prompt of an Anthropic response; None where it had only one."""
    prompts = [i for i in _iterations(as_mapping(raw)) if i.get("type") != "compaction"]
    is_single = not prompts or len(_iterations(as_mapping(raw))) < 2
    last = NOT_REPORTED if is_single else _anthropic_prompt(prompts[-1])
    return last if last.reported and last.prompt_tokens else None


def _iterations(usage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = usage.get("iterations")
    rows = [as_mapping(i) for i in listed] if isinstance(listed, list) else []
    return [row for row in rows if row and row.get("type") not in _OTHER_MODELS]


def _anthropic_prompt(usage: Mapping[str, Any]) -> CanonicalUsage:
    fresh, output = _figure(usage, _RESPONSES.prompt), _figure(usage, _RESPONSES.output)
    read, written = _figure(usage, _ANTHROPIC_READ), _figure(usage, _ANTHROPIC_WRITTEN)
    written_1h = _count(usage, _WRITTEN_1H)
    split = _count(usage, _WRITTEN_5M) + written_1h
    has_prompt = fresh is not None or read is not None or written is not None or split > 0
    return _record(
        has_prompt=has_prompt,
        figures=(fresh, output),
        input_tokens=fresh or 0,
        output=output or 0,
        read=read or 0,
        # The split and the sum are redundant; some servers send only one of them.
        written=max(written or 0, split),
        written_1h=written_1h,
        reasoning=_count(usage, _REASONING),
    )


def _inclusive(usage: Mapping[str, Any], names: _Names) -> CanonicalUsage:
    """Normalize schemas whose prompt count includes cached tokens."""
    prompt, output = _figure(usage, names.prompt), _figure(usage, names.output)
    read, written = _count(usage, names.cached), _count(usage, names.written)
    reasoning = _count(usage, _REASONING)
    total = _figure(usage, ("total_tokens",))
    output_tokens = output or 0
    if reasoning and total is not None and total > 0 and total == (prompt or 0) + output_tokens + reasoning:
        # xAI and Gemini exclude reasoning from the output count but include it in the total.
        output_tokens += reasoning
    return _record(
        has_prompt=prompt is not None,
        figures=(prompt, output),
        input_tokens=max(0, (prompt or 0) - read - written),
        output=output_tokens,
        read=read,
        written=written,
        written_1h=min(written, _count(usage, _WRITTEN_1H)),
        reasoning=reasoning,
    )


def _record(
    *,
    has_prompt: bool,
    figures: tuple[int | None, ...],
    input_tokens: int,
    output: int,
    read: int,
    written: int,
    written_1h: int,
    reasoning: int,
) -> CanonicalUsage:
    if _MALFORMED in figures or (not has_prompt and not output):
        return NOT_REPORTED
    return CanonicalUsage(
        input_tokens=input_tokens,
        output_tokens=output,
        cache_read_tokens=max(0, read),
        cache_write_tokens=max(0, written),
        reasoning_tokens=reasoning,
        cache_write_1h_tokens=written_1h,
        # Output tokens alone are recorded, but a missing prompt count must not pass for an empty prompt.
        reported=has_prompt,
    )


def _count(usage: Mapping[str, Any], paths: Sequence[str]) -> int:
    """Return a secondary count; 0 where it is absent or invalid."""
    return max(0, _figure(usage, paths) or 0)


def _figure(usage: Mapping[str, Any], paths: Sequence[str]) -> int | None:
    """Return the first count under any of the paths; None if absent, _MALFORMED if invalid."""
    for path in paths:
        value: object = usage
        for key in path.split("."):
            value = as_mapping(value).get(key)
        if value is not None:
            return _number(value)
    return None


def _number(value: object) -> int:
    if isinstance(value, bool):
        return _MALFORMED
    if isinstance(value, str):
        digits = value.strip().replace(",", "").replace("_", "")
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else None
    value = to_count(value)
    return value if isinstance(value, int) and 0 <= value <= _MAX_TOKENS else _MALFORMED
