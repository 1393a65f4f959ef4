"""One turn, from the user message to the final response. Read it top to bottom.

append the message → gate → project → call → append the reply → run its tools → append their results → again, until a
reply asks for no tool, or for one that the client runs. Everything is on disk before the next step begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

from perdure import prompts
from perdure.agent.compaction import AfterTurn, CompactionGate
from perdure.agent.context_usage import output_limits
from perdure.agent.deps import AgentDeps
from perdure.agent.model_call import ModelAnswer, ModelCaller
from perdure.agent.recall import ask_provider, frame_background
from perdure.agent.session import EventRecorder, LiveSession, interrupted_result
from perdure.agent.turn_limits import LoopGuard, SpendingLimit, Spent, Steps, with_note
from perdure.core.concurrency import describe_error
from perdure.core.datastructures import MappingAccess
from perdure.core.errors import ErrorVerdict, ProviderError
from perdure.core.events import (
    Emit,
    MissingAnswer,
    Notice,
    Outcome,
    StatusChanged,
    TurnFinished,
    TurnStarted,
)
from perdure.core.messages import REFUSED_BY, SYSTEM_NOTE, Entry, Message, RefusedBy, ToolCall
from perdure.core.ports import RecallQuery
from perdure.core.rules import find_call
from perdure.core.turn_options import AUTO, REQUIRED, AnswerRejected, TurnOptions
from perdure.core.usage import CanonicalUsage
from perdure.core.wording import describe_in_program
from perdure.providers.types import Reply
from perdure.store.records import StoredEvent
from perdure.tools.json_schema import parse_answer
from perdure.tools.runtime import Batch, ToolScope

_DAY_MS = 86_400_000
NO_ANSWER = "(The model gave no answer.)"
# Replies that are refusals, and who refused.
_REFUSALS: Mapping[str, RefusedBy] = {"refusal": "model", "content_filter": "filter"}
_REFUSED: Mapping[RefusedBy, str] = {
    "model": "(The model refused to answer.)",
    "filter": "(A content filter of the provider cut the answer off.)",
}
_CUT_ANSWER = "The answer was cut off at the output limit. Ask it to continue, or raise model.max_tokens."
# What the model reads about its newest reply, where that ended early; the reply itself is in the history.
_STOPPED = f"{SYSTEM_NOTE}The user stopped your previous reply while it was being written."
_CUT_SHORT = f"{SYSTEM_NOTE}Your previous reply was cut off by an error of the service before it was complete."
_WRITE_AGAIN = f"{SYSTEM_NOTE}Your previous reply was cut off and did not arrive. Write it again, from its beginning."
STEP_LIMIT = "The step limit of this turn was reached before the work was done."
_REPAIR = "Your last answer was rejected: {problem}. It began: “{start}”. Answer again, correctly."
_REPAIR_CHARS = 400


@dataclass(frozen=True, slots=True)
class ConversationResult(MappingAccess):
    """The result of a turn: outcome, final response, error, messages and usage."""

    outcome: Outcome
    final_response: str
    session_id: str
    conversation_id: str
    task_id: str
    entries: Sequence[Entry] = ()
    usage: CanonicalUsage = field(default_factory=CanonicalUsage)
    cost_usd: float | None = None
    error: str | None = None
    # Calls of the client's own tools; the turn continues with their results.
    client_calls: tuple[ToolCall, ...] = ()
    # Why the last reply ended, in the words of `providers.types.Finish`.
    finish: str = ""
    # The kind of the provider's error, in the words of `core.errors.ErrorKind`.
    error_kind: str = ""
    # What the provider's error means, where one ended the turn.
    verdict: ErrorVerdict | None = None
    # Why there is no text of the model; `final_response` is then a line for people in its place.
    missing_answer: MissingAnswer = ""

    @property
    def event(self) -> TurnFinished:
        """The TurnFinished event that reports this result."""
        return TurnFinished(
            self.outcome, self.final_response, self.usage, self.error, self.client_calls, self.finish, self.error_kind,
            self.missing_answer,
        )  # fmt: skip

    @property
    def partial_text(self) -> str:
        """What had arrived of a reply that was cut off; "" where none was."""
        last = self.entries[-1].message if self.entries else None
        return last.text if last is not None and last.cut_off is not None else ""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The session's history as OpenAI-style dicts, built on access."""
        return [e.message.to_dict() for e in self.entries]


class OpenConversation:
    """An open conversation: its session, gate and model caller."""

    def __init__(self, deps: AgentDeps, live: LiveSession, emit: Emit) -> None:
        self.live = live
        # Every event of the conversation passes through here, so that the relevant ones are persisted.
        self.emit = EventRecorder(emit, live)
        self.gate = CompactionGate(deps, live, self.emit)
        self.caller = ModelCaller(deps, live, self.gate, self.emit)


class Turn:
    """Processes one user message to its final response.

    The event loop only waits: each step's store writes run in one call of a worker thread. `hold` is entered with the
    first and left with the last of them; it holds the conversation's lease.
    """

    def __init__(
        self,
        deps: AgentDeps,
        conversation: OpenConversation,
        *,
        task_id: str,
        hold: AbstractContextManager[None] | None = None,
    ) -> None:
        self._deps = deps
        self._live, self._gate, self._caller = conversation.live, conversation.gate, conversation.caller
        self._emit = conversation.emit
        self._task_id = task_id
        self._hold = hold or nullcontext()
        # What is left at the end of the turn: the lease.
        self._exits = ExitStack()
        self._has_begun = self._is_closed = False
        self._steps = Steps(deps.settings.agent.max_turns)
        self._loops = LoopGuard(deps.settings.agent.loop_repeats)
        # A user message, with its recalled context, that comes after results which are still to be had.
        self._deferred: tuple[Message, str] | None = None
        self._waiting: list[ToolCall] = []
        self._finish_reason = ""
        self._missing_answer: MissingAnswer = ""
        self._verdict: ErrorVerdict | None = None
        # Why there is no answer; recorded after the messages of the turn.
        self._end_event: StoredEvent | None = None

    async def run(self, user_message: Message | None) -> ConversationResult:
        """Run the turn. Failures are reported as the outcome; cancelling ends it cleanly.

        Without a message it continues with the client's results, or where a crash cut a turn off. Raises LeaseLost
        before anything is stored.
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
            await self._run_waiting_calls()
            return *(await self._work()), None
        except (ProviderError, SpendingLimit, AnswerRejected) as failure:
            describe = describe_in_program if self._deps.is_library else str
            reason = describe(str(failure))
            if isinstance(failure, ProviderError):
                self._verdict = replace(failure.verdict, message=describe(failure.verdict.message))
            self._end_event = StoredEvent(self._live.id, "turn_failed", {"reason": reason})
            return "failed", "", reason
        except asyncio.CancelledError:
            if not self._has_begun:
                raise
            payload = {"has_text": True} if self._live.cut_reply is not None else {}
            self._end_event = StoredEvent(self._live.id, "turn_stopped", payload)
            return "interrupted", "", None

    async def _begin(self, user_message: Message | None) -> None:
        """Append the user message with its recalled context; it is stored even if the turn is interrupted at once."""
        recalled = ""
        try:
            if user_message is not None:
                recalled = await self._recall_context(user_message)
        finally:
            try:
                await self._deps.run_blocking(partial(self._open, user_message, recalled))
            finally:
                if self._has_begun:
                    self._emit(TurnStarted(self._task_id, self._live.id, self._live.conversation_id))

    def _open(self, user_message: Message | None, recalled: str) -> None:
        """Take the lease, repair what an earlier turn left open, append the message. For a worker thread."""
        self._exits.enter_context(self._hold)
        self._has_begun = True
        self._live.settle()
        self._append_client_results(is_over=user_message is not None)
        if user_message is not None:
            recalled = "\n\n".join(filter(None, (_cut_off_note(self._live.entries), recalled)))
            if self._live.has_open_calls:
                self._deferred = (user_message, recalled)
            else:
                self._live.append(user_message, recalled=recalled)
        else:
            if _cut_off_note(self._live.entries):  # a request must not end with a reply
                self._live.append(Message("user", _WRITE_AGAIN, kind="note"))
            self._loops.replay(_since_request(self._live.entries))

    def _append_client_results(self, *, is_over: bool) -> None:
        """Append the tool results that the client sent, up to the first open call of ours. For a worker thread.

        Without results, a new message supersedes the calls that waited for them.
        """
        results, open_calls = self._live.options.results, self._live.open_calls()
        if not open_calls:
            return
        newest_calls = _newest_reply(self._live.entries).tool_calls
        results = tuple(result for result in results if find_call(newest_calls, result.tool_call_id) is not None)
        if not results and not is_over:  # they were all appended before a crash; these calls are newer
            return
        # Some were appended before a crash: a call of ours after them may have run already.
        is_repeated = any(find_call(open_calls, result.tool_call_id) is None for result in results)
        ready = open_calls
        if results and not is_repeated:
            ready = list(takewhile(lambda call: call.is_for_client, open_calls))
            self._waiting = open_calls[len(ready) :]
        if ready:
            self._live.append(*(_result_of(call, results) for call in ready))

    async def _run_waiting_calls(self) -> None:
        """Run the agent's own tool calls that had to wait for the client's results before them."""
        waiting = self._waiting
        if not waiting:
            return
        batch = self._batch([call for call in waiting if not call.is_for_client])
        try:
            await batch.run()
        finally:
            results = (*self._live.options.results, *batch.results())
            await self._deps.run_blocking(
                partial(self._append_waiting, [_result_of(c, results) for c in waiting], batch)
            )

    def _append_waiting(self, results: Sequence[Message], batch: Batch) -> None:
        self._live.append(*results, events=_tool_events(batch, self._live.id))
        if self._deferred is not None:
            message, recalled = self._deferred
            self._live.append(message, recalled=recalled)

    async def _close(self) -> None:
        """Append results for tool calls that were cut off, store queued records, release the lease."""
        if not self._is_closed:
            await self._deps.run_blocking(self._close_here)
            return
        self._record_end()
        if self._live.has_pending:  # an event since
            await self._deps.run_blocking(self._live.flush)

    def _close_here(self) -> None:
        """Do the work of `_close` in the current thread, which is a worker thread."""
        self._is_closed = True
        with self._exits:
            if self._has_begun:
                self._live.settle()
                self._record_end()
                self._deps.memory.flush()
                self._live.flush()

    def _record_end(self) -> None:
        event, self._end_event = self._end_event, None
        if event is not None:
            self._live.record(event)

    async def _recall_context(self, message: Message) -> str:
        """Recall context for a message; failures only produce a notice."""
        provider, live = self._deps.recall, self._live
        if provider is None or not message.text.strip():
            return ""
        visible = frozenset(entry.seq for entry in live.entries)
        query = RecallQuery(message.text, live.conversation_id, self._deps.user, visible)
        settings = self._deps.settings.recall
        deadline = asyncio.timeout(settings.timeout_s)
        try:
            async with deadline:
                text = await ask_provider(provider, query)
            return frame_background(text, max_tokens=settings.max_tokens)
        except Exception as error:  # third-party code: the turn continues without it
            reason = f"it took longer than {settings.timeout_s:g} s (recall.timeout_s)"
            reason = reason if deadline.expired() else describe_error(error)
            self._emit(Notice(f"Nothing was recalled: {reason}", "warning"))
            return ""

    async def _work(self) -> tuple[Outcome, str]:
        """Alternate model calls and tool runs until a reply requests no tool, or one of the client's."""
        if self._live.client_calls:  # a crash came after the reply that made them
            return "completed", _newest_reply(self._live.entries).text
        self._check_tools()
        problem, rejected = "", ""
        while not self._steps.is_over:
            self._steps.used += 1
            self._emit(StatusChanged("calling"))
            await self._caller.fit_window()
            is_start = self._steps.used == 1
            await self._gate.before_call(self._sum_spent(), max_tokens=self._live.max_tokens, is_turn_start=is_start)
            answer = await self._ask(problem, rejected)
            message = self._accepted_message(answer.reply)
            if message.tool_calls:
                await self._caller.store_answer(answer, partial(self._live.append, message))
                await self._run_tools(message)
                if self._live.client_calls:
                    return "completed", message.text
                continue
            text, reason = await self._check_paid(answer)
            if reason is None:
                return "completed", await self._complete(answer, message, text)
            await self._store_call(answer)
            if problem:
                raise AnswerRejected(f"The answer was rejected twice: {reason}.")
            problem, rejected = reason, message.text
        return "budget", await self._request_closing_summary()

    def _check_tools(self) -> None:
        """Raise AnswerRejected if the client requires a tool call and the model takes no tools.

        Tools that are only offered are left out of the request for such a model.
        """
        if self._live.options.requires_call and not self._live.tools:
            raise AnswerRejected("A tool call is required, and the model that is configured cannot call tools.")

    async def _ask(self, problem: str, rejected: str) -> ModelAnswer:
        """Request a reply; after a rejected one, with the reason."""
        options = self._live.options
        choice = options.tool_choice if options.tools else AUTO
        if not problem:
            return await self._caller.ask(self._task_id, tool_choice=choice)
        note = _REPAIR.format(problem=problem, start=rejected[:_REPAIR_CHARS])
        with_tools = options.requires_call or not self._caller.enforces_format_without_tools
        return await self._caller.ask(self._task_id, extra_system=note, with_tools=with_tools, tool_choice=choice)

    def _accepted_message(self, reply: Reply) -> Message:
        """Return a reply as it is stored: client calls are marked; calls not allowed, or cut off, are dropped."""
        options, message = self._live.options, reply.message
        self._finish_reason = reply.finish
        if (refused_by := _REFUSALS.get(reply.finish)) is not None:
            return replace(message, tool_calls=(), extra={**message.extra, REFUSED_BY: refused_by})
        if reply.finish == "length" and options.max_tokens is not None:
            return replace(message, tool_calls=())
        if not any(call.name in options.tool_names for call in message.tool_calls):
            return message
        if (end := options.stop_index(message.text)) is not None:
            # The reply ends there for the client: it does not get the calls after it.
            return replace(message, content=message.text[:end], tool_calls=())
        return replace(message, tool_calls=tuple(_mark_client_calls(message.tool_calls, options)))

    async def _check_paid(self, answer: ModelAnswer) -> tuple[str, str | None]:
        """Check a final reply against the requested format; against a client's schema in a worker thread.

        If the turn is interrupted during the check, the call is stored first: it was paid for.
        """
        if self._live.options.answer_format is None:
            return self._checked_text(answer.reply)
        try:
            return await asyncio.to_thread(self._checked_text, answer.reply)
        except asyncio.CancelledError:
            await self._store_call(answer)
            raise

    async def _store_call(self, answer: ModelAnswer) -> None:
        """Store a call whose reply does not enter the history."""
        await self._caller.store_answer(answer, lambda: None)

    def _checked_text(self, reply: Reply) -> tuple[str, str | None]:
        """Return the text of a final reply, and the reason if it is not in the form that the client requested."""
        options, text = self._live.options, reply.message.text
        is_cut = reply.finish == "length" and options.max_tokens is not None
        if (refused_by := _REFUSALS.get(reply.finish)) is not None:
            return text if text.strip() else _REFUSED[refused_by], None
        if is_cut:
            return text, None
        if options.requires_call and options.stop_index(text) is None:
            choice = options.tool_choice
            wanted = "one of " + ", ".join(sorted(options.tool_names)) if choice == REQUIRED else choice
            return text, f"it called no tool, and must call {wanted}"
        if options.answer_format is not None:
            return parse_answer(options.answer_format, text)
        return text if text.strip() else NO_ANSWER, None

    async def _complete(self, answer: ModelAnswer, message: Message, text: str) -> str:
        """Store the final reply, and return its text."""
        has_format = self._live.options.answer_format is not None
        if has_format and message.refused_by is None and text != message.text:
            message = replace(message, content=text)
        self._missing_answer = _missing_answer(answer.reply)
        await self._finish(answer, message)
        if answer.reply.finish == "length" and self._live.options.max_tokens is None:
            self._emit(Notice(_CUT_ANSWER, "warning"))
        return text

    async def _finish(self, answer: ModelAnswer, message: Message) -> None:
        """Store the final reply; if no compaction is due, close the turn in the same worker-thread call."""

        refusal = {"model": answer.endpoint.model, "refused_by": message.refused_by}
        events = [StoredEvent(self._live.id, "model_refused", refusal)] if message.refused_by is not None else []

        def store() -> AfterTurn | None:
            self._live.append(message, events=events)
            action = self._gate.decide_after_turn()
            if action is None:
                self._close_here()
            return action

        await self._gate.after_turn(await self._caller.store_answer(answer, store))

    async def _run_tools(self, message: Message) -> None:
        """Run the tool calls of one reply and append their results in call order, also when interrupted.

        Calls after one that the client runs wait for its result.
        """
        calls = tuple(takewhile(lambda call: not call.is_for_client, message.tool_calls))
        if not calls:
            return
        batch = self._batch(calls)
        try:
            await batch.run()
        finally:
            events = _tool_events(batch, self._live.id)
            results = self._check_for_loops(calls, batch.results())
            await self._deps.run_blocking(partial(self._live.append, *results, events=events))

    def _batch(self, calls: Sequence[ToolCall]) -> Batch:
        self._emit(StatusChanged("running_tools"))
        window = self._live.window
        limits = output_limits(self._deps.settings, window) if window is not None else None
        scope = ToolScope(self._task_id, self._live.conversation_id, self._deps.user, limits)
        return self._deps.tools.batch(calls, scope, self._emit)

    def _check_for_loops(self, calls: Sequence[ToolCall], results: Sequence[Message]) -> Sequence[Message]:
        """Add a note to the results, and emit a notice, when the model repeats the same calls."""
        loop = self._loops.observe(calls, results)
        if loop is None:
            return results
        self._emit(Notice(loop.notice, "warning"))
        return with_note(results, loop.note)

    async def _request_closing_summary(self) -> str:
        """Request a closing summary without tools after the step limit was reached."""
        self._emit(Notice(f"{STEP_LIMIT} Raise agent.max_turns, or say “continue”.", "warning"))
        closing = prompts.load("closing", self._deps.prompts_folder).strip()
        answer = await self._caller.ask(self._task_id, extra_system=closing, with_tools=False)
        text, reason = await self._check_paid(answer)
        if reason is not None:
            await self._store_call(answer)
            raise AnswerRejected(STEP_LIMIT)
        if not answer.reply.message.text.strip():
            text, self._missing_answer = STEP_LIMIT, "step_limit"
        await self._finish(answer, Message(role="assistant", content=text, kind="assistant"))
        return text

    def _sum_spent(self) -> Spent:
        """Return the amounts spent so far; the ledger is queried only if a spending limit is set."""
        limits, ledger = self._deps.settings.limits, self._deps.store.ledger
        turn = sum(a.cost_usd or 0.0 for a in self._caller.calls)
        session = ledger.totals(self._live.id).cost_usd if limits.max_cost_per_session is not None else None
        day = 0.0
        if limits.max_cost_per_day is not None:
            now_ms = self._deps.clock.now_ms()
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
            client_calls=self._live.client_calls if outcome == "completed" else (),
            finish=self._finish_reason,
            error_kind=self._verdict.kind if self._verdict is not None else "",
            verdict=self._verdict,
            missing_answer=self._missing_answer if outcome in ("completed", "budget") else "",
        )


def _missing_answer(reply: Reply) -> MissingAnswer:
    """Return why a final reply has no text; "" where it has one."""
    if reply.message.text.strip():
        return ""
    return reply.finish if reply.finish in ("refusal", "content_filter") else "no_answer"


def _mark_client_calls(calls: Sequence[ToolCall], options: TurnOptions) -> Iterator[ToolCall]:
    """Mark the calls of the client's tools in a reply, and drop those that the client's tool choice does not allow.

    Models may ignore a tool choice or a ban on parallel calls where their provider does not enforce it.
    """
    is_first = True
    for call in calls:
        if call.name not in options.tool_names:
            yield call
        elif options.tool_choice in (AUTO, REQUIRED, call.name) and (is_first or options.allows_parallel_calls):
            is_first = False
            yield call.for_client()


def _since_request(entries: Sequence[Entry]) -> list[Message]:
    """Return the messages after the newest user request."""
    messages = [e.message for e in entries]
    start = max((i for i, m in enumerate(messages) if m.is_request), default=-1)
    return messages[start + 1 :]


def _cut_off_note(entries: Sequence[Entry]) -> str:
    """Return a note for the model on why its newest reply ends early; "" if it is complete. It is not stored."""
    why = entries[-1].message.cut_off if entries else None
    return "" if why is None else _STOPPED if why == "interrupted" else _CUT_SHORT


def _result_of(call: ToolCall, results: Sequence[Message]) -> Message:
    """Return the result for a call, or a placeholder result if there is none."""
    for result in results:
        if find_call((call,), result.tool_call_id) is not None:
            state = result.tool_state or "completed"
            return replace(result, tool_call_id=call.id, name=call.name, tool_state=state)
    return interrupted_result(call)


def _newest_reply(entries: Sequence[Entry]) -> Message:
    return next(e.message for e in reversed(entries) if e.message.role == "assistant")


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
