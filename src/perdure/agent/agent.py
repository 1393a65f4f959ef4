"""`ConversationAgent`: runs the turns and compactions of one conversation, from any thread.

`AgentDeps` has what it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perdure.agent.callbacks import Callbacks
from perdure.agent.compaction import compact_on_request, edit_plan
from perdure.agent.context_usage import ContextUsage, describe_oversize, last_usage, usage_before_first_message
from perdure.agent.deps import AgentDeps, join_engine_tools
from perdure.agent.prompt import assemble
from perdure.agent.runner import EventBus, LoopThread, TurnRunner
from perdure.agent.session import LiveSession, describe_remote_changes
from perdure.agent.turn import ConversationResult, OpenConversation, Turn
from perdure.context.engine import CompactionReport, EngineServices, StartReason
from perdure.core.errors import InvalidMessage, ProviderError, TurnFailed
from perdure.core.events import Emit, Event, MissingAnswer, ModelSwitched, Notice, TurnFinished
from perdure.core.messages import SYSTEM_NOTE, Entry, Message, parse_user_message
from perdure.core.turn_options import NO_OPTIONS, TurnOptions
from perdure.models.tokens import estimate_message
from perdure.providers.routes import EndpointChain as RouteToModel
from perdure.providers.types import Endpoint
from perdure.store.leases import holder_id, is_holder_dead
from perdure.store.records import Lease, RouteRecord, damage_notice

# Shorter messages fit every window.
_LONG_MESSAGE_TOKENS = 2_000


class ConversationAgent:
    """An agent bound to one conversation. Sync methods are safe from any thread; one turn runs at a time."""

    def __init__(
        self,
        deps: AgentDeps,
        loop_thread: LoopThread,
        *,
        services: Callable[[LiveSession], EngineServices],
        events: EventBus | None = None,
        session_id: str | None = None,
        callbacks: Callbacks | None = None,
        system_prompt: str | None = None,
        warnings: Sequence[str] = (),
        closers: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._deps = deps
        self._services = services
        self._wanted_id = session_id
        self._system_prompt = system_prompt
        # Whether the conversation was there before this agent, so that its own prompt is not the stored one.
        self._is_resumed = False
        self._bus = events or EventBus()
        self._runner = TurnRunner(loop_thread, self._bus, callbacks)
        self._conversation: OpenConversation | None = None
        # What could not be set up, such as a tool server that does not start.
        self.warnings = warnings
        # Emitted as notices when the conversation is opened, for a program that does not print `warnings`.
        self.unreported_warnings: list[str] = []
        # Idempotent functions that release what was opened for this agent, such as tool servers.
        self._closers = tuple(closers)
        self._first_reading: ContextUsage | None = None
        # The model of which it was said that it cannot call tools.
        self._reported_model = ""
        # Whether the model that is to answer has yet to be chosen.
        self.has_open_model = False

    # -- talking -----------------------------------------------------------------------------------------------------

    def chat(self, text: str) -> str:
        """Run one turn and return its final response. Raises TurnFailed."""
        return _answer_of(self.run_conversation(text))

    async def achat(self, text: str) -> str:
        return _answer_of(await self.arun_conversation(text))

    def run_conversation(
        self,
        user_message: str | Mapping[str, Any],
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        task_id: str | None = None,
    ) -> ConversationResult:
        """Run one turn and return its result.

        An error of the turn is in the result (`outcome`, `error`), not raised.
        """
        _check_message(user_message)
        history = _parse_history(conversation_history)
        return self._runner.run(self._turn(user_message, system_message, history, task_id))

    async def arun_conversation(
        self,
        user_message: str | Mapping[str, Any] | None,
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        task_id: str | None = None,
        *,
        options: TurnOptions = NO_OPTIONS,
    ) -> ConversationResult:
        """Run one turn. Without a user message, the open turn continues with the client's tool results in `options`."""
        if user_message is not None:
            _check_message(user_message)
        history = _parse_history(conversation_history)
        return await self._runner.arun(self._turn(user_message, system_message, history, task_id, options))

    async def afinish_turn(
        self, task_id: str | None = None, *, options: TurnOptions = NO_OPTIONS
    ) -> ConversationResult:
        """Resume a turn cut off by a crash: its user message is stored, its reply is not."""
        return await self._runner.arun(self._turn(None, None, None, task_id, options))

    async def stream(self, text: str) -> AsyncIterator[Event]:
        """Stream the events of one turn; the last one is TurnFinished."""
        _check_message(text)
        await self._runner.settle()
        subscription = self._bus.subscribe()
        future = self._runner.start(self._turn(text, None, None, None))
        future.add_done_callback(lambda _: subscription.close())
        is_over = False
        try:
            async for event in subscription:
                is_over = isinstance(event, TurnFinished)
                yield event
                if is_over:
                    break
            await asyncio.wrap_future(future)
        finally:
            subscription.close()
            # After the last event the agent may be busy with the next turn already.
            if not is_over and not future.done():
                self.interrupt()

    def stream_here(self, text: str) -> Iterator[Event]:
        """Iterate over the events of one turn from a thread without an event loop; blocks between events."""
        _check_message(text)
        subscription = self._bus.subscribe()
        future = self._runner.start(self._turn(text, None, None, None))
        future.add_done_callback(lambda _: subscription.close())
        is_over = False
        try:
            for event in subscription:
                is_over = isinstance(event, TurnFinished)
                yield event
                if is_over:
                    break
            future.result()
        finally:
            subscription.close()
            if not is_over and not future.done():
                self.interrupt()

    def interrupt(self) -> bool:
        """Cancel the running turn, from any thread: closes the request, cancels tools, leaves a valid history.

        Returns whether there was one.
        """
        return self._runner.interrupt()

    def compress(self, focus_topic: str | None = None) -> CompactionReport:
        """Compact now, whatever the context usage, and return a report.

        `focus_topic` is what the handoff must cover best.
        """
        return self._runner.run(self._compress(focus_topic))

    async def acompress(self, focus_topic: str | None = None) -> CompactionReport:
        return await self._runner.arun(self._compress(focus_topic))

    def switch_model(self, route: RouteToModel) -> None:
        """Switch to another model for the calls that follow.

        The history is made to fit its window before the next call.

        The first choice of a model is not announced as a switch.
        """
        is_first, self.has_open_model = self.has_open_model, False
        old = self._deps.routes.endpoint.model
        self._deps.routes.switch_to(route)
        self._first_reading = None
        emit: Emit = self._bus.emit
        if self._conversation is not None:
            self._conversation.caller.model_changed()
            emit = self._conversation.emit
        if not is_first:
            emit(ModelSwitched(old, route.main.model, "chosen"))

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str | None:
        """The current session id; None before the first message."""
        return self._conversation.live.id if self._conversation is not None else self._wanted_id

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint (provider, address, model) that the next model call goes to; after a failure, the fallback."""
        return self._deps.routes.endpoint

    @property
    def gauge(self) -> ContextUsage:
        """The current context usage, by the token counter that also triggers compaction.

        While the model is still open (`has_open_model`), the usage of the last call.
        """
        usage = self._first_reading or ContextUsage(self.endpoint.model)
        if self._conversation is not None:
            usage = self._conversation.live.usage
        session_id = self.session_id if self.has_open_model else None
        return last_usage(self._deps.store, session_id, usage) if session_id is not None else usage

    def measure(self) -> ContextUsage:
        """Return the context usage after resolving the model's window, which may query its endpoint once."""
        return self._runner.run(self._measure())

    def describe_oversize(self, user_message: str | Mapping[str, Any]) -> str | None:
        """Return why a message cannot be sent, because it alone exceeds the room of the window; None if it may fit.

        For a long message, the model's window is resolved first, which may query its endpoint.
        """
        message, usage = parse_user_message(user_message), self.gauge
        if usage.window is None and estimate_message(message) >= _LONG_MESSAGE_TOKENS:
            usage = self.measure()
        return describe_oversize(message, usage, self._deps)

    def undo(self) -> str:
        """Undo the last compaction and return the id of the session that continues; deletes nothing."""
        return self._runner.run(self._undo())

    def add_note(self, text: str) -> None:
        """Store a note that the model reads with the next message; it does not count as the user's."""
        self._runner.run(self._add_note(text))

    def edit_handoff(self, sections: str) -> str:
        """Replace the sections of the newest handoff and return the id of the session that continues; deletes nothing.

        Raises NotFound without a handoff, ConfigError where no section is left.
        """
        return self._runner.run(self._edit_handoff(sections))

    def open(self) -> OpenConversation:
        """Open the conversation (resume or create it) without running a turn.

        Reads the store in the caller's thread; only while no turn is under way.
        """
        return self._open(None, None)

    @contextlib.contextmanager
    def use_lease(self, lease: Lease) -> Iterator[None]:
        """Run the turns of a `with` block under a lease that the caller holds, instead of taking one for each turn."""
        conversation = self._open(None, None)
        conversation.live.lease = lease
        try:
            yield
        finally:
            conversation.live.lease = None

    @property
    def deps(self) -> AgentDeps:
        """The dependencies of this agent."""
        return self._deps

    @property
    def events(self) -> EventBus:
        return self._bus

    def close(self) -> None:
        """End the conversation for the engine and close its tools; leaves the store open.

        The next call opens it again.
        """
        if self._conversation is not None:
            # A summary that is under way is billed: its call is stored before the store may close.
            if (preparation := self._conversation.gate.cancel_preparation()) is not None:
                self._runner.wait_for(preparation)
            self._conversation.live.flush()
            self._wanted_id = self._conversation.live.id
            self._deps.engine.on_session_end(self._wanted_id)
            self._conversation = None
        for close in self._closers:
            close()

    def stop(self) -> None:
        """Interrupt the running turn and wait for it, unless called on its own event loop."""
        self._runner.stop()

    # -- inside the loop ---------------------------------------------------------------------------------------------

    async def _turn(
        self,
        user_message: str | Mapping[str, Any] | None,
        system_message: str | None,
        history: Sequence[Message] | None,
        task_id: str | None,
        options: TurnOptions = NO_OPTIONS,
    ) -> ConversationResult:
        message = parse_user_message(user_message) if user_message is not None else None
        conversation = await self._open_conversation(system_message, history)
        conversation.live.override_system_prompt(self._prompt_of_turn(system_message))
        conversation.live.begin_turn(options)
        hold = self._hold_lease(conversation)
        turn = Turn(self._deps, conversation, task_id=task_id or self._deps.ids.new("t_"), hold=hold)
        return await turn.run(message)

    async def _compress(self, focus_topic: str | None) -> CompactionReport:
        conversation = await self._open_conversation(None, None)
        conversation.gate.cancel_preparation()
        await conversation.caller.fit_window()
        live, hold = conversation.live, self._hold_lease(conversation)
        report = await compact_on_request(live, self._deps, conversation.emit, focus_topic=focus_topic, hold=hold)
        if live.has_pending:
            await self._deps.run_blocking(live.flush)
        return report

    async def _measure(self) -> ContextUsage:
        if self._conversation is None and self._wanted_id is None:
            self._first_reading = await usage_before_first_message(self._deps, self._system_prompt)
        else:
            await (await self._open_conversation(None, None)).caller.fit_window()
        return self.gauge

    async def _undo(self) -> str:
        conversation = await self._open_conversation(None, None)
        conversation.gate.cancel_preparation()
        return await self._deps.run_blocking(lambda: self._undo_here(conversation))

    async def _add_note(self, text: str) -> None:
        conversation = await self._open_conversation(None, None)
        await self._deps.run_blocking(lambda: self._note_here(conversation, text))

    def _note_here(self, conversation: OpenConversation, text: str) -> None:
        live = conversation.live
        with self._hold_lease(conversation):
            live.settle()
            if not live.has_open_calls:  # nothing may come between a client's calls and their results
                live.append(Message("user", f"{SYSTEM_NOTE}{text}", kind="note"))

    async def _edit_handoff(self, sections: str) -> str:
        conversation = await self._open_conversation(None, None)
        conversation.gate.cancel_preparation()
        return await self._deps.run_blocking(lambda: self._edit_here(conversation, sections))

    def _edit_here(self, conversation: OpenConversation, sections: str) -> str:
        live, store = conversation.live, self._deps.store
        with self._hold_lease(conversation):
            plan = edit_plan(live.entries, sections)
            session = store.compactions.compact(live.id, plan, lease=live.lease, began_by="edit")
            live.move_to(session, store.history(session.id).entries)
        self._deps.engine.on_session_start(session.id, reason="resume", services=self._services(live))
        return session.id

    def _undo_here(self, conversation: OpenConversation) -> str:
        live, store = conversation.live, self._deps.store
        with self._hold_lease(conversation):
            session = store.undo(live.id, lease=live.lease)
            live.move_to(session, store.history(session.id).entries)
        self._deps.engine.on_session_start(session.id, reason="undo", services=self._services(live))
        return session.id

    async def _open_conversation(
        self, system_message: str | None, history: Sequence[Message] | None
    ) -> OpenConversation:
        """Open the conversation in a worker thread unless it is open.

        An interrupt meanwhile takes effect afterwards.
        """
        if self._conversation is not None and history is None:
            return self._conversation
        try:
            return await self._deps.run_blocking(lambda: self._open(system_message, history))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._conversation is None or task is None:
                raise
            # Raised again at the next await, once the user message is stored.
            task.uncancel()
            task.cancel()
            return self._conversation

    def _open(self, system_message: str | None, history: Sequence[Message] | None) -> OpenConversation:
        """Resume or create the conversation if it is not open, and append the messages by which `history` is longer.

        A `history` that differs from the stored one starts a new conversation.
        """
        if self._conversation is None:
            if self._wanted_id:
                tip_id = self._deps.store.get_compression_tip(self._wanted_id, visibility=self._deps.visibility)
                self._conversation = self._enter(tip_id, "resume")
                self._is_resumed = True
                self._conversation.live.override_system_prompt(self._prompt_of_turn(None))
            else:
                self._conversation = self._enter(self._create(system_message), "new")
        if history is not None:
            missing = _new_messages(history, self._conversation.live.entries)
            if missing is None:  # not this conversation, which stays as it is
                left_id = self._conversation.live.id
                self._conversation = self._enter(self._create(system_message), "new")
                self._is_resumed = False
                self._bus.emit(Notice(_OTHER_HISTORY.format(left=left_id, new=self._conversation.live.id), "warning"))
                missing = history
            if missing:
                self._conversation.live.append(*missing)
        return self._conversation

    def _prompt_of_turn(self, system_message: str | None) -> str | None:
        """Return the system prompt that a turn has in place of the stored one; None: the stored one is sent."""
        return self._system_prompt if system_message is None and self._is_resumed else system_message

    def _enter(self, session_id: str, reason: StartReason) -> OpenConversation:
        history = self._deps.store.history(session_id)
        if history.damage:
            self._bus.emit(Notice(damage_notice(history.damage), "warning"))
        live = LiveSession(self._deps, history)
        self._deps.engine.on_session_start(session_id, reason=reason, services=self._services(live))
        for line in join_engine_tools(self._deps.tools.registry, self._deps.engine):
            self._bus.emit(Notice(line, "warning"))
        live.offer_tools()
        if reason == "resume":
            live.restore_count()
        self._report_warnings(live)
        return OpenConversation(self._deps, live, self._bus.emit)

    def _report_warnings(self, live: LiveSession) -> None:
        """Emit what could not be set up as notices, once."""
        lines, self.unreported_warnings = self.unreported_warnings, []
        endpoint, tools = self.endpoint, self._deps.tools.offer()
        if self._deps.is_library and tools and not live.tools and self._reported_model != endpoint.model:
            self._reported_model = endpoint.model
            lines.append(f"{endpoint.model} cannot call tools: those of this agent are not offered to it.")
        for line in lines:
            self._bus.emit(Notice(line, "warning"))

    def _create(self, system_message: str | None) -> str:
        deps, endpoint = self._deps, self._deps.routes.endpoint
        prompt = system_message if system_message is not None else self._system_prompt
        if prompt is None:
            prompt = assemble(deps.prompt_sources(deps.memory.snapshot(deps.user.stored_key)))
        route = RouteRecord(endpoint.provider, endpoint.model, endpoint.api_mode)
        session = deps.store.conversations.create(
            system_prompt=prompt, route=route, source=deps.source, user=deps.user, chat_key=deps.chat_key
        )
        return session.id

    @contextlib.contextmanager
    def _hold_lease(self, conversation: OpenConversation) -> Iterator[None]:
        """Hold the write lease of the conversation for one turn. Raises LeaseLost, naming the holder."""
        live = conversation.live
        if live.lease is not None:  # the lender has reloaded the conversation
            yield
            return
        with self._deps.store.leases.hold(live.id, holder_id(), is_dead=is_holder_dead) as lease:
            live.lease = lease
            try:
                self._catch_up(conversation)
                yield
            finally:
                live.lease = None

    def _catch_up(self, conversation: OpenConversation) -> None:
        """Reload the history if another process changed it since it was read, and emit a notice of what it did."""
        live, store = conversation.live, self._deps.store
        live.reconcile()
        description = describe_remote_changes(live, store)
        if description is None:
            return
        conversation.gate.cancel_preparation()
        history = store.history(live.conversation_id)
        live.move_to(history.session, history.entries)
        live.restore_count()
        self._deps.engine.on_session_start(history.session.id, reason="resume", services=self._services(live))
        self._bus.emit(Notice(description))


def _check_message(message: object) -> None:
    """Raise InvalidMessage for a value that is neither a text nor a message, before a conversation is opened."""
    if not isinstance(message, str | Mapping | Message):
        raise InvalidMessage(f"a message is a text or a dict like {{'role': 'user', …}}, not {message!r:.80}")


_OTHER_HISTORY = (
    "conversation_history differs from the messages stored in {left}, so the turn runs in a new conversation, {new}."
)


def _parse_history(history: object) -> list[Message] | None:
    """Return the messages of `conversation_history=`. Raises InvalidMessage, before a conversation is opened."""
    if history is None:
        return None
    if isinstance(history, str | bytes | Mapping) or not isinstance(history, Iterable):
        form = '[{"role": "user", "content": "…"}]'
        raise InvalidMessage(f"conversation_history is a list like {form}, not {history!r:.40}")
    return [Message.from_dict(m) for m in history]


def _new_messages(history: Sequence[Message], entries: Sequence[Entry]) -> Sequence[Message] | None:
    """Return the messages that extend the stored history; None where the histories differ."""
    stored = [e.message for e in entries]
    same = len(history) >= len(stored) and all(
        a.to_dict() == b.to_dict() for a, b in zip(history, stored, strict=False)
    )
    return history[len(stored) :] if same else None


_OTHERWISE = "ask in other words, or choose another model with .switch_model(name)"
_MISSING_ANSWERS: Mapping[MissingAnswer, str] = {
    "no_answer": "the model gave no answer; ask again, or choose another model with .switch_model(name)",
    "refusal": f"the model refused to answer; {_OTHERWISE}",
    "content_filter": f"a content filter of the provider withheld the answer; {_OTHERWISE}",
    "step_limit": "the turn reached its step limit, and the model did not sum up what was done; raise agent.max_turns,"
    " or go on with another message",
}


def _answer_of(result: ConversationResult) -> str:
    if result.outcome in ("completed", "budget"):
        if result.missing_answer:
            raise TurnFailed(_MISSING_ANSWERS[result.missing_answer], kind=result.missing_answer, result=result)
        return result.final_response
    verdict = result.verdict
    text = result.error or ("the turn was interrupted" if result.outcome == "interrupted" else "the turn failed")
    failure = TurnFailed(text, kind=result.error_kind or result.outcome, verdict=verdict, result=result)
    raise failure from (None if verdict is None else ProviderError(verdict, partial_text=result.partial_text))
