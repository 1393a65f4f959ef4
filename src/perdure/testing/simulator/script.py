"""Scripts: a sequence of steps, one per request, or a function from request to step; and real error responses for them.

`SAMPLES` has the error responses of services by name: status and body.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from perdure.core.errors import ConfigError

Body = dict[str, Any] | str


def _openai(
    message: str, *, param: str | None = None, code: str | None = None, error_type: str = "invalid_request_error"
) -> dict[str, Any]:
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def _anthropic(message: str, error_type: str = "invalid_request_error") -> dict[str, Any]:
    return {"type": "error", "error": {"type": error_type, "message": message}, "request_id": "req_sim000001"}


_TOO_LONG = "context_length_exceeded"

_OPENAI: dict[str, tuple[int, Body]] = {
    "openai_overflow": (
        400,
        _openai(
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens. "
            "Please reduce the length of the messages.",
            param="messages",
            code=_TOO_LONG,
        ),
    ),
    "openai_overflow_functions": (
        400,
        _openai(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 202868 tokens "
            "(202767 in the messages, 101 in the functions). Please reduce the length of the messages or functions.",
            param="messages",
            code=_TOO_LONG,
        ),
    ),
    "openai_sum_overflow": (
        400,
        _openai(
            "This model's maximum context length is 4097 tokens. However, you requested 4120 tokens (3120 in the "
            "messages, 1000 in the completion). Please reduce the length of the messages or completion.",
            param="messages",
            code=_TOO_LONG,
        ),
    ),
    "openai_output_cap": (
        400,
        _openai(
            "max_tokens is too large: 20480. This model supports at most 16384 completion tokens, whereas you "
            "provided 20480.",
            param="max_tokens",
            code="invalid_value",
        ),
    ),
    "openai_rate_limit": (
        429,
        _openai(
            "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, "
            "Requested 2500. Please try again in 3s.",
            error_type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "openai_quota": (
        429,
        _openai(
            "You exceeded your current quota, please check your plan and billing details.",
            error_type="insufficient_quota",
            code="insufficient_quota",
        ),
    ),
    "openai_bad_key": (
        401,
        _openai("Incorrect API key provided: sk-sim***.", code="invalid_api_key"),
    ),
    "openai_no_model": (
        404,
        _openai("The model `gpt-none` does not exist or you do not have access to it.", code="model_not_found"),
    ),
    "openai_server_error": (
        500,
        _openai("The server had an error while processing your request. Sorry about that!", error_type="server_error"),
    ),
    "responses_overflow": (
        400,
        _openai(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            param="input",
            code=_TOO_LONG,
        ),
    ),
    "azure_overflow": (
        400,
        _openai(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. "
            "Please reduce the length of the messages.",
            param="messages",
            code=_TOO_LONG,
        ),
    ),
}

_ANTHROPIC: dict[str, tuple[int, Body]] = {
    "anthropic_overflow": (400, _anthropic("prompt is too long: 208310 tokens > 200000 maximum")),
    "anthropic_sum_overflow": (
        400,
        _anthropic(
            "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or "
            "`max_tokens` and try again"
        ),
    ),
    "anthropic_output_cap": (
        400,
        _anthropic(
            "max_tokens: 21333 > 4096, which is the maximum allowed number of output tokens for claude-3-opus-20240229"
        ),
    ),
    "anthropic_overloaded": (529, _anthropic("Overloaded", "overloaded_error")),
    "anthropic_rate_limit": (
        429,
        _anthropic(
            "This request would exceed your organization's rate limit of 40,000 input tokens per minute.",
            "rate_limit_error",
        ),
    ),
    "anthropic_bad_key": (401, _anthropic("invalid x-api-key", "authentication_error")),
    "anthropic_no_credit": (
        400,
        _anthropic("Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."),
    ),
    "anthropic_too_large": (
        413,
        _anthropic("Request exceeds the maximum size", "request_too_large"),
    ),
    "bedrock_overflow": (400, {"message": "Input is too long for requested model."}),
    "bedrock_overflow_quoted": (
        400,
        {
            "message": "The model returned the following errors: prompt is too long: 200049 tokens > 200000 maximum",
            "__type": "ValidationException",
        },
    ),
    "bedrock_output_cap": (
        400,
        {
            "message": "The maximum tokens you requested exceeds the model limit of 2048. Try again with a maximum "
            "tokens value that is lower than 2048."
        },
    ),
}

_OTHERS: dict[str, tuple[int, Body]] = {
    "openrouter_sum_overflow": (
        400,
        {
            "error": {
                "message": "This endpoint's maximum context length is 131072 tokens. However, you requested about "
                "141607 tokens (10535 of text input, 131072 in the output). Please reduce the length of either one, "
                'or use the "middle-out" transform to compress your prompt automatically.',
                "code": 400,
            }
        },
    ),
    "vllm_overflow": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 512 output tokens "
            "and your prompt contains at least 5000 input tokens, for a total of at least 5512 tokens. Please reduce "
            "the length of the input prompt or the number of requested output tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    "llamacpp_overflow": (
        400,
        {
            "error": {
                "code": 400,
                "message": "request (6031 tokens) exceeds the available context size (2048 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 6031,
                "n_ctx": 2048,
            }
        },
    ),
    "ollama_overflow": (
        400,
        {
            "error": "the prompt is longer than the context length currently available to the model; shorten it or "
            "raise num_ctx"
        },
    ),
    "lmstudio_overflow": (
        400,
        {
            "error": "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded "
            "with context length of only 32768 tokens, which is not enough. Try to load the model with a larger "
            "context length, or provide a shorter input"
        },
    ),
    "lmstudio_overflow_keep": (
        400,
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length."},
    ),
    "gemini_overflow": (
        400,
        {
            "error": {
                "code": 400,
                "message": "The input token count (132478) exceeds the maximum number of tokens allowed (131072).",
                "status": "INVALID_ARGUMENT",
            }
        },
    ),
    "deepseek_sum_overflow": (
        400,
        _openai(
            "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in "
            "the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            code="invalid_request_error",
        ),
    ),
    "deepseek_output_cap": (
        400,
        _openai(
            "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
            code="invalid_request_error",
        ),
    ),
    "dashscope_overflow": (
        400,
        _openai(
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]",
            code="invalid_parameter_error",
        ),
    ),
    "dashscope_output_cap": (400, _openai("Range of max_tokens should be [1, 8192]", code="invalid_parameter_error")),
    "groq_overflow": (
        400,
        _openai("Please reduce the length of the messages or completion.", param="messages", code=_TOO_LONG),
    ),
    "groq_output_cap": (
        400,
        _openai(
            "`max_completion_tokens` must be less than or equal to `8192`, the maximum value for "
            "`max_completion_tokens` is less than the `context_window` for this model"
        ),
    ),
    "together_overflow": (
        422,
        _openai(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 80125 `inputs` tokens "
            "and 4096 `max_new_tokens`"
        ),
    ),
    "proxy_too_large": (413, "<html><head><title>413 Request Entity Too Large</title></head></html>"),
    "proxy_bare_400": (400, ""),
    "proxy_bad_gateway": (502, "<html><body><h1>502 Bad Gateway</h1></body></html>"),
}

SAMPLES: dict[str, tuple[int, Body]] = {**_OPENAI, **_ANTHROPIC, **_OTHERS}
_STATUSES = range(100, 600)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make; arguments may be text, to send invalid JSON."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Say:
    """A reply, truncated to the request's max_tokens like a real one."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    refusal: str = ""
    # Overrides the finish reason: a stream with tool calls may still end with "stop".
    finish: str | None = None
    chunk_chars: int = 12
    # Before the response begins, and between its chunks.
    delay_s: float = 0.0
    chunk_delay_s: float = 0.0
    # Prefix each chunk with the monotonic time in nanoseconds, to measure latency.
    is_stamped: bool = False
    # After this many events the connection drops, or the service reports an error.
    drop_after: int | None = None
    fail_after: int | None = None
    reports_usage: bool = True
    # Some services stream without "stream": true, or ignore it.
    form: Literal["as_asked", "plain", "stream"] = "as_asked"


@dataclass(frozen=True, slots=True)
class Fail:
    """An error response: a named sample of a real one, or a custom body."""

    sample: str | None = None
    status: int | None = None
    body: Mapping[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if self.sample is not None and self.sample not in SAMPLES:
            raise ConfigError(f"no error sample {self.sample!r}{_nearest(self.sample, sorted(SAMPLES))}")
        if self.status is not None and self.status not in _STATUSES:
            raise ConfigError(f"{self.status} is no HTTP status; a number such as 503 is")

    def answer(self) -> tuple[int, Mapping[str, Any] | str]:
        if self.sample is None:
            return self.status or 500, {} if self.body is None else self.body
        status, body = SAMPLES[self.sample]
        return self.status or status, self.body if self.body is not None else body


@dataclass(frozen=True, slots=True)
class Raw:
    """Raw bytes: HTML, truncated JSON, noise."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection before the first byte of a response."""

    delay_s: float = 0.0


Step = Say | Fail | Raw | Drop


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """The argument of a script function."""

    path: str
    body: Mapping[str, Any]
    number: int


ScriptFunction = Callable[[ScriptRequest], Step | str]
Script = Iterable[Step | str] | ScriptFunction


class Prompter:
    """Iterates over the script's steps; after the last, a default reply with the request number."""

    def __init__(self, script: Script) -> None:
        self._function = script if callable(script) else None
        self._steps: Iterator[Step | str] = iter(()) if callable(script) else iter(script)
        self._added: list[Step | str] = []

    def add(self, *steps: Step | str) -> None:
        """Append steps."""
        self._added.extend(steps)

    def next(self, request: ScriptRequest) -> Step:
        step = self._function(request) if self._function else next(self._steps, None)
        if step is None:
            step = self._added.pop(0) if self._added else f"Simulated reply {request.number}."
        return Say(step) if isinstance(step, str) else step


def load_script(path: Path) -> list[Step]:
    """Load a script from a JSON list of texts and of objects with one of `say`, `calls`, `fail`, `raw`, `drop`."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the script {path}: {error}") from error
    if not isinstance(raw, list):
        raise ConfigError(f"the script {path} is no JSON list of steps")
    return [parse_step(step, at=f"{path}, step {n}") for n, step in enumerate(raw, 1)]


_Part = TypeVar("_Part", Say, Fail, Raw, Drop, Call)


def parse_step(raw: object, *, at: str) -> Step:
    """Parse one step from JSON. Raises ConfigError with the position of the error."""
    if isinstance(raw, str):
        return Say(raw)
    if not isinstance(raw, dict):
        raise ConfigError(f"{at}: a step is a text or an object, not {type(raw).__name__}")
    step_fields = dict(raw)
    if "fail" in step_fields:
        what = step_fields.pop("fail")
        is_sample = isinstance(what, str) and not what.isdecimal()
        return _build(Fail, {"sample" if is_sample else "status": what, **step_fields}, at)
    if "raw" in step_fields:
        body = str(step_fields.pop("raw")).encode()
        return _build(Raw, {**step_fields, "body": body}, at)
    if step_fields.pop("drop", False):
        return _build(Drop, step_fields, at)
    calls = step_fields.pop("calls", [])
    if not isinstance(calls, list):
        raise ConfigError(f"{at}: calls is a list of objects with a name and arguments")
    text = {"text": step_fields.pop("say")} if "say" in step_fields else {}
    return _build(
        Say, {**text, **step_fields, "calls": tuple(_build(Call, call, f"{at}, calls") for call in calls)}, at
    )


def _build(kind: type[_Part], values: object, at: str) -> _Part:
    """Return a step of that kind. Raises ConfigError that names a field which is unknown or has a wrong value."""
    from pydantic import TypeAdapter, ValidationError

    if not isinstance(values, dict):
        raise ConfigError(f"{at}: an object is needed, not {type(values).__name__}")
    field_names = [f.name for f in fields(kind)]
    if unknown := [name for name in values if name not in field_names]:
        names = {"text": "say", "sample": "fail"}
        raise ConfigError(
            f"{at}: unknown field {unknown[0]!r}{_nearest(unknown[0], [names.get(n, n) for n in field_names])}"
        )
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{at}: {where}: {first['msg']}") from None
    except ConfigError as error:
        raise ConfigError(f"{at}: {error}") from None


def _nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint at the most similar name, else all of them."""
    names = list(names)
    close = get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f"; there are: {', '.join(names)}"
