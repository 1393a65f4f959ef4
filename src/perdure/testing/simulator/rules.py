"""What a simulated service insists on, and what it says when it is not given that."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.testing.simulator.tokens import count_text

Overflow = Literal["error", "stop_reason"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The switches of a simulator. The defaults are what the services do today; `strict()` is the worst of them all."""

    window: int = 200_000
    max_output: int = 16_384
    # None: any key will do. Set, a request with another one is answered 401.
    api_key: str | None = None
    # Empty: every model is known. Set, any other is answered 404.
    models: tuple[str, ...] = ()
    # Older and Bedrock routes of Anthropic and many compatible servers refuse two equal roles in a row.
    needs_alternation: bool = False
    # Newest Anthropic models refuse a trailing assistant message.
    allows_prefill: bool = True
    # Some clones of the Responses API want a call's output right behind the call.
    needs_adjacency: bool = False
    # Moonshot and Mistral refuse messages that say nothing; OpenAI takes them.
    needs_content: bool = False
    # vLLM and others parse the arguments of earlier calls, and refuse what is no JSON object.
    needs_json_arguments: bool = False
    # Thinking models of Moonshot and DeepSeek want their reasoning back until the tool loop it belongs to is over.
    needs_loop_reasoning: bool = False
    # The most images and documents Anthropic takes in one request.
    max_images: int = 100
    # Below so many tokens Anthropic caches nothing, silently: 512, 1,024 or 4,096 by model.
    cache_minimum: int = 1024
    # Newest OpenAI models report (and bill) what they write to the cache.
    reports_cache_writes: bool = False
    # Newest Anthropic models do not refuse input + max_tokens > window: they stop when the window is full.
    sum_overflow: Overflow = "error"
    # The Responses API may report an overflow inside a stream that has begun.
    overflows_in_stream: bool = False
    # The key a chat completion's thinking comes under: DeepSeek and vLLM use the first, OpenRouter the second.
    chat_thinking_key: Literal["reasoning_content", "reasoning"] = "reasoning_content"


def strict(**changes: Any) -> Rules:
    """Every switch at its strictest: what passes here passes everywhere."""
    base: dict[str, Any] = {
        "needs_alternation": True,
        "allows_prefill": False,
        "needs_adjacency": True,
        "needs_content": True,
        "needs_json_arguments": True,
        "needs_loop_reasoning": True,
        "max_images": 20,
    }
    return Rules(**{**base, **changes})


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A rule a request broke, and what the service answered."""

    path: str
    rule: str
    message: str


class SimulatedRefusal(Exception):
    """A request that is not answered with a reply. `rule` names what it broke; limits and keys are no rule."""

    def __init__(
        self,
        message: str,
        *,
        rule: str | None = "shape",
        status: int = 400,
        error_type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule
        self.status = status
        self.error_type = error_type
        self.param = param
        self.code = code


def limit(message: str, **fields: Any) -> SimulatedRefusal:
    """A refusal for size: nothing is wrong with the request but that it does not fit."""
    return SimulatedRefusal(message, rule=None, **fields)


@dataclass(frozen=True, slots=True)
class Issued:
    """What the service itself gave out, which it wants back as it was."""

    # Thinking blocks of Messages, by the tool_use id they were given out with.
    thinking: dict[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    # Calls of Chat Completions that were given out behind some reasoning.
    reasoned_calls: set[str] = field(default_factory=set)
    # Encrypted reasoning given out.
    sealed: set[str] = field(default_factory=set)
    # The reasoning item an output item of Responses was given out behind.
    reasoning_of: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def seal(text: str) -> str:
        """A signature over a thought: stands and falls with its text."""
        return f"sig_{count_text(text):x}_{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(b"simulator" + text.encode("utf-8", "replace")).hexdigest()[:32]


def words(text: str) -> frozenset[str]:
    """The names in a line: how the tables of allowed keys are written."""
    return frozenset(text.split())
