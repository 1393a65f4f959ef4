"""Run one message as a job: resolve its conversation, acquire the agent, run the turn, store and publish the result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.agent.agent import ConversationAgent
from perdure.app.model_choices import ModelChoice, check_known_address
from perdure.app.runtime import MODEL_KEY
from perdure.commands.command import CommandResult, Commands, is_command
from perdure.commands.titles import title_of
from perdure.core.concurrency import CancelToken
from perdure.core.errors import LeaseLost, NotFound, PerdureError, StoreError
from perdure.core.events import Event, Notice, TurnFinished
from perdure.core.messages import Message
from perdure.core.ports import Clock
from perdure.core.turn_options import TurnOptions
from perdure.core.visibility import Visibility
from perdure.gateway.adapters.base import PlatformDelivery
from perdure.gateway.auth.principal import Principal, Scope
from perdure.gateway.events.broker import EventBroker
from perdure.gateway.events.serialize import finished_event, to_result, to_stored_result
from perdure.gateway.events.types import ChatKey, CommandAnswered, ContextUsageChanged
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.agent_pool import AgentLease, AgentPool, AgentSpec, run_when_free
from perdure.gateway.workers.precompaction import WorkerStats, compact_if_needed
from perdure.gateway.workers.questions import QuestionOrigin, QuestionRegistry
from perdure.gateway.workers.routing import ChatRouting
from perdure.store.inbox import QueuedMessage
from perdure.store.records import Conversation, Span, StoredEvent
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)
# Retry a failing store before the message fails; what was stored is resumed.
_RETRY_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0, None)
MessageContent = str | Mapping[str, Any] | None
GOODBYE = "Bye. The conversation is stored; send a message to continue."


class MessageTakenOver(Exception):
    """Raised when another process owns the message by now: this one must not publish or write anything about it."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The services every job uses."""

    store: SessionStore
    pool: AgentPool
    routing: ChatRouting
    broker: EventBroker
    commands: Commands
    stats: WorkerStats
    clock: Clock
    delivery: PlatformDelivery
    questions: QuestionRegistry


async def run_job(job: MessageJob) -> None:
    """Run a message to its end. Raises StoreError if not even a failure could be stored."""
    try:
        await _run_with_retries(job)
    except MessageTakenOver:
        return


async def _run_with_retries(job: MessageJob) -> None:
    for delay_s in _RETRY_DELAYS_S:
        try:
            return await job.run()
        except NotFound as error:
            return await job.fail(str(error))
        except StoreError as error:
            _log.warning("turn %s: store error (%s)", job.queued.id, type(error).__name__)
            if delay_s is None:
                return await job.fail(str(error))
            await asyncio.sleep(delay_s)
        except MessageTakenOver:
            raise
        except PerdureError as error:
            return await job.fail(str(error))
        except Exception as error:  # one message must not end the queue of all that follow
            _log.exception("turn %s failed", job.queued.id)
            reason = f"internal error ({type(error).__name__}); see the gateway's log"
            return await job.fail(reason)


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn that is ready to run: its agent is leased, and the inbox has its message marked as started."""

    agent_lease: AgentLease
    # The log has the message already: the process that started it died.
    is_resumed: bool = False
    # The log has even the answer: that process died before it stored the result.
    outcome: TurnFinished | None = None


class MessageJob:
    """Processes one message: resolve its conversation, acquire the agent, begin, run the turn, store and publish."""

    def __init__(self, queued: QueuedMessage, context: WorkerContext) -> None:
        self.queued = queued
        self._context = context
        inbound = queued.inbound
        self.chat = ChatKey(inbound.platform, inbound.user, inbound.chat)
        self.principal = Principal(inbound.user, frozenset(_parse_scopes(inbound.scopes)))
        self._options = TurnOptions.from_dict(inbound.options)
        self._spec = AgentSpec(
            self.chat, self.principal.has_scope("shell"), self._options.unattended, self._options.model
        )
        self.conversation_id: str | None = queued.conversation_id
        # A command of this message chose `conversation_id`, None for a new conversation.
        self._has_moved = False
        self._require_visibility(self.chat.user)
        self._is_delivering = False
        self._cancel = CancelToken()
        if queued.wants_stop:
            self._cancel.cancel()
        # At shutdown the turn is interrupted but the message stays open: another process finishes it.
        self._is_abandoned = False
        # The result is stored; only cleanup remains.
        self.is_finished = False

    @property
    def has_started(self) -> bool:
        """Whether the turn has the lease of its conversation; before that, it waits for other turns there."""
        return self.queued.begin_seq is not None

    def stop(self) -> None:
        """Interrupt the turn, or keep it from starting; called in the event loop."""
        self._cancel.cancel()

    def abandon(self) -> None:
        self._is_abandoned = True
        self.stop()

    async def run(self) -> None:
        """Run the message, store its result, then publish it. Raises MessageTakenOver, StoreError."""
        if not self._is_delivering:
            self._is_delivering = True
            self._context.delivery.start(self.chat, self.queued.id)
        content = self.queued.inbound.content
        if isinstance(content, str) and is_command(content):
            await self._run_command(content)
        else:
            await self._run_message(content)

    def _require_visibility(self, required: Visibility) -> None:
        """Publish from now on only to readers whose visibility covers this one."""
        self._required_visibility = required
        self._publish = self._context.broker.publisher(self.chat, self.queued.id, required_visibility=required)

    async def fail(self, reason: str) -> None:
        """Finish the message with an error."""
        await run_blocking(self._record_failure, reason)
        await self._finish(TurnFinished("failed", "", error=reason))

    def _record_failure(self, reason: str) -> None:
        """Record the reason with the conversation, if there is one; runs in a worker thread."""
        if self.conversation_id is None:
            return
        store = self._context.store
        try:
            session_id = store.conversations.get(self.conversation_id).tip_session_id
            store.ledger.record_event(StoredEvent(session_id, "turn_failed", {"reason": reason}))
        except StoreError as error:
            _log.warning("turn %s: the failure could not be recorded (%s)", self.queued.id, type(error).__name__)

    # -- message -------------------------------------------------------------------------------------------------------

    async def _run_message(self, content: MessageContent) -> None:
        started = await run_when_free(self._start, content)
        async with self._context.pool.use_agent(started.agent_lease) as agent:
            if started.is_resumed:
                await self._context.questions.withdraw(self.queued.id, required_visibility=self._required_visibility)
            outcome = started.outcome or await self._run_turn(content, started)
            if self._is_abandoned and outcome.outcome == "interrupted":
                raise MessageTakenOver
            await self._finish(outcome, agent)

    def _start(self, content: MessageContent) -> StartedTurn:
        """Resolve, acquire, begin. In one worker thread, so that a message waits for one thread switch, not three.

        Raises LeaseLost while the conversation is leased elsewhere, MessageTakenOver, StoreError.
        """
        conversation_id = self._resolve()
        agent_lease = self._context.pool.acquire(conversation_id, self._spec)
        try:
            return self._begin(content, agent_lease)
        except BaseException:
            self._context.pool.cancel(agent_lease)
            raise

    def _resolve(self) -> str | None:
        """Return the conversation of this message: where it started, the one it names, or the chat's current one."""
        if self._has_moved:
            return self.conversation_id
        # Resume the conversation that a failed attempt has already started.
        named = self.queued.conversation_id or self.conversation_id or self.queued.inbound.conversation_id
        if named is not None:
            return named
        current = self._context.routing.get(self.chat)
        if current is None:
            return None
        try:
            # An admin token may have switched this chat to another user's conversation, which other tokens must not
            # see.
            return self._context.store.conversations.get(current, visibility=self.principal.visibility).id
        except NotFound:  # deleted, or not visible to the principal: start a new conversation
            return None

    def _begin(self, content: MessageContent, agent_lease: AgentLease) -> StartedTurn:
        """Detect how far another process got, else mark the message as started here. Raises MessageTakenOver."""
        store, conversation = self._context.store, agent_lease.conversation
        self.conversation_id = conversation.id
        self._require_visibility(conversation.user)
        if self.queued.begin_seq is not None and self.queued.conversation_id == conversation.id:
            return self._resume(content, agent_lease, self.queued.begin_seq)
        seq = conversation.last_seq
        if not store.inbox.begin(self.queued, conversation_id=conversation.id, seq=seq, content=content):
            raise MessageTakenOver
        inbound = replace(self.queued.inbound, content=content)
        self.queued = replace(self.queued, inbound=inbound, conversation_id=conversation.id, begin_seq=seq)
        if seq == 0 and self._is_of_chat:
            self._context.routing.set(self.chat, conversation.id)
        self._set_title(content, conversation)
        return StartedTurn(agent_lease)

    def _set_title(self, content: MessageContent, conversation: Conversation) -> None:
        if content is not None and not conversation.title and (title := title_of(Message.from_dict(content).text)):
            self._context.store.conversations.set_title(conversation.id, title)

    def _resume(self, content: MessageContent, agent_lease: AgentLease, begin_seq: int) -> StartedTurn:
        """Read from the log how far an earlier attempt at this message got: its entries follow `begin_seq`."""
        conversation = agent_lease.conversation
        if begin_seq == 0 and self._is_of_chat:  # its process may have died before the chat was routed
            self._context.routing.set(self.chat, conversation.id)
        self._set_title(content, conversation)
        if conversation.last_seq <= begin_seq:
            return StartedTurn(agent_lease)
        since = self._context.store.log.read(conversation.id, Span(begin_seq + 1, conversation.last_seq))
        messages = [e.message for e in since if e.message.kind in ("user", "assistant", "tool")]
        if not self._is_begun(content, messages):
            return StartedTurn(agent_lease)
        last = messages[-1]
        is_answered = last.role == "assistant" and not last.tool_calls and last.cut_off is None
        outcome = TurnFinished("completed", last.text) if is_answered else None
        return StartedTurn(agent_lease, is_resumed=True, outcome=outcome)

    def _is_begun(self, content: MessageContent, messages: Sequence[Message]) -> bool:
        """Return whether the log has the message, or the results that came without one."""
        if content is None:
            return any(m.role == "tool" for m in messages)
        sent = Message.from_dict(content).to_dict()
        return any(m.is_real_user and m.to_dict() == sent for m in messages)

    @property
    def _is_of_chat(self) -> bool:
        return self.queued.inbound.conversation_id is None

    # -- turn ----------------------------------------------------------------------------------------------------------

    async def _run_turn(self, content: MessageContent, started: StartedTurn) -> TurnFinished:
        """Run the turn, from its message or from where it was cut off. Raises MessageTakenOver."""
        agent_lease = started.agent_lease
        agent_lease.prompter.origin = QuestionOrigin(
            self.chat, self.queued.id, self.principal.scopes, self._required_visibility
        )
        try:
            with self._attach_agent(agent_lease) as agent:
                # Between a call and its result nothing is compacted; the turn itself does, once it has them.
                if not started.is_resumed and not self._options.results and not self._cancel.is_cancelled:
                    await self._precompact(agent)
                if self._cancel.is_cancelled:
                    if started.is_resumed or self._is_abandoned:
                        return TurnFinished("interrupted", "")
                    # The turn has begun by the next iteration: it ends at once, and its message is in the log.
                    asyncio.get_running_loop().call_soon(agent.interrupt)
                unregister = self._cancel.on_cancel(agent.interrupt)
                try:
                    if started.is_resumed:
                        return (await agent.afinish_turn(task_id=self.queued.id, options=self._options)).event
                    turn = agent.arun_conversation(content, task_id=self.queued.id, options=self._options)
                    return (await turn).event
                finally:
                    unregister()
        except LeaseLost as error:
            raise MessageTakenOver from error
        finally:
            agent_lease.prompter.origin = None

    async def _precompact(self, agent: ConversationAgent) -> None:
        conversation, stats = agent.open(), self._context.stats
        stats.precompaction_checks += 1
        outcome = await compact_if_needed(agent, conversation, conversation.emit)
        if outcome is not None:
            stats.add(outcome)

    @contextlib.contextmanager
    def _attach_agent(self, agent_lease: AgentLease) -> Iterator[ConversationAgent]:
        """Publish the agent's events as this message's, and let it write under the job's lease, in a `with` block."""
        agent = agent_lease.agent
        agent.events.tap(self._on_event)
        try:
            with agent.use_lease(agent_lease.lease):
                yield agent
        finally:
            agent.events.tap(None)

    def _on_event(self, event: Event) -> None:
        # The final event is published once it is stored, so that clients can rely on it.
        if type(event) is not TurnFinished:
            self._publish(event)

    # -- command -------------------------------------------------------------------------------------------------------

    async def _run_command(self, text: str) -> None:
        current = await run_blocking(self._resolve)
        self._require_visibility(self.principal.visibility)
        if current is None:
            agent = await run_blocking(self._context.pool.make_unbound, self._spec)
            command_context, reply = await self._dispatch(agent, text)
        else:
            self.conversation_id = current
            agent_lease = await run_when_free(self._context.pool.acquire, current, self._spec)
            async with self._context.pool.use_agent(agent_lease):
                with self._attach_agent(agent_lease) as agent:
                    command_context, reply = await self._dispatch(agent, text)
        if command_context.has_moved:
            self._has_moved, self.conversation_id = True, command_context.target
            await run_blocking(self._context.routing.set, self.chat, command_context.target)
        if reply.then_send is None:
            text = GOODBYE if reply.is_leaving else reply.text
            await self._finish(CommandAnswered(text, reply.level, self.conversation_id))
        else:
            self._publish(Notice(reply.text))
            await self._run_message(reply.then_send)

    async def _dispatch(self, agent: ConversationAgent, text: str) -> tuple[GatewayCommandContext, CommandResult]:
        command_context = GatewayCommandContext(self._context.store, agent, self.principal, self._context.pool)
        reply = await asyncio.to_thread(self._context.commands.dispatch, command_context, text)
        return command_context, reply or CommandResult("")

    # -- result --------------------------------------------------------------------------------------------------------

    async def _finish(self, event: TurnFinished | CommandAnswered, agent: ConversationAgent | None = None) -> None:
        """Store the result, then publish it."""
        result = to_result(event)
        cost = await run_blocking(self._store_result, result, agent)
        self.is_finished = True
        if agent is not None:
            usage = agent.gauge
            usage_changed = ContextUsageChanged(
                usage.model, usage.tokens, usage.window, usage.threshold, usage.composition, cost
            )
            self._publish(usage_changed)
        self._publish(finished_event(result, self.conversation_id))

    def _store_result(self, result: Mapping[str, Any], agent: ConversationAgent | None) -> float | None:
        store = self._context.store
        stored = to_stored_result(result, self.queued.inbound)
        if not store.inbox.finish(self.queued, stored, conversation_id=self.conversation_id):
            raise MessageTakenOver
        session_id = agent.session_id if agent is not None else None
        return store.ledger.totals(session_id).least_cost_usd if session_id is not None else None


class GatewayCommandContext:
    """The CommandContext of a slash command that was sent to a gateway."""

    def __init__(
        self,
        store: SessionStore,
        agent: ConversationAgent,
        principal: Principal,
        pool: AgentPool,
    ) -> None:
        self.store = store
        self.agent = agent
        self.visibility = principal.visibility
        self.page_chars = 6_000
        self.project: str | None = None
        self.listed_ids: Sequence[str] = ()
        self._pool = pool
        # The conversation the chat continues in, if a command switched it.
        self.has_moved = False
        self.target: str | None = None

    def open(self, session_id: str | None) -> None:
        """Switch the chat to a conversation. Raises NotFound if it is not visible to the principal."""
        if session_id is not None:
            session_id = self.store.conversations.get(session_id, visibility=self.visibility).id
        self.has_moved, self.target = True, session_id

    def model_choices(self) -> Sequence[ModelChoice]:
        """Return no choices: models on this machine are not shown to users of a gateway."""
        return ()

    def sources(self) -> Sequence[tuple[str, str]]:
        """Return no sources: paths of this machine are not shown to users of a gateway."""
        return ()

    def choose_model(self, name: str) -> str:
        """Store the model with the conversation, so that every process uses it."""
        check_known_address(name)
        route = self._pool.route_to(name)
        if self.agent.session_id is None:
            raise NotFound("The conversation is empty; send a message before you choose a model.")
        self.agent.switch_model(route)
        self.store.conversation_state(self.agent.session_id).set(MODEL_KEY, name)
        return f"{route.main.model} ({route.main.provider})"


def _parse_scopes(stored: Sequence[str]) -> list[Scope]:
    scopes: tuple[Scope, ...] = ("chat", "read", "shell", "admin")
    return [s for s in scopes if s in stored]
