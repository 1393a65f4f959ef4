"""Send the request of a model call, and recover from errors.

`agent.model_request` builds the request. After an error the call is retried, made with a lower output cap, with a
compacted history or at the next endpoint, or given up with advice for the user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from perdure.agent.compaction import CompactionGate, compact
from perdure.agent.context_usage import context_window, describe_fixed_oversize
from perdure.agent.deps import AgentDeps
from perdure.agent.model_request import DESCRIBED, NOT_DESCRIBED, build_request
from perdure.agent.session import LiveSession
from perdure.core.error_policy import POLICIES, RecoveryAction
from perdure.core.errors import ConfigError, ErrorKind, ErrorVerdict, ProviderError, kind_label
from perdure.core.events import CallFinished, CallStarted, Emit, ModelSwitched, Notice, Recovered, TextDelta
from perdure.core.messages import CUT_OFF, Message
from perdure.core.turn_options import AUTO
from perdure.core.usage import NOT_BILLED, NOT_REPORTED, CanonicalUsage
from perdure.models.windows import ContextWindow, Window, plausible_window, step_down
from perdure.providers.registry import default_max_tokens, quirks_of
from perdure.providers.types import Endpoint, ModelRequest, Reply, RequestEvent, overflow_verdict
from perdure.store.records import CallRecord, RouteRecord, StoredEvent

T = TypeVar("T")

Action = RecoveryAction | Literal["give_up"]

# Fixed: three passes that did not help will not help a fourth time.
MAX_COMPACTIONS = 3
MAX_LOWERED = 3
LEAST_OUTPUT_TOKENS = 16
OUTPUT_MARGIN_TOKENS = 64

_FALLBACK = "A second service under fallback_providers in config.yaml would take over."
# Appended to the provider's message, which names the key, address or model to check.
ADVICE: dict[ErrorKind, str] = {
    "prompt_too_long": "The conversation does not fit the model's window. Start afresh with /new, "
    "compact around one topic with /compress TOPIC, or choose a model with a larger window with /model.",
    "output_cap": "The service refuses the output allowance. Lower model.max_tokens.",
    "rate_limit": f"Try again in a while. {_FALLBACK}",
    "overloaded": f"Try again in a while. {_FALLBACK}",
    "auth": "For a key that expires, credentials.command in config.yaml names a command that prints it.",
    "quota": _FALLBACK,
    "transport": f"Try again in a while. {_FALLBACK}",
    "unknown": "The service failed in a way Perdure does not know. Try again.",
    "bad_request": "It would be refused again as it is: change what it names, or choose another model with /model.",
}

# Where nothing before the newest message is left to compact.
NEWEST_TOO_LARGE = (
    "The newest message does not fit the model's window: take it back with /undo and put the text into a file, which"
    " the model reads in parts, or choose a model with a larger window with /model."
)

# Where the context engine raised an error.
ENGINE_FAILED = (
    "Send the message again: an engine that goes on failing is replaced by the built-in one; the setting context.engine"
    " names another."
)

_ANY_USAGE = CanonicalUsage(input_tokens=1_000_000, output_tokens=1_000_000)

PARTIAL_REPLY_ADVICE = "The reply so far is kept, and the model reads it: ask it to continue."

# What differs where no one can give a command: in a scheduled run.
UNATTENDED_ADVICE: dict[ErrorKind, str] = {
    "prompt_too_long": "The run does not fit the model's window. Ask for less in one run, "
    "or add the schedule with a --model that has a larger window.",
    "bad_request": "It would be refused again as it is: change what it names, "
    "or add the schedule with another --model.",
}

TOO_MANY_IMAGES = (
    "Send fewer images with one message, compact the conversation with /compress, or choose another model with /model."
)


@dataclass(slots=True)
class Attempts:
    """The recovery actions that one call has already tried, so that none is tried too often."""

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
    # Why the context engine could not compact; "": it did not fail.
    engine_error: str = ""

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
        """Set the max_tokens of the next attempt after the provider rejected `asked_tokens`."""
        self.output_tokens = lower_output_cap(verdict, asked_tokens)
        # With a window or a rate limit stated, the allowance follows from this prompt and holds for no other.
        self.has_found_cap = verdict.context_limit is None and verdict.request_limit is None

    def forget_output(self) -> None:
        """Drop the lowered max_tokens after a switch to another endpoint, for which it does not apply."""
        self.output_tokens, self.has_found_cap = None, False


def lower_output_cap(verdict: ErrorVerdict, asked_tokens: int | None) -> int:
    """Return the next max_tokens to try: the stated limit, else half of the last one."""
    if verdict.output_limit and verdict.output_limit > 0 and verdict.output_limit != asked_tokens:
        return max(LEAST_OUTPUT_TOKENS, verdict.output_limit)
    return max(LEAST_OUTPUT_TOKENS, (asked_tokens or 8_192) // 2)


def advice(
    verdict: ErrorVerdict,
    attempts: Attempts,
    *,
    is_unattended: bool = False,
    has_partial_reply: bool = False,
    has_fallbacks: bool = False,
    fixed_oversize: str = "",
) -> str:
    """Build the final error message: what happened, what was tried, what to do next."""
    tried, count = "", attempts.compactions
    if attempts.is_nothing_left:
        tried = f" {attempts.engine_error or 'Nothing more could be compacted'}."
    elif count:
        tried = f" Compacted {count} time{'s' if count > 1 else ''} without success."
    text = verdict.message.strip().rstrip(".")
    what_next = TOO_MANY_IMAGES if verdict.image_limit is not None else ADVICE[verdict.kind]
    if attempts.is_nothing_left and verdict.image_limit is None:
        what_next = ENGINE_FAILED if attempts.engine_error else fixed_oversize or NEWEST_TOO_LARGE
    if is_unattended:
        what_next = UNATTENDED_ADVICE.get(verdict.kind, what_next)
    elif verdict.kind == "bad_request" and verdict.status == 404:  # its text says what to check
        what_next = "Choose another model with /model." if "no model" in text else ""
    if has_fallbacks:
        what_next = what_next.replace(_FALLBACK, "So far every service of fallback_providers has failed, too.")
    if verdict.remedy is not None:
        what_next = verdict.remedy
    elif has_partial_reply and verdict.kind in ("transport", "overloaded"):
        what_next = PARTIAL_REPLY_ADVICE
    sentences = (f"{text or 'The call failed'}.{tried}", what_next, "Nothing of the conversation is lost.")
    return " ".join(filter(None, sentences))


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A reply, its call record for the ledger, and the endpoint that answered."""

    reply: Reply
    call: CallRecord
    endpoint: Endpoint
    # The output allowance that was accepted after a larger one was refused.
    accepted_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CallCost:
    """Usage and cost of one call."""

    usage: CanonicalUsage
    cost_usd: float | None


class ModelCaller:
    """Makes the model calls of one conversation, recovers from their errors, and learns the limits of the endpoint."""

    def __init__(self, deps: AgentDeps, live: LiveSession, gate: CompactionGate, emit: Emit) -> None:
        self._deps = deps
        self._live = live
        self._gate = gate
        self._emit = emit
        # Image limit stated by the current endpoint.
        self._image_limit: int | None = None
        self._calls: list[CallCost] = []

    @property
    def calls(self) -> Sequence[CallCost]:
        """Usage and cost of the calls made so far in the current turn."""
        return self._calls

    @property
    def enforces_format_without_tools(self) -> bool:
        """Whether the endpoint enforces an answer format, but only in requests without tools."""
        e = self._deps.routes.endpoint
        quirks = quirks_of(e.provider, model=e.model, base_url=e.base_url, api_mode=e.api_mode)
        return quirks.answer_format is not None and not quirks.takes_format_with_tools

    def begin_turn(self) -> None:
        self._calls = []

    async def ask(
        self, task_id: str, *, extra_system: str = "", with_tools: bool = True, tool_choice: str = AUTO
    ) -> ModelAnswer:
        """Request a reply to the current history.

        Raises ProviderError with advice for the user once recovery is exhausted.

        The caller passes the answer to `store_answer`, so that call and reply are stored in one transaction.
        """
        attempts = Attempts()
        while True:
            await self.fit_window()
            await self._describe_images()
            if (most_images := self._most_images) is not None:
                self._live.limit_images(most_images)
            max_tokens = self._allowance(attempts)
            request = self._build_request(max_tokens, extra_system=extra_system, with_tools=with_tools)
            request = replace(request, tool_choice=tool_choice)
            try:
                answer = await self._send(request, task_id)
                if (overflow := overflow_verdict(answer.reply, window=self._window_tokens)) is None:
                    has_cap = attempts.has_found_cap and max_tokens is not None
                    return replace(answer, accepted_output_tokens=max_tokens if has_cap else None)
                await self.store_answer(answer, lambda: None)
                failure = ProviderError(overflow)
            except ProviderError as error:
                failure = error
            await self._recover(failure, attempts, max_tokens)

    @property
    def _most_images(self) -> int | None:
        """The maximum number of images in a request: the setting, within a limit that the endpoint stated.

        None means no limit.

        The newest message with images keeps all of them, whatever the setting.
        """
        chosen = self._deps.settings.context.max_images
        chosen = max(chosen, self._live.newest_image_count) if chosen is not None else None
        return min((n for n in (chosen, self._image_limit) if n is not None), default=None)

    async def _describe_images(self) -> None:
        """Replace the images of the view by descriptions if the model takes no images; a failure becomes a notice."""
        vision = self._deps.vision
        images = self._live.undescribed_images() if vision is not None and vision.is_needed() else ()
        if vision is None or not images:
            return
        texts: dict[str, str] = {}
        for image in images:
            try:
                text = await vision.describe(image, conversation_id=self._live.conversation_id)
            except (ProviderError, ConfigError) as error:
                self._emit(Notice(f"An image could not be described: {error}", "warning"))
                text = ""
            texts[image.url] = DESCRIBED.format(text=text) if text else NOT_DESCRIBED
        self._live.describe_images(texts)

    async def store_answer(self, answer: ModelAnswer, then: Callable[[], T]) -> T:
        """Run `then`, which appends the reply, in a worker thread; the call is stored in the same transaction.

        Emits CallFinished afterwards, even if the turn was interrupted meanwhile.
        """

        def work() -> T:
            self._learn(answer)
            try:
                return then()
            finally:
                self._live.flush()

        try:
            return await self._deps.run_blocking(work)
        finally:
            self._tell_finished(answer.endpoint, answer.call, answer.reply.finish)

    def _learn(self, answer: ModelAnswer) -> None:
        """Queue a call for the ledger, and update counter, calibration, engine and known limits from its usage."""
        self._live.record(answer.call)
        self._gate.cost.record(answer.call)
        # Of several prompts in one response all are billed; the last one is what the context holds.
        measured = answer.reply.last_usage or answer.call.usage
        self._live.counter.observe(measured)
        if (calibrations := self._deps.calibrations) is not None:
            calibrations.learn(answer.endpoint.provider, answer.endpoint.model, self._live.counter.calibration)
        self._deps.engine.update_from_response(measured)
        if answer.accepted_output_tokens is not None:
            self._deps.models.learn_limits(answer.endpoint, output=answer.accepted_output_tokens)

    def _allowance(self, attempts: Attempts) -> int | None:
        """Return the max_tokens of the request; None leaves it to the endpoint.

        A value lowered by recovery comes first, else the setting, within the endpoint's cap and the room left in the
        window.
        """
        if attempts.output_tokens is not None:
            return attempts.output_tokens
        endpoint = self._deps.routes.endpoint
        chosen = self._live.max_tokens
        cap = self._deps.models.output_cap_of(endpoint)
        allowance = min(chosen, cap) if chosen is not None and cap is not None else chosen or cap
        effective, room = allowance or default_max_tokens(endpoint), self._output_room()
        return room if effective is not None and LEAST_OUTPUT_TOKENS <= room < effective else allowance

    def _output_room(self) -> int:
        """Return the tokens the prompt leaves in the window, with a margin for the part that is only estimated."""
        counter = self._live.counter
        return (self._window_tokens or 0) - counter.estimate - counter.appended_tokens // 8 - OUTPUT_MARGIN_TOKENS

    async def fit_window(self) -> ContextWindow:
        """Return the window of the current endpoint; resolve it first, once, and hand it to session and engine."""
        window = self._live.window
        if window is None:
            window = await self._set_window(await self._deps.models.window(self._deps.routes.endpoint))
        for text in self._deps.engine.take_notices():
            self._emit(Notice(text))
        return window

    @property
    def _window_tokens(self) -> int | None:
        return self._live.window.tokens if self._live.window is not None else None

    def model_changed(self) -> None:
        """Drop window, image limit, calibration and background preparation of the old model after a switch."""
        self._image_limit = None
        # Its window is unknown until it is asked for: the old model's would be wrong.
        self._live.follow_model()
        self._gate.cancel_preparation()

    # -- one attempt -------------------------------------------------------------------------------------------------

    def _build_request(self, max_tokens: int | None, *, extra_system: str, with_tools: bool) -> ModelRequest:
        """Build the request for the next call at the current endpoint."""
        deps, live = self._deps, self._live
        return build_request(
            live.projection.entries(),
            deps.routes.endpoint,
            settings=deps.settings,
            options=live.options,
            system=(*live.system_blocks, extra_system) if extra_system else live.system_blocks,
            tools=live.tools if with_tools else (),
            max_tokens=max_tokens,
            conversation_id=live.conversation_id,
        )

    async def _send(self, request: ModelRequest, task_id: str) -> ModelAnswer:
        """Send one attempt. A failed or cancelled one is recorded in the ledger, with the text received so far."""
        endpoint, estimate = self._deps.routes.endpoint, self._live.counter.estimate
        threshold = self._live.threshold_tokens or 0
        started_ms = self._deps.clock.now_ms()
        self._supersede_cut_reply(task_id)
        self._live.counter.begin_call()
        self._emit(CallStarted(endpoint.model, estimate, self._window_tokens or 0, threshold, endpoint.provider))
        composition = self._live.composition.as_dict(estimate)
        record = _Record(task_id, endpoint, estimate, self._window_tokens, threshold, composition, started_ms)
        tee = _StreamTee(self._emit)
        try:
            reply = await self._deps.send(endpoint, request, on_event=tee)
        except ProviderError as error:
            usage = NOT_REPORTED if error.may_be_billed else NOT_BILLED
            self._cut_off(record, tee, error.verdict.kind, usage=usage)
            await self._deps.run_blocking(self._live.flush)
            raise
        except asyncio.CancelledError:
            self._cut_off(record, tee, "interrupted")
            raise
        return ModelAnswer(reply, self._call_record(record, reply.usage, ""), endpoint)

    def _cut_off(self, record: _Record, tee: _StreamTee, why: str, *, usage: CanonicalUsage = NOT_REPORTED) -> None:
        """Record a call that ended early; its text so far becomes a message of the history if no reply follows.

        `usage` tells an unreported call from one that was refused, and so is free. Stored with the next write.
        """
        call = self._call_record(record, usage, why)
        self._live.record(call)
        if tee.text.strip():
            self._live.cut_reply = Message("assistant", tee.text, kind="assistant", extra={CUT_OFF: why})
        self._tell_finished(record.endpoint, call)

    def _supersede_cut_reply(self, task_id: str) -> None:
        """Turn the text of an earlier attempt into an event: the next attempt writes the whole reply again."""
        if (reply := self._live.take_cut_reply()) is not None:
            payload = {"text": reply.text, "why": reply.cut_off, "turn": task_id}
            self._live.record(StoredEvent(self._live.id, "partial_reply", payload))

    def _call_record(self, record: _Record, usage: CanonicalUsage, verdict: str) -> CallRecord:
        """Build the ledger record of a call and count its cost for the turn."""
        cost = self._deps.models.cost_usd(record.endpoint, usage if usage.reported else _ANY_USAGE)
        if not usage.reported and cost:  # free of charge, whatever it used; or unknown
            cost = None
        if verdict and usage == NOT_BILLED:  # refused, or never sent: whatever the price, nothing is due
            cost = 0.0
        self._calls.append(CallCost(usage, cost))
        return record.call(self._live.id, usage, cost, verdict, ended_ms=self._deps.clock.now_ms())

    def _tell_finished(self, where: Endpoint, call: CallRecord, finish: str = "") -> None:
        self._emit(CallFinished(where.model, call.usage, call.cost_usd, where.provider, call.verdict, finish))

    # -- what is done about a failure --------------------------------------------------------------------------------

    async def _recover(self, failure: ProviderError, attempts: Attempts, max_tokens: int | None) -> None:
        """Apply the next recovery action. Raises the error when none is left."""
        verdict = failure.verdict
        action = attempts.next_action(verdict, may_compact=self._deps.settings.compression.enabled)
        if action == "reroute":
            if not await self._reroute(verdict):
                attempts.is_route_used_up = True
                return await self._recover(failure, attempts, max_tokens)
            attempts.forget_output()
            return None
        if action == "give_up":
            if verdict.kind == "prompt_too_long" and _stated_limit(verdict) is not None:
                # No compaction follows, but context usage and output limits must use the real window.
                await self._apply_context_limit(verdict)
            message = advice(
                verdict,
                attempts,
                is_unattended=self._live.options.unattended is not None,
                has_partial_reply=bool(failure.partial_text.strip()),
                has_fallbacks=len(self._deps.routes.route.endpoints) > 1,
                fixed_oversize=describe_fixed_oversize(self._live.composition, self._window_tokens),
            )
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
        old = self._deps.routes.endpoint
        new = await self._deps.routes.advance(verdict)
        if new is None:
            return False
        is_same = (new.provider, new.model, new.base_url) == (old.provider, old.model, old.base_url)
        how = "a fresh key" if is_same else "the next provider"
        self._report_recovery(verdict, "reroute", f"trying again with {how}")
        if not is_same:
            self._emit(ModelSwitched(old.model, new.model, kind_label(verdict.kind)))
            self.model_changed()
        return True

    def _report_recovery(self, verdict: ErrorVerdict, action: Action, text: str = "") -> None:
        words = {
            "compact": "compacting and trying again",
            "lower_output": "asking for a shorter reply",
            "drop_images": "trying again without the oldest images",
        }
        self._emit(Recovered(verdict, text or words.get(action, action)))
        payload = {"kind": verdict.kind, "action": action, "message": verdict.message[:500]}
        self._live.record(StoredEvent(self._live.id, "recovery", payload))

    async def _make_room(self, verdict: ErrorVerdict, attempts: Attempts) -> bool:
        """Adopt a stated window and compact after a prompt was rejected as too long; spill unread results if need be.

        Returns False if the request would be the same again, since a rejected request is not sent twice.
        """
        before = self._sent_messages()
        self._gate.cancel_preparation()
        while True:
            may_be_smaller = await self._apply_context_limit(verdict)
            await self._gate.spill_what_no_compaction_fits()
            done = await compact(self._live, self._deps, self._emit, reason="overflow")
            attempts.engine_error = done.message if done.outcome == "failed" else ""
            await self._gate.spill_overflow()
            if self._sent_messages() != before:
                return True
            # Little for the window as it is believed to be, and yet too long: it must be smaller still.
            if not may_be_smaller or not attempts.count_compaction():
                return await self._gate.shed_more()

    async def _apply_context_limit(self, verdict: ErrorVerdict) -> bool:
        """Shrink the window to the limit the provider stated, else to the next smaller common size.

        Returns whether the window shrank.
        """
        current = (await self.fit_window()).tokens
        stated = _stated_limit(verdict)
        if stated is None:
            lower = step_down(current)
            await self._set_window(Window(lower, "guessed"))
            return lower < current
        if stated < current:
            # A rate tier's limit belongs to the account, not to the model: it holds for this conversation only.
            await self._set_window(Window(stated, "stated"), is_lasting=verdict.request_limit is None)
        return False

    def _sent_messages(self) -> list[Message]:
        """Return the messages as the next request would send them."""
        return [entry.message for entry in self._live.projection.entries()]

    async def _set_window(self, window: Window, *, is_lasting: bool = False) -> ContextWindow:
        """Replace the window of session and engine; with `is_lasting`, store it as the limit of this endpoint, too."""
        endpoint = self._deps.routes.endpoint
        adopted = context_window(self._deps.settings, endpoint, window)

        def adopt() -> ContextWindow:
            if is_lasting:
                self._deps.models.learn_limits(endpoint, window=window.tokens)
            self._live.adopt_window(adopted)
            self._deps.engine.update_model(
                context_length=adopted.tokens,
                model=adopted.model,
                provider=adopted.provider,
                max_tokens=adopted.max_output_tokens,
            )
            return adopted

        return await self._deps.run_blocking(adopt)


class _StreamTee:
    """Forwards stream events and collects their text, which is kept if the call is cut off."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._pieces: list[str] = []

    def __call__(self, event: RequestEvent) -> None:
        if isinstance(event, TextDelta):
            self._pieces.append(event.text)
        self._emit(event)

    @property
    def text(self) -> str:
        return "".join(self._pieces)


@dataclass(frozen=True, slots=True)
class _Record:
    """The fields of a call record that are known before the response."""

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
    """Return the request limit stated by the provider; None without a plausible figure."""
    return plausible_window(verdict.request_limit if verdict.request_limit is not None else verdict.context_limit)
