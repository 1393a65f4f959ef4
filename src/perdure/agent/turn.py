"""One turn, from the user message to the final response. Read it top to bottom.

append the message → gate → project → call → append the reply → run its tools → append their results → again, until a
reply asks for no tool. Everything is on disk before the next step begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perdure import prompts
from perdure.agent.compaction import Emit
from perdure.agent.compaction_gate import AfterTurn, CompactionGate
from perdure.agent.context_usage import output_limits
from perdure.agent.deps import AgentDeps
from perdure.agent.model_call import ModelAnswer, ModelCaller
from perdure.agent.session import LiveSession
from perdure.agent.turn_limits import LoopGuard, SpendingLimit, Spent, Steps, with_note
from perdure.core.concurrency import await_foreign, describe_error
from perdure.core.datastructures import MappingAccess
from perdure.core.errors import ProviderError
from perdure.core.events import Event, ModelSwitched, Notice, Outcome, StatusChanged, TextDelta, TurnStarted
from perdure.core.messages import SYSTEM_NOTE, Entry, Message
from perdure.core.usage import CanonicalUsage
from perdure.providers.types import Reply
from perdure.store.records import StoredEvent
from perdure.tools.runtime import Batch, ToolScope

_DAY_MS = 86_400_000
NO_ANSWER = "(The model gave no answer.)"
_CUT_ANSWER = "The answer was cut off at the output limit. Say “continue” to go on, or raise model.max_tokens."
# How much of a stopped reply the model is shown.
_STOPPED_CHARS = 600
STEP_LIMIT = "The step limit of this turn was reached before the work was done."


@dataclass(frozen=True, slots=True)
class ConversationResult(MappingAccess):
    """The result of a turn: outcome, response, messages, usage."""

    outcome: Outcome
    final_response: str
    session_id: str
    conversation_id: str
    task_id: str
    entries: Sequence[Entry] = ()
    usage: CanonicalUsage = field(default_factory=CanonicalUsage)
    cost_usd: float | None = None
    error: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The session's history as OpenAI-style dicts, built on access."""
        return [e.message.to_dict() for e in self.entries]


class EventRecorder:
    """Forwards events and has the relevant ones stored with the next write of the session."""

    def __init__(self, emit: Emit, live: LiveSession) -> None:
        self._emit = emit
        self._live = live

    def __call__(self, event: Event) -> None:
        # Most events are text deltas, which are stored as the message they form.
        payload = _event_payload(event) if type(event) is not TextDelta else None
        if payload is not None:
            self._live.record(StoredEvent(self._live.id, *payload))
            if not _is_on_event_loop():  # between turns: no write may follow
                self._live.flush()
        self._emit(event)


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class OpenConversation:
    """An open conversation: its session, gate and model caller."""

    def __init__(self, parts: AgentDeps, live: LiveSession, emit: Emit) -> None:
        self.live = live
        # Every event of the conversation passes through here, so that the relevant ones are persisted.
        self.emit = EventRecorder(emit, live)
        self.gate = CompactionGate(parts, live, self.emit)
        self.caller = ModelCaller(parts, live, self.gate, self.emit)


class Turn:
    """Processes one user message to its final response.

    The event loop only waits: each step's store writes run in one call of a worker thread. `hold` is entered with the
    first and left with the last of them; it holds the conversation's lease.
    """

    def __init__(
        self,
        parts: AgentDeps,
        conversation: OpenConversation,
        *,
        task_id: str,
        hold: AbstractContextManager[None] | None = None,
    ) -> None:
        self._parts = parts
        self._live, self._gate, self._caller = conversation.live, conversation.gate, conversation.caller
        self._emit = conversation.emit
        self._task_id = task_id
        self._hold = hold or nullcontext()
        # What is left at the end of the turn: the lease.
        self._exits = ExitStack()
        self._has_begun = self._is_closed = False
        self._steps = Steps(parts.settings.agent.max_turns)
        self._loops = LoopGuard(parts.settings.agent.loop_repeats)

    async def run(self, user_message: Message | None) -> ConversationResult:
        """Run the turn. Failures are reported as the outcome; cancelling ends it cleanly.

        Without a message it goes on where a crash cut a turn off. Raises LeaseLost before anything is stored.
        """
        self._caller.begin_turn()
        try:
            outcome, answer, error = await self._run(user_message)
        finally:
            # A second interrupt changes nothing: the turn is ending.
            with suppress(asyncio.CancelledError):
                await self._close()
        return self._build_result(outcome, answer, error)

    async def _run(self, user_message: Message | None) -> tuple[Outcome, str, str | None]:
        try:
            await self._begin(user_message)
            return *(await self._work()), None
        except (ProviderError, SpendingLimit) as failure:
            self._live.record(StoredEvent(self._live.id, "turn_failed", {"reason": str(failure)}))
            return "failed", "", str(failure)
        except asyncio.CancelledError:
            if not self._has_begun:
                raise
            return "interrupted", "", None

    async def _begin(self, user_message: Message | None) -> None:
        """Append the user message with its recalled context, even if interrupted at once."""
        recalled = ""
        try:
            if user_message is not None:
                recalled = await self._recall_context(user_message)
        finally:
            try:
                await self._parts.keep(partial(self._open, user_message, recalled))
            finally:
                if self._has_begun:
                    self._emit(TurnStarted(self._task_id, self._live.id, self._live.conversation_id))

    def _open(self, user_message: Message | None, recalled: str) -> None:
        """Take the lease, repair what an earlier turn left open, append the message. For a worker thread."""
        self._exits.enter_context(self._hold)
        self._has_begun = True
        self._live.settle()
        if user_message is not None:
            stopped, self._live.stopped_text = self._live.stopped_text, ""
            self._live.append(user_message, recalled="\n\n".join(filter(None, (_stopped_note(stopped), recalled))))
        else:
            self._loops.replay(_since_request(self._live.entries))

    async def _close(self) -> None:
        """Append results for tool calls that were cut off, store what is pending, release the lease."""
        if not self._is_closed:
            await self._parts.keep(self._close_here)
        elif self._live.has_pending:  # an event since
            await self._parts.keep(self._live.flush)

    def _close_here(self) -> None:
        """The same, in a worker thread."""
        self._is_closed = True
        with self._exits:
            if self._has_begun:
                self._live.settle()
                self._parts.memory.flush()
                self._live.flush()

    async def _recall_context(self, message: Message) -> str:
        """Recall context for a message; failures only produce a notice."""
        if self._parts.recall is None:
            return ""
        try:
            return await await_foreign(asyncio.to_thread(self._parts.recall, message.text))
        except Exception as error:  # third-party code: the turn goes on without it
            self._emit(Notice(f"Nothing was recalled: {describe_error(error)}", "warning"))
            return ""

    async def _work(self) -> tuple[Outcome, str]:
        """Alternate model calls and tool runs until a reply requests no tool."""
        while not self._steps.is_over:
            self._steps.used += 1
            self._emit(StatusChanged("calling"))
            await self._caller.fit_window()
            await self._gate.before_call(
                self._spent(),
                max_tokens=self._parts.settings.model.max_tokens,
                is_turn_start=self._steps.used == 1,
            )
            answer = await self._caller.ask(self._task_id)
            message = answer.reply.message
            if not message.tool_calls:
                await self._finish(answer, message)
                if answer.reply.finish == "length":
                    self._emit(Notice(_CUT_ANSWER, "warning"))
                return "completed", _answer(answer.reply)
            await self._caller.store_answer(answer, partial(self._live.append, message))
            await self._run_tools(message)
        return "budget", await self._request_closing_summary()

    async def _finish(self, answer: ModelAnswer, message: Message) -> None:
        """Store the last reply. Where no compaction is due, the turn ends with the same call of a worker thread."""

        def store() -> AfterTurn | None:
            self._live.append(message)
            action = self._gate.decide_after_turn()
            if action is None:
                self._close_here()
            return action

        await self._gate.after_turn(await self._caller.store_answer(answer, store))

    async def _run_tools(self, message: Message) -> None:
        """Run the tool calls of one reply and append their results in call order, also when interrupted."""
        self._emit(StatusChanged("running_tools"))
        window = self._live.window
        limits = output_limits(self._parts.settings, window) if window is not None else None
        scope = ToolScope(self._task_id, self._live.conversation_id, self._parts.user_key, limits)
        batch = self._parts.tools.batch(message.tool_calls, scope, self._emit)
        try:
            await batch.run()
        finally:
            events = _tool_events(batch, self._live.id)
            results = self._check_for_loops(message, batch.results())
            await self._parts.keep(partial(self._live.append, *results, events=events))

    def _check_for_loops(self, message: Message, results: Sequence[Message]) -> Sequence[Message]:
        """Add a note to the results, and emit a notice, when the model repeats the same calls."""
        loop = self._loops.observe(message.tool_calls, results)
        if loop is None:
            return results
        self._emit(Notice(loop.notice, "warning"))
        return with_note(results, loop.note)

    async def _request_closing_summary(self) -> str:
        """Request a closing summary without tools after the step limit was reached."""
        self._emit(Notice(f"{STEP_LIMIT} Raise agent.max_turns, or say “continue”.", "warning"))
        closing = prompts.load("closing", self._parts.prompts_folder).strip()
        answer = await self._caller.ask(self._task_id, extra_system=closing, with_tools=False)
        text = answer.reply.message.text or STEP_LIMIT
        await self._finish(answer, Message(role="assistant", content=text, kind="assistant"))
        return text

    def _spent(self) -> Spent:
        """Spending so far; queries the ledger only if a limit is set."""
        limits, ledger = self._parts.settings.limits, self._parts.store.ledger
        turn = sum(a.cost_usd or 0.0 for a in self._caller.calls)
        session = ledger.totals(self._live.id).cost_usd if limits.max_cost_per_session is not None else None
        day = 0.0
        if limits.max_cost_per_day is not None:
            now_ms = self._parts.clock.now_ms()
            rows = ledger.usage("day", since_ms=now_ms - now_ms % _DAY_MS)
            day = sum(r.totals.cost_usd or 0.0 for r in rows)
        return Spent(turn, session or 0.0, day)

    def _build_result(self, outcome: Outcome, answer: str, error: str | None) -> ConversationResult:
        usage, cost = CanonicalUsage(reported=False), None
        for call in self._caller.calls:
            usage = usage + call.usage
            cost = call.cost_usd if cost is None else cost + (call.cost_usd or 0.0)
        return ConversationResult(
            outcome=outcome,
            final_response=answer,
            session_id=self._live.id,
            conversation_id=self._live.conversation_id,
            task_id=self._task_id,
            entries=tuple(self._live.entries),
            usage=usage,
            cost_usd=cost,
            error=error,
        )


def _since_request(entries: Sequence[Entry]) -> list[Message]:
    """Return the entries after the newest user message."""
    messages = [e.message for e in entries]
    start = max((i for i, m in enumerate(messages) if m.is_request), default=-1)
    return messages[start + 1 :]


def _stopped_note(text: str) -> str:
    """A note for the model about the reply that the user stopped; "" without one. It never enters the history."""
    if not text:
        return ""
    shown = text if len(text) <= _STOPPED_CHARS else f"…{text[-_STOPPED_CHARS:]}"
    return f"{SYSTEM_NOTE}The user stopped your previous reply while it was being written. It ended with: “{shown}”"


def _answer(reply: Reply) -> str:
    return reply.message.text or NO_ANSWER


def _tool_events(batch: Batch, session_id: str) -> list[StoredEvent]:
    """Build the events of a batch of tool calls, stored with their results."""
    events = [
        StoredEvent(
            session_id,
            "spill",
            {"tool": call.name, "call": call.id, "address": stored.address, "chars": stored.chars},
        )
        for call, stored in batch.spills()
    ]
    seconds = {call_id: round(s, 3) for call_id, s in batch.seconds.items()}
    details = {"seconds": seconds, "states": dict(batch.states()), "exit_codes": dict(batch.exit_codes())}
    events.append(StoredEvent(session_id, "tools", details))
    return events


def _event_payload(event: Event) -> tuple[str, Mapping[str, Any]] | None:
    if isinstance(event, ModelSwitched):
        return "model_switch", {"old": event.old, "new": event.new, "reason": event.reason}
    if isinstance(event, Notice):
        return "notice", {"text": event.text, "level": event.level}
    return None
