"""The simulator's Anthropic protocol in process: real request bodies, strict rules, a window, and every price system.

A request is built, parsed and validated as it would be on the wire; only the socket is left out. The same prompt is
then looked up in one prompt cache per price system, so that one replay has the bill of each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from perdure.core.errors import ProviderError
from perdure.core.usage import CanonicalUsage
from perdure.providers import anthropic_messages
from perdure.providers.errors.classify import classify_error
from perdure.providers.errors.messages import EndpointLabel, refusal_error
from perdure.providers.types import Endpoint, ModelRequest, Reply, RequestEvent
from perdure.testing.simulator import Rules, RuleViolation, Say, messages
from perdure.testing.simulator.rules import Issued, SimulatedRefusal
from perdure.testing.simulator.tokens import CacheUse, MarkCache, PrefixCache, PromptBlock, count_blocks
from perdure.testing.simulator.turn import Scene, take_turn

_PATH = "/v1/messages"
_ANY_OUTPUT = 10**9


class CacheModel(Protocol):
    """The prompt cache and billing of one service; `bill` looks the prompt up in its cache and stores it there."""

    def bill(self, blocks: Sequence[PromptBlock], seed: bytes) -> CanonicalUsage:
        """Return the usage of a prompt by cache class, without output."""
        ...


class MarkedPrefixes:
    """The prompt cache of Anthropic: entries at cache_control marks, for five minutes or an hour after last use."""

    def __init__(self, now_s: Callable[[], float], *, minimum: int, is_hour: bool = False) -> None:
        self._cache = MarkCache(now_s)
        self._minimum = minimum
        self._is_hour = is_hour

    def bill(self, blocks: Sequence[PromptBlock], seed: bytes) -> CanonicalUsage:
        if self._is_hour:
            blocks = [replace(b, mark="1h") if b.mark is not None else b for b in blocks]
        use = self._cache.look_up(blocks, minimum=self._minimum, messages_seed=seed)
        self._cache.keep(use)
        return _usage(count_blocks(blocks), use, reports_writes=True)


class AutomaticPrefixes:
    """The prompt cache of OpenAI and DeepSeek: every prompt is cached, in steps of its prefix."""

    def __init__(
        self, now_s: Callable[[], float], *, reports_writes: bool, step: int, minimum: int, ttl_s: float
    ) -> None:
        self._cache = PrefixCache(now_s, step=step, minimum=minimum, ttl_s=ttl_s)
        self._reports_writes = reports_writes

    def bill(self, blocks: Sequence[PromptBlock], seed: bytes) -> CanonicalUsage:
        use = self._cache.look_up(blocks)
        self._cache.keep(use)
        return _usage(count_blocks(blocks), use, reports_writes=self._reports_writes)


def _usage(prompt_tokens: int, use: CacheUse, *, reports_writes: bool) -> CanonicalUsage:
    written = use.write_tokens if reports_writes else 0
    return CanonicalUsage(
        input_tokens=prompt_tokens - use.read_tokens - written,
        cache_read_tokens=use.read_tokens,
        cache_write_tokens=written,
        cache_write_1h_tokens=use.write_1h_tokens,
    )


@dataclass(frozen=True, slots=True)
class ReplayCall:
    """One request of a replay with its usage under each price system."""

    # "main", or "summary" for a call of the context engine.
    task: str
    at_s: float
    prompt_tokens: int
    # By price system, output included.
    usages: dict[str, CanonicalUsage]
    # The request's text as bytes, for the measures; dropped once they have read it.
    prompt: bytes = field(default=b"", repr=False)


class ReplayProvider:
    """Answers the requests of a replayed agent (the Send port). `reply` writes each answer; each of `systems` bills it.

    The usage of the first price system is what the agent sees.
    """

    def __init__(
        self,
        rules: Rules,
        systems: dict[str, CacheModel],
        *,
        reply: Callable[[ModelRequest], Say],
        now_s: Callable[[], float],
        on_call: Callable[[ReplayCall], None],
    ) -> None:
        self._rules = rules
        self._systems = systems
        self._reply = reply
        self._now_s = now_s
        self._on_call = on_call
        self._issued = Issued()
        self._count = 0
        self.violations: list[RuleViolation] = []
        # Prompts that the service refused because they exceed the window.
        self.overflows = 0

    async def __call__(
        self, endpoint: Endpoint, request: ModelRequest, *, on_event: Callable[[RequestEvent], None] | None = None
    ) -> Reply:
        try:
            return self._answer(request)
        except SimulatedRefusal as refusal:
            raise self._error(endpoint, refusal) from None

    def _answer(self, request: ModelRequest) -> Reply:
        self._count += 1
        body = json.loads(anthropic_messages.build(replace(request, is_streaming=False)))
        messages.check(body, self._rules, self._issued)
        blocks = messages.blocks(body)
        messages.check_size(body, blocks, self._rules)
        say = self._reply(request)
        prompt_tokens = count_blocks(blocks)
        is_main = bool(request.system)
        limit = messages.requested_output(body) or self._rules.max_output
        turn = take_turn(
            say,
            number=self._count,
            model=request.model,
            created_s=int(self._now_s()),
            # A recorded reply was whole once, whatever allowance a replay has.
            max_output=_ANY_OUTPUT if is_main else limit,
            ending="length",
        )
        seed = messages.messages_seed(body, blocks)
        usages = {
            name: replace(
                system.bill(blocks, seed),
                output_tokens=turn.output_tokens,
                reasoning_tokens=turn.thinking_tokens,
            )
            for name, system in self._systems.items()
        }
        turn = replace(turn, usage=next(iter(usages.values())))
        prompt = b"\n".join(b.data for b in blocks if b.level != "tools") if is_main else b""
        call = ReplayCall("main" if is_main else "summary", self._now_s(), prompt_tokens, usages, prompt)
        self._on_call(call)
        return anthropic_messages.parse(messages.render_body(turn, Scene(body, self._rules, self._issued, True)))

    def _error(self, endpoint: Endpoint, refusal: SimulatedRefusal) -> ProviderError:
        if refusal.rule is not None:
            self.violations.append(RuleViolation(_PATH, refusal.rule, refusal.message))
        else:
            self.overflows += 1
        verdict = classify_error(refusal.status, json.dumps(messages.error_body(refusal)))
        return refusal_error(EndpointLabel.of(endpoint), verdict)
