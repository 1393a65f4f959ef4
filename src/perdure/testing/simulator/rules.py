"""Options, violations and refusals of the simulated services."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.testing.simulator.tokens import count_text

Overflow = Literal["error", "stop_reason"]


@dataclass(frozen=True, slots=True)
class Rules:
    """Options of a simulator. The defaults are what the services do today; `strict()` combines the strictest."""

    window: int = 200_000
    max_output: int = 16_384
    # None: any key is accepted. Otherwise other keys get 401.
    api_key: str | None = None
    # Empty: any model is accepted. Otherwise other models get 404.
    models: tuple[str, ...] = ()
    # Older and Bedrock routes of Anthropic and many compatible servers refuse two equal roles in a row.
    needs_alternation: bool = False
    # Newest Anthropic models refuse a trailing assistant message.
    allows_prefill: bool = True
    # Some clones of the Responses API require a call's output right after the call.
    needs_adjacency: bool = False
    # Moonshot and Mistral refuse empty messages; OpenAI accepts them.
    needs_content: bool = False
    # vLLM and others parse the arguments of earlier calls, and reject anything but a JSON object.
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
    """Return the strictest rules: a request valid here is valid everywhere."""
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
    """A rule a request violated, and the error message."""

    path: str
    rule: str
    message: str


class SimulatedRefusal(Exception):
    """A refused request. `rule` is the violated rule; None for limits and keys."""

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
    """Return a refusal for size, which is not a violation."""
    return SimulatedRefusal(message, rule=None, **fields)


@dataclass(frozen=True, slots=True)
class Issued:
    """Reasoning the service issued and requires back unchanged."""

    # Thinking blocks of Messages, by the tool_use id they were issued with.
    thinking: dict[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    # Calls of Chat Completions issued with reasoning.
    reasoned_calls: set[str] = field(default_factory=set)
    # Encrypted reasoning issued.
    sealed: set[str] = field(default_factory=set)
    # The reasoning item that preceded an output item of Responses.
    reasoning_of: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def seal(text: str) -> str:
        """Return a signature over reasoning text."""
        return f"sig_{count_text(text):x}_{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(b"simulator" + text.encode("utf-8", "replace")).hexdigest()[:32]


def words(text: str) -> frozenset[str]:
    """Split a line into a set of names, for the tables of allowed keys."""
    return frozenset(text.split())
