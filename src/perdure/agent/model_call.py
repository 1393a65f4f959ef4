"""One model call with recovery: retry, lower the output cap, compact, reroute, give up with advice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from perdure.agent.compaction import Emit, compact
from perdure.agent.context_usage import budgets_for
from perdure.agent.deps import AgentDeps
from perdure.agent.gate import Gate
from perdure.agent.session import LiveSession
from perdure.core.error_policy import POLICIES, RecoveryAction
from perdure.core.errors import ErrorKind, ErrorVerdict, ProviderError
from perdure.core.events import CallFinished, CallStarted, ModelSwitched, Notice, Recovered, TextDelta
from perdure.core.messages import Message
from perdure.core.usage import NOT_BILLED, NOT_REPORTED, CanonicalUsage
from perdure.models.windows import plausible_window, step_down
from perdure.providers.protocols import default_max_tokens
from perdure.providers.routes import adapt_request
from perdure.providers.types import Delta, Endpoint, ModelRequest, Reply
from perdure.store.records import CallRecord, RouteRecord, StoredEvent
from perdure.tools.output_limits import OutputLimits

if TYPE_CHECKING:
    from perdure.config.settings import Settings

Action = RecoveryAction | Literal["give_up"]

# Fixed: three passes that did not help will not help a fourth time.
MAX_COMPACTIONS = 3
MAX_LOWERED = 3
LEAST_OUTPUT_TOKENS = 16
OUTPUT_MARGIN_TOKENS = 64

# Appended to the provider's message, which names the key, address or model to check.
ADVICE: dict[ErrorKind, str] = {
    "prompt_too_long": "The conversation does not fit the model's window. Start afresh with /new, "
    "compact around one topic with /compress TOPIC, or choose a model with a larger window with /model.",
    "output_cap": "The service refuses the output allowance. Lower model.max_tokens.",
    "rate_limit": "Try again in a while, or add fallback_providers.",
    "overloaded": "Try again in a while, or add fallback_providers.",
    "auth": "A key that expires can be fetched anew by credentials.command.",
    "quota": "With fallback_providers set, another service would go on from here.",
    "transport": "Try again in a while; with fallback_providers set, another service would go on from here.",
    "unknown": "The service failed in a way Perdure does not know. Try again.",
    "bad_request": "It would be refused again as it is: change what it names, or choose another model with /model.",
}

TOO_MANY_IMAGES = (
    "Send fewer images with one message, compact the conversation with /compress, or choose another model with /model."
)


@dataclass(slots=True)
class Attempts:
    """Recovery actions already tried for one call."""

    compactions: int = 0
    lowered: int = 0
    has_dropped_images: bool = False
    # The output allowance this call was lowered to; None: it goes out as configured.
    output_tokens: int | None = None
    # It was lowered because the endpoint takes no more, whatever the prompt: worth remembering once it is accepted.
    has_found_cap: bool = False
    is_route_used_up: bool = False
    # The last compaction left the request as it was: sent again it would be refused again.
    is_nothing_left: bool = False

    def next_action(self, verdict: ErrorVerdict, *, may_compact: bool) -> Action:
        """Return the next recovery action and count it; "give_up" when none is left."""
        for action in POLICIES[verdict.kind].recovery:
            if action == "compact" and may_compact and not self.is_nothing_left and self.count_compaction():
                return action
            if action == "lower_output" and self.lowered < MAX_LOWERED:
                self.lowered += 1
                return action
            if action == "drop_images" and verdict.image_limit and not self.has_dropped_images:
                self.has_dropped_images = True
                return action
            if action == "reroute" and not self.is_route_used_up:
                return action
        return "give_up"

    def count_compaction(self) -> bool:
        """Count one compaction attempt; False once the limit is reached."""
        if self.compactions >= MAX_COMPACTIONS:
            return False
        self.compactions += 1
        return True

    def lower_output(self, verdict: ErrorVerdict, asked_tokens: int | None) -> None:
        """Set the max_tokens to try next."""
        self.output_tokens = lower_output_cap(verdict, asked_tokens)
        # With a window or a rate limit stated, the allowance follows from this prompt and holds for no other.
        self.has_found_cap = verdict.context_limit is None and verdict.request_limit is None

    def forget_output(self) -> None:
        """Reset the output cap after a switch of endpoint."""
        self.output_tokens, self.has_found_cap = None, False


def lower_output_cap(verdict: ErrorVerdict, asked_tokens: int | None) -> int:
    """The next max_tokens to try: the stated limit, else half of the last one."""
    if verdict.output_limit and verdict.output_limit > 0 and verdict.output_limit != asked_tokens:
        return max(LEAST_OUTPUT_TOKENS, verdict.output_limit)
    return max(LEAST_OUTPUT_TOKENS, (asked_tokens or 8_192) // 2)


def advice(verdict: ErrorVerdict, attempts: Attempts) -> str:
    """Build the final error message: what happened, what was tried, what to do next."""
    tried, count = "", attempts.compactions
    if attempts.is_nothing_left:
        tried = " Nothing more could be compacted."
    elif count:
        tried = f" Compacted {count} time{'s' if count > 1 else ''} without success."
    text = verdict.message.strip().rstrip(".")
    what_next = TOO_MANY_IMAGES if verdict.image_limit is not None else ADVICE[verdict.kind]
    return f"{text or 'The call failed'}.{tried} {what_next} Nothing of the conversation is lost."


@dataclass(frozen=True, slots=True)
class CallCost:
    """Usage and cost of one call."""

    usage: CanonicalUsage
    cost_usd: float | None


class ModelCaller:
    """Make the model calls of one conversation and learn its limits."""

    def __init__(self, parts: AgentDeps, live: LiveSession, gate: Gate, emit: Emit) -> None:
        self._parts = parts
        self._live = live
        self._gate = gate
        self._emit = emit
        self._window: int | None = None
        # Image limit stated by the current endpoint.
        self._image_limit: int | None = None
        self._calls: list[CallCost] = []

    @property
    def calls(self) -> Sequence[CallCost]:
        """The calls of the current turn."""
        return self._calls

    def begin_turn(self) -> None:
        self._calls = []

    async def ask(self, task_id: str, *, extra_system: str = "", with_tools: bool = True) -> Reply:
        """Request a reply to the current history. Raises ProviderError with advice once recovery is exhausted."""
        attempts = Attempts()
        while True:
            await self.fit_window()
            if self._image_limit is not None:
                self._live.limit_images(self._image_limit)
            endpoint = self._parts.routes.endpoint
            max_tokens = self._allowance(attempts)
            request = self._request(max_tokens, extra_system=extra_system, with_tools=with_tools)
            try:
                reply = await self._send(request, task_id)
                # Imported late, with the protocol that made the reply: error patterns are slow to compile.
                from perdure.providers.errors.classify import overflow_verdict

                if (overflow := overflow_verdict(reply, window=self._window)) is None:
                    if attempts.has_found_cap and max_tokens is not None:
                        self._parts.models.learn_limits(endpoint, output=max_tokens)
                    return reply
                failure = ProviderError(overflow)
            except ProviderError as error:
                failure = error
            await self._recover(failure, attempts, max_tokens)

    def _allowance(self, attempts: Attempts) -> int | None:
        """The max_tokens of the request: lowered for this call, else the setting, within the endpoint's cap and the
        room the prompt leaves in the window."""
        if attempts.output_tokens is not None:
            return attempts.output_tokens
        endpoint = self._parts.routes.endpoint
        chosen = self._parts.settings.model.max_tokens
        cap = self._parts.models.output_cap_of(endpoint)
        allowance = min(chosen, cap) if chosen is not None and cap is not None else chosen or cap
        effective, room = allowance or default_max_tokens(endpoint), self._output_room()
        return room if effective is not None and LEAST_OUTPUT_TOKENS <= room < effective else allowance

    def _output_room(self) -> int:
        """The tokens the prompt leaves in the window, with a margin for the part that is only estimated."""
        counter = self._live.counter
        return (self._window or 0) - counter.estimate - counter.appended_tokens // 8 - OUTPUT_MARGIN_TOKENS

    async def fit_window(self) -> int:
        """Resolve the window of the current endpoint once and update everything derived from it."""
        if self._window is None:
            await self._set_window(await self._parts.models.window_of(self._parts.routes.endpoint))
        assert self._window is not None
        for text in self._parts.engine.take_notices():
            self._emit(Notice(text))
        return self._window

    def model_changed(self) -> None:
        """Reset window and calibration after a switch of endpoint."""
        self._window = None
        self._image_limit = None
        # Unknown until it is asked for: the old model's would be wrong.
        self._gate.budgets = self._live.threshold_tokens = None
        self._live.follow_model()
        self._gate.forget_preparation()

    # -- one attempt -------------------------------------------------------------------------------------------------

    def _request(self, max_tokens: int | None, *, extra_system: str, with_tools: bool) -> ModelRequest:
        parts, live = self._parts, self._live
        endpoint, settings = parts.routes.endpoint, parts.settings.model
        blocks = (*live.system_blocks, extra_system) if extra_system else live.system_blocks
        request = ModelRequest(
            model=endpoint.model,
            entries=live.projection.entries(),
            system=blocks,
            tools=live.tools if with_tools else (),
            max_tokens=max_tokens,
            temperature=settings.temperature,
            reasoning_effort=settings.reasoning_effort,
            is_streaming=parts.settings.display.streaming,
        )
        return adapt_request(request, endpoint, cache_ttl=parts.settings.prompt_caching.cache_ttl)

    async def _send(self, request: ModelRequest, task_id: str) -> Reply:
        """Send one attempt and record it, whatever its outcome."""
        endpoint, estimate = self._parts.routes.endpoint, self._live.counter.estimate
        budgets = self._gate.budgets
        threshold = budgets.threshold_tokens if budgets is not None else 0
        started_ms = self._parts.clock.now_ms()
        self._live.counter.begin_call()
        self._emit(CallStarted(endpoint.model, estimate, self._window or 0, threshold, endpoint.provider))
        record = _Record(
            task_id, endpoint, estimate, self._window, threshold, self._live.composition.as_dict(estimate), started_ms
        )
        tee = _StreamTee(self._emit)
        try:
            reply = await self._parts.send(endpoint, request, on_event=tee)
        except ProviderError as error:
            usage = NOT_REPORTED if error.may_be_billed else NOT_BILLED
            self._cut_off(record, tee, error.verdict.kind, usage=usage)
            raise
        except asyncio.CancelledError:
            self._cut_off(record, tee, "interrupted")
            raise
        call = self._call_record(record, reply.usage, "")
        await self._parts.keep(partial(self._learn, endpoint, call))
        self._tell_finished(record, call)
        return reply

    def _learn(self, endpoint: Endpoint, call: CallRecord) -> None:
        """Record a call and update the token calibration."""
        self._parts.store.ledger.record_call(call)
        self._live.counter.observe(call.usage)
        self._parts.keep_calibration(endpoint, self._live.counter.calibration)
        self._parts.engine.update_from_response(call.usage)

    def _cut_off(self, record: _Record, tee: _StreamTee, why: str, *, usage: CanonicalUsage = NOT_REPORTED) -> None:
        """Record the call as unreported, or as free if it was refused; partial text becomes an event, never history."""
        call = self._call_record(record, usage, why)
        # Inline: an interrupted turn does not wait.
        self._parts.store.ledger.record_call(call)
        self._tell_finished(record, call)
        if tee.text:
            payload = {"text": tee.text, "why": why, "turn": record.task_id}
            self._parts.store.ledger.record_event(StoredEvent(self._live.id, "partial_reply", payload))

    def _call_record(self, record: _Record, usage: CanonicalUsage, verdict: str) -> CallRecord:
        """Build the ledger record of a call."""
        cost = self._parts.models.cost_usd(record.endpoint, usage) if usage.reported else None
        self._calls.append(CallCost(usage, cost))
        return record.call(self._live.id, usage, cost, verdict, ended_ms=self._parts.clock.now_ms())

    def _tell_finished(self, record: _Record, call: CallRecord) -> None:
        where = record.endpoint
        self._emit(CallFinished(where.model, call.usage, call.cost_usd, where.provider, call.verdict))

    # -- what is done about a failure --------------------------------------------------------------------------------

    async def _recover(self, failure: ProviderError, attempts: Attempts, max_tokens: int | None) -> None:
        """Apply the next recovery action. Raises the error when none is left."""
        verdict = failure.verdict
        action = attempts.next_action(verdict, may_compact=self._parts.settings.compression.enabled)
        if action == "reroute":
            if not await self._reroute(verdict):
                attempts.is_route_used_up = True
                return await self._recover(failure, attempts, max_tokens)
            attempts.forget_output()
        if action == "give_up":
            if verdict.kind == "prompt_too_long" and _stated_limit(verdict) is not None:
                # No compaction follows, but context usage and output limits must use the real window.
                await self._apply_context_limit(verdict)
            message = advice(verdict, attempts)
            raise ProviderError(
                ErrorVerdict(verdict.kind, message, verdict.status, verdict.context_limit), failure.where
            )
        self._report_recovery(verdict, action)
        if action == "compact" and not await self._make_room(verdict, attempts):
            attempts.is_nothing_left = True
            return await self._recover(failure, attempts, max_tokens)
        if action == "drop_images":
            self._image_limit = verdict.image_limit
        if action == "lower_output":
            attempts.lower_output(verdict, max_tokens)

    async def _reroute(self, verdict: ErrorVerdict) -> bool:
        """Refresh the credentials, else switch to the next endpoint; False when the route is exhausted."""
        old = self._parts.routes.endpoint
        new = await self._parts.routes.advance(verdict)
        if new is None:
            return False
        if (new.provider, new.model, new.base_url) != (old.provider, old.model, old.base_url):
            self._emit(ModelSwitched(old.model, new.model, verdict.kind.replace("_", " ")))
            self.model_changed()
        return True

    def _report_recovery(self, verdict: ErrorVerdict, action: Action) -> None:
        words = {
            "compact": "compacting and trying again",
            "lower_output": "asking for a shorter reply",
            "drop_images": "trying again without the oldest images",
            "reroute": "trying again with a fresh key or the next provider",
        }
        text = words.get(action, action)
        self._emit(Recovered(verdict, text))
        payload = {"kind": verdict.kind, "action": action, "message": verdict.message[:500]}
        self._parts.store.ledger.record_event(StoredEvent(self._live.id, "recovery", payload))

    async def _make_room(self, verdict: ErrorVerdict, attempts: Attempts) -> bool:
        """Recover from a prompt rejected as too long: adopt the stated window and compact.

        Results the model has not read are spilled where a compaction of the rest is not enough. False when the request
        would be the same again: what was refused is not sent twice.
        """
        before = self._sent_messages()
        self._gate.forget_preparation()
        while True:
            may_be_smaller = await self._apply_context_limit(verdict)
            await self._gate.spill_what_no_compaction_fits()
            await compact(self._live, self._parts, self._emit, reason="overflow")
            await self._gate.spill_overflow()
            if self._sent_messages() != before:
                return True
            # Little for the window as it is believed to be, and yet too long: it must be smaller still.
            if not may_be_smaller or not attempts.count_compaction():
                return await self._gate.shed_more()

    async def _apply_context_limit(self, verdict: ErrorVerdict) -> bool:
        """Adopt the stated limit, else step one rung down the ladder; return whether the window shrank."""
        current = await self.fit_window()
        stated = _stated_limit(verdict)
        if stated is None:
            lower = step_down(current)
            await self._set_window(lower)
            return lower < current
        if stated < current:
            if verdict.request_limit is None:
                self._parts.models.learn_limits(self._parts.routes.endpoint, window=stated)
            # A rate tier's limit belongs to the account, not to the model: it holds for this conversation only.
            await self._set_window(stated)
        return False

    def _sent_messages(self) -> list[Message]:
        """The messages as the next request would send them."""
        return [entry.message for entry in self._live.projection.entries()]

    async def _set_window(self, window: int) -> None:
        self._window = window
        endpoint, settings = self._parts.routes.endpoint, self._parts.settings
        self._gate.budgets = budgets_for(settings, endpoint, window)
        self._live.threshold_tokens = self._gate.budgets.threshold_tokens
        self._live.fit_head(self._gate.budgets.head_tokens)
        self._parts.engine.update_model(
            context_length=window,
            model=endpoint.model,
            provider=endpoint.provider,
            max_tokens=settings.model.max_tokens,
        )
        self._parts.tools.output_limiter.limits = output_limits(settings, window)


class _StreamTee:
    """Forward stream events and buffer their text."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._pieces: list[str] = []

    def __call__(self, event: Delta) -> None:
        if isinstance(event, TextDelta):
            self._pieces.append(event.text)
        self._emit(event)

    @property
    def text(self) -> str:
        return "".join(self._pieces)


@dataclass(frozen=True, slots=True)
class _Record:
    """Facts of a call recorded before its response."""

    task_id: str
    endpoint: Endpoint
    estimate_tokens: int
    window_tokens: int | None
    threshold_tokens: int
    composition: Mapping[str, int]
    started_ms: int

    def call(
        self, session_id: str, usage: CanonicalUsage, cost_usd: float | None, verdict: str, *, ended_ms: int
    ) -> CallRecord:
        return CallRecord(
            session_id=session_id,
            turn_id=self.task_id,
            route=RouteRecord(self.endpoint.provider, self.endpoint.model, self.endpoint.api_mode),
            usage=usage,
            cost_usd=cost_usd,
            estimate_tokens=self.estimate_tokens,
            window_tokens=self.window_tokens,
            threshold_tokens=self.threshold_tokens,
            composition=self.composition,
            verdict=verdict,
            started_at_ms=self.started_ms,
            ended_at_ms=ended_ms,
        )


def _stated_limit(verdict: ErrorVerdict) -> int | None:
    """The request limit stated by the provider; None without a plausible figure."""
    return plausible_window(verdict.request_limit if verdict.request_limit is not None else verdict.context_limit)


def output_limits(settings: Settings, window: int) -> OutputLimits:
    """Tool output limits for a window, scaled down on small ones."""
    limits = settings.tool_output
    return OutputLimits(limits.default_result_size, limits.turn_budget, limits.preview_size).scaled(
        window, result_ratio=limits.window_result_ratio, turn_ratio=limits.window_turn_ratio
    )
