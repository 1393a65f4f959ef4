"""Decide by cost when to compact: what a compaction costs now against what it saves in later calls.

A compaction replaces the prompt after the system prompt, so that the next request writes a new prefix to the
provider's cache instead of reading the old one, and the summary is billed too. Every later request is then smaller.
While the old prefix is cached, the first outweighs the second in short conversations; once it has expired, a request
without a compaction would have to write all of it again.

`decide` is the whole rule, a pure function of `CostInputs`. `CostRule` collects them for one conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from perdure.agent.deps import AgentDeps
from perdure.agent.session import LiveSession
from perdure.config.sections import CompressionSettings
from perdure.core.usage import CanonicalUsage
from perdure.providers.codec import prefix_lifetime_s
from perdure.providers.types import Endpoint
from perdure.store.records import CallRecord, RouteRecord

Action = Literal["compact", "wait"]
# Why the provider's cache does not hold the prefix; None: it does, as far as is known.
ColdCause = Literal["expired", "other model"]

# Newest calls of a resumed conversation that are read.
_CALLS_READ = 200
# A summary reads and writes about this many tokens (docs/compaction.md).
_SUMMARY_INPUT_TOKENS, _SUMMARY_OUTPUT_TOKENS = 13_000, 3_000
# Small enough for the base price of models that bill long prompts higher.
_SAMPLE_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """US dollars for one prompt token: read from the provider's prompt cache, and written to it."""

    read_usd: float
    write_usd: float


@dataclass(frozen=True, slots=True)
class CostInputs:
    """Inputs of the cost rule: prompt sizes, state of the prompt cache, expected calls, prices and settings."""

    # The prompt that is judged, and the least and the largest one the rule decides about.
    prompt_tokens: int
    threshold_tokens: int
    room_tokens: int
    # The prompt after a compaction, and the part of it that stays cached: system prompt and tools.
    after_tokens: int
    fixed_tokens: int
    cold: ColdCause | None
    # Calls that the conversation is expected to make still, and those since its last compaction; None: it had none.
    remaining_calls: int
    calls_since: int | None
    summary_usd: float
    # None where the model's prices are unknown, or it is free.
    prices: TokenPrices | None
    settings: CompressionSettings
    # The user undid the last compaction.
    was_undone: bool = False

    @property
    def cost_usd(self) -> float:
        """The cost that a compaction adds to the next request, its summary included; may be negative."""
        if self.prices is None:
            return self.summary_usd
        read, write = self.prices.read_usd, self.prices.write_usd
        if self.cold is not None:
            return self.summary_usd - self._freed_tokens * write
        rewritten = max(0, self.after_tokens - self.fixed_tokens)
        return self.summary_usd + rewritten * write + self.fixed_tokens * read - self.prompt_tokens * read

    @property
    def saving_usd(self) -> float:
        """The money that a compaction saves in the calls after the next one, by their smaller prompts."""
        return 0.0 if self.prices is None else self._freed_tokens * self.prices.read_usd * self.remaining_calls

    @property
    def _freed_tokens(self) -> int:
        return max(0, self.prompt_tokens - self.after_tokens)


@dataclass(frozen=True, slots=True)
class CostDecision:
    """The decision to compact or to wait, with a one-line reason for the user."""

    action: Action
    reason: str


_COLD_REASONS: dict[ColdCause, str] = {
    "expired": "the cached prefix has expired",
    "other model": "this model has no cached prefix yet",
}


def decide(inputs: CostInputs) -> CostDecision:
    """Decide whether to compact now.

    A prompt that fills the room of the window is always compacted, and after an undo no smaller one is. Without a rule,
    or without prices, the threshold alone decides.
    """
    settings, prompt = inputs.settings, inputs.prompt_tokens
    if prompt >= inputs.room_tokens:
        return CostDecision("compact", "the window is full")
    if inputs.was_undone:
        held_back = "held back, since you undid the last one"
        return CostDecision("wait", f"{held_back}; the next comes at {inputs.room_tokens:,} tokens")
    is_due = prompt >= inputs.threshold_tokens
    at_threshold = CostDecision("compact" if is_due else "wait", _threshold_reason(inputs))
    if settings.cost_rule == "off" or inputs.prices is None:
        return at_threshold
    is_burst = inputs.calls_since is not None and inputs.calls_since < settings.cost_min_calls
    if is_due:
        return _decide_to_wait(inputs, is_burst) or at_threshold
    floor = int(settings.cost_floor * inputs.threshold_tokens)
    if settings.cost_rule == "delay" or inputs.cold is None or prompt < floor:
        return at_threshold
    cold = _COLD_REASONS[inputs.cold]
    if is_burst:
        return CostDecision("wait", f"{cold}, but the last compaction was {_calls(inputs.calls_since)} ago")
    if inputs.saving_usd <= inputs.cost_usd:
        return CostDecision("wait", f"{cold}, but a compaction would not pay ({_amounts(inputs)})")
    return CostDecision("compact", f"{cold}: {_amounts(inputs)}")


def _decide_to_wait(inputs: CostInputs, is_burst: bool) -> CostDecision | None:
    """Return the decision to wait although the threshold is reached.

    None if the rule does not delay this compaction.
    """
    settings = inputs.settings
    if settings.cost_rule == "advance" or inputs.prompt_tokens >= _limit(inputs):
        return None
    if is_burst:
        return CostDecision("wait", f"the last compaction was {_calls(inputs.calls_since)} ago")
    if inputs.saving_usd > inputs.cost_usd:
        return None
    return CostDecision("wait", f"a compaction would not pay yet ({_amounts(inputs)})")


def _limit(inputs: CostInputs) -> int:
    """Return the prompt size up to which a compaction may be delayed."""
    room = inputs.room_tokens - inputs.threshold_tokens
    return int(inputs.threshold_tokens + inputs.settings.cost_delay * room)


def _threshold_reason(inputs: CostInputs) -> str:
    sign = "reached" if inputs.prompt_tokens >= inputs.threshold_tokens else "not reached"
    return f"the threshold of {inputs.threshold_tokens:,} tokens is {sign}"


def _calls(count: int | None) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _amounts(inputs: CostInputs) -> str:
    cost, calls = inputs.cost_usd, _calls(inputs.remaining_calls)
    now = f"costs ${cost:.3f} now" if cost >= 0 else f"saves ${-cost:.3f} now"
    return f"{now}, saves ${inputs.saving_usd:.3f} in {calls}"


class CostRule:
    """Applies the cost rule to one conversation: collects its inputs from the recorded calls and the model's prices."""

    def __init__(self, deps: AgentDeps, live: LiveSession) -> None:
        self._deps = deps
        self._live = live
        self._is_loaded = False
        self._calls = 0
        self._last: tuple[RouteRecord, int] | None = None
        # Of the current session, which a compaction replaces.
        self._session_id = live.id
        self._session_calls = 0
        self._first_prompt_tokens: int | None = None
        # Prices by endpoint, and the cost of a summary there: a look-up in the catalogue takes a millisecond.
        self._looked_up: dict[tuple[str, str, str], tuple[TokenPrices | None, float]] = {}

    @property
    def is_on(self) -> bool:
        return self._settings.cost_rule != "off"

    @property
    def is_held_back(self) -> bool:
        """Whether the user undid the last compaction, and the window still has room for an answer."""
        window = self._live.window
        if window is None or not self._live.was_undone:
            return False
        return self._live.counter.estimate < window.budgets.largest_prompt_tokens

    @property
    def is_near(self) -> bool:
        """Whether the next prompt is large enough for the rule to matter; below that the calls need not be loaded."""
        window = self._live.window
        floor = self._settings.cost_floor * window.threshold_tokens if window is not None else 0
        return self.is_on and window is not None and self._live.counter.estimate >= floor

    @property
    def _settings(self) -> CompressionSettings:
        return self._deps.settings.compression

    def load(self) -> None:
        """Read the calls of a resumed conversation, once. Blocks: for a worker thread."""
        if self._is_loaded:
            return
        recent = self._deps.store.ledger.calls(self._live.conversation_id, limit=_CALLS_READ)
        self._is_loaded = True
        for call in recent:
            if call.task == "main" and not call.verdict:
                self._add(call)

    def record(self, call: CallRecord) -> None:
        """Count a call of this process; before `load` it is ignored, since `load` reads it from the store."""
        if self._is_loaded:
            self._add(call)

    def _add(self, call: CallRecord) -> None:
        if call.session_id != self._session_id:
            self._session_id, self._session_calls, self._first_prompt_tokens = call.session_id, 0, None
        self._calls += 1
        self._session_calls += 1
        # A prefix lives from its last use, which is the start of a request.
        self._last = (call.route, call.started_at_ms)
        if self._first_prompt_tokens is None and call.usage.reported and call.usage.prompt_tokens > 0:
            self._first_prompt_tokens = call.usage.prompt_tokens

    def judged_tokens(self, prompt_tokens: int, *, is_idle: bool = False) -> int:
        """Return the prompt size to pass to the engine's `should_compress` so that it follows the cost rule.

        The threshold where the rule compacts early, one token less where it waits. The engine may still refuse.
        """
        decision = self.decide(prompt_tokens, is_idle=is_idle) if self.is_on else None
        if decision is None or self._live.window is None:
            return prompt_tokens
        threshold = self._live.window.threshold_tokens
        return max(prompt_tokens, threshold) if decision.action == "compact" else min(prompt_tokens, threshold - 1)

    def is_advanced(self, prompt_tokens: int) -> bool:
        """Whether a compaction of this prompt would be an early one of the cost rule: it is below the threshold."""
        window, estimate = self._live.window, self._live.counter.estimate
        if not self.is_on or window is None:
            return False
        return prompt_tokens < window.threshold_tokens and estimate <= window.budgets.largest_prompt_tokens

    def explain(self) -> CostDecision | None:
        """Return the decision for the next message as things are now; None until the window is known. Blocks."""
        self.load()
        return self.decide(self._live.counter.estimate)

    def describe(self) -> str:
        """Describe what the cost rule changes, with its limits in tokens and the name of the setting.

        Returns "" until the window is known, and where the default rule has no effect.
        """
        inputs, settings = self.inputs(self._live.counter.estimate), self._settings
        if inputs is None or self.is_held_back:
            return ""
        name, endpoint = f"compression.cost_rule {settings.cost_rule}", self._deps.routes.endpoint
        if settings.cost_rule == "off":
            return f"the threshold alone decides ({name})"
        if inputs.prices is None:
            if settings.cost_rule == type(settings).model_fields["cost_rule"].default:
                return ""
            return f"{name} has no effect: {endpoint.model} is free or its prices are not known"
        parts: list[str] = []
        if settings.cost_rule != "delay":
            lifetime_s = prefix_lifetime_s(endpoint, self._deps.settings.prompt_caching.cache_ttl)
            pause = f"{lifetime_s / 60:,.0f} minutes without a request, or " if lifetime_s is not None else ""
            floor = int(settings.cost_floor * inputs.threshold_tokens)
            parts.append(f"earlier, from {floor:,} tokens, after {pause}a change of model")
        if settings.cost_rule != "advance":
            parts.append(f"later, up to {_limit(inputs):,} tokens, while it would not pay")
        if settings.cost_while_idle:
            parts.append("at the end of a turn")
        return f"to save cost it may come {'; or '.join(parts)} ({name})"

    def decide(self, prompt_tokens: int, *, is_idle: bool = False) -> CostDecision | None:
        """Decide about a prompt of this size (`is_idle`: at the end of a turn); None until the window is known."""
        inputs = self.inputs(prompt_tokens)
        if inputs is not None and is_idle and self._settings.cost_while_idle:
            # By the next message it will probably have expired.
            inputs = replace(inputs, cold="expired")
        return decide(inputs) if inputs is not None else None

    def inputs(self, prompt_tokens: int) -> CostInputs | None:
        """Collect the inputs of the decision about a prompt of this size; None until the window is known."""
        window, counter = self._live.window, self._live.counter
        if window is None:
            return None
        budgets, endpoint = window.budgets, self._deps.routes.endpoint
        key = (endpoint.provider, endpoint.model, endpoint.base_url)
        if key not in self._looked_up:
            self._looked_up[key] = (self._prices(endpoint), self._summary_usd(endpoint))
        prices, summary_usd = self._looked_up[key]
        is_continued = self._live.session.began_by == "compression"
        is_current = self._session_id == self._live.id
        after = counter.fixed_tokens + budgets.head_tokens + budgets.handoff_tokens + budgets.tail_tokens
        if is_continued and is_current and self._first_prompt_tokens is not None:
            after = self._first_prompt_tokens
        return CostInputs(
            prompt_tokens=prompt_tokens,
            threshold_tokens=budgets.threshold_tokens,
            room_tokens=budgets.largest_prompt_tokens,
            after_tokens=after,
            fixed_tokens=counter.fixed_tokens,
            cold=self._cold_cause(),
            # A conversation that has lasted long is expected to last as long again.
            remaining_calls=self._settings.cost_expected_calls or max(1, self._calls),
            calls_since=(self._session_calls if is_current else 0) if is_continued else None,
            summary_usd=summary_usd if self._settings.summarize else 0.0,
            prices=prices,
            settings=self._settings,
            was_undone=self._live.was_undone,
        )

    def _cold_cause(self) -> ColdCause | None:
        if self._last is None:
            return None
        (route, started_at_ms), endpoint = self._last, self._deps.routes.endpoint
        if (route.provider, route.model) != (endpoint.provider, endpoint.model):
            return "other model"
        lifetime_s = prefix_lifetime_s(endpoint, self._deps.settings.prompt_caching.cache_ttl)
        idle_s = (self._deps.clock.now_ms() - started_at_ms) / 1_000
        return "expired" if lifetime_s is not None and idle_s >= lifetime_s else None

    def _prices(self, endpoint: Endpoint) -> TokenPrices | None:
        n = _SAMPLE_TOKENS
        is_hour = self._deps.settings.prompt_caching.cache_ttl == "1h"
        written = CanonicalUsage(cache_write_tokens=n, cache_write_1h_tokens=n if is_hour else 0)
        fresh, read, write = (
            self._deps.models.cost_usd(endpoint, usage)
            for usage in (CanonicalUsage(input_tokens=n), CanonicalUsage(cache_read_tokens=n), written)
        )
        if not fresh:
            return None
        return TokenPrices((fresh if read is None else read) / n, (fresh if write is None else write) / n)

    def _summary_usd(self, endpoint: Endpoint) -> float:
        """Return about what a summary of the history costs, at the prices of the main model."""
        usage = CanonicalUsage(input_tokens=_SUMMARY_INPUT_TOKENS, output_tokens=_SUMMARY_OUTPUT_TOKENS)
        return self._deps.models.cost_usd(endpoint, usage) or 0.0
