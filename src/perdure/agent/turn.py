"""One turn, from the user message to the final response. Read it top to bottom.

append the message → gate → project → call → append the reply → run its tools → append their results → again, until a
reply asks for no tool. Everything is on disk before the next step begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perdure import prompts
from perdure.agent.budget import SpendingLimit, Spent, Steps
from perdure.agent.compaction import Emit
from perdure.agent.deps import AgentDeps
from perdure.agent.event_log import EventRecorder, tool_events
from perdure.agent.gate import Gate
from perdure.agent.loop_guard import LoopGuard, with_note
from perdure.agent.model_call import ModelCaller
from perdure.agent.session import LiveSession
from perdure.core.errors import ProviderError, StoreError
from perdure.core.events import Notice, Outcome, StatusChanged, TurnStarted
from perdure.core.foreign_code import await_foreign, describe_error
from perdure.core.messages import Entry, Message
from perdure.core.usage import CanonicalUsage
from perdure.providers.types import Reply
from perdure.store.records import StoredEvent
from perdure.tools.runtime import ToolScope

_log = logging.getLogger(__name__)
_DAY_MS = 86_400_000
NO_ANSWER = "(The model gave no answer.)"
STEP_LIMIT = "The step limit of this turn was reached before the work was done."


@dataclass(frozen=True, slots=True)
class ConversationResult:
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


class OpenConversation:
    """An open conversation: its session, gate and model caller."""

    def __init__(self, parts: AgentDeps, live: LiveSession, emit: Emit) -> None:
        self.live = live
        # Every event of the conversation passes through here, so that the relevant ones are persisted.
        self.emit = EventRecorder(emit, live, parts.store, parts.keep)
        self.gate = Gate(parts, live, self.emit)
        self.caller = ModelCaller(parts, live, self.gate, self.emit)


class Turn:
    """Processes one user message to its final response."""

    def __init__(self, parts: AgentDeps, conversation: OpenConversation, *, task_id: str) -> None:
        self._parts = parts
        self._live, self._gate, self._caller = conversation.live, conversation.gate, conversation.caller
        self._emit = conversation.emit
        self._task_id = task_id
        self._steps = Steps(parts.settings.agent.max_turns)
        self._loops = LoopGuard(parts.settings.agent.loop_repeats)

    async def run(self, user_message: Message | None) -> ConversationResult:
        """Run the turn. Failures are reported as the outcome; cancelling ends it cleanly.

        Without a message it goes on where a crash cut a turn off.
        """
        self._caller.begin_turn()
        self._emit(TurnStarted(self._task_id, self._live.id, self._live.conversation_id))
        try:
            await self._begin(user_message)
            outcome, answer, error = *(await self._work()), None
            await self._gate.after_turn()
        except (ProviderError, SpendingLimit) as failure:
            outcome, answer, error = "failed", "", str(failure)
            await self._store_failure(str(failure))
        except asyncio.CancelledError:
            # A second interrupt changes nothing: the turn is ending.
            with suppress(asyncio.CancelledError):
                await self._settle()
            outcome, answer, error = "interrupted", "", None
        self._parts.memory.flush()
        await self._emit.finish()
        return self._build_result(outcome, answer, error)

    async def _begin(self, user_message: Message | None) -> None:
        """Repair what an earlier turn left open, then append the user message, even if interrupted meanwhile."""
        try:
            await self._settle()
        finally:
            if user_message is not None:
                await self._append_message(user_message)
            else:
                self._loops.replay(_since_request(self._live.entries))

    async def _settle(self) -> None:
        """Append results for tool calls that were cut off."""
        if self._live.has_open_calls:
            await self._parts.keep(self._live.settle)

    async def _store_failure(self, reason: str) -> None:
        """Store why the turn failed as an event of the conversation."""
        event = StoredEvent(self._live.id, "turn_failed", {"reason": reason})
        try:
            await self._parts.keep(partial(self._parts.store.ledger.record_event, event))
        except StoreError as error:
            _log.warning("the failure of a turn was not kept: %s", error)
        except asyncio.CancelledError:  # the turn is over already, and the write goes on in its thread
            pass

    async def _append_message(self, message: Message) -> None:
        """Append the user message with its recalled context, even if interrupted at once."""
        recalled = ""
        try:
            recalled = await self._recall_context(message)
        finally:
            await self._parts.keep(partial(self._live.append, message, recalled=recalled))

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
            reply = await self._caller.ask(self._task_id)
            await self._parts.keep(partial(self._live.append, reply.message))
            if not reply.message.tool_calls:
                return "completed", _answer(reply)
            await self._run_tools(reply.message)
        return "budget", await self._request_closing_summary()

    async def _run_tools(self, message: Message) -> None:
        """Run the tool calls of one reply and append their results in call order, also when interrupted."""
        self._emit(StatusChanged("running_tools"))
        scope = ToolScope(self._task_id, self._live.conversation_id, self._parts.user_key)
        batch = self._parts.tools.batch(message.tool_calls, scope, self._emit)
        try:
            await batch.run()
        finally:
            events = tool_events(batch, self._live.id)
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
        reply = await self._caller.ask(self._task_id, extra_system=closing, with_tools=False)
        text = reply.message.text or STEP_LIMIT
        message = Message(role="assistant", content=text, kind="assistant")
        await self._parts.keep(partial(self._live.append, message))
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


def _answer(reply: Reply) -> str:
    return reply.message.text or NO_ANSWER
