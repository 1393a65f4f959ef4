"""Run one message as a job: resolve its conversation, acquire the agent, run the turn, store and publish the result."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from perdure.agent.agent import ConversationAgent
from perdure.agent.turn import ConversationResult
from perdure.commands.command import CommandResult, Commands, is_command
from perdure.commands.titles import title_of
from perdure.core.errors import LeaseLost, NotFound, PerdureError, StoreError
from perdure.core.events import Event, Notice, Outcome, TurnFinished
from perdure.core.messages import Message
from perdure.core.ports import Clock
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import EVERYONE, Visibility, only
from perdure.gateway.auth.principal import Principal, Scope
from perdure.gateway.events.broker import EventBroker
from perdure.gateway.events.types import ChatKey, CommandAnswered, ContextUsageChanged
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.agent_pool import MODEL_KEY, AgentLease, AgentPool, AgentSpec
from perdure.gateway.workers.precompaction import WorkerStats, compact_if_needed
from perdure.gateway.workers.questions import QuestionOrigin
from perdure.gateway.workers.routing import ChatRouting, queue_key
from perdure.providers.routes import EndpointChain
from perdure.store.inbox import InboundMessage, QueuedMessage
from perdure.store.records import Span, StoredEvent
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)
_DIGEST = "message_digest"
# Retry a failing store before the message fails; what was stored is resumed.
_RETRY_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0, None)
GOODBYE = "Bye. The conversation is stored; send a message to continue."


class MessageTakenOver(Exception):
    """Another process owns the message now: this one must not publish or write anything about it."""


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
    route_to: Callable[[str], EndpointChain]
    # Deliver a turn to the chat's platform, from its first event to its last.
    deliver: Callable[[ChatKey, str], None]


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


class MessageJob:
    """The processing of one message."""

    def __init__(self, queued: QueuedMessage, context: WorkerContext) -> None:
        self.queued = queued
        self._context = context
        inbound = queued.inbound
        self.chat = ChatKey(inbound.platform, inbound.user_key, inbound.chat)
        self.principal = Principal(inbound.user_key, frozenset(_parse_scopes(inbound.scopes)))
        self.conversation_id: str | None = queued.conversation_id
        self._agent: ConversationAgent | None = None
        self._wants_stop = queued.wants_stop
        self._set_visibility(only(self.chat.user_key))
        self._is_delivering = False
        # The result is stored; only cleanup remains.
        self.is_finished = False
        # How far another process got: the message is in the log, or even its answer.
        self._is_resumed = False
        self._done: TurnFinished | None = None
        # At shutdown the turn is interrupted but the message stays open: another process finishes it.
        self.is_abandoned = False

    def stop(self) -> None:
        """Interrupt the turn, or keep it from starting."""
        self._wants_stop = True
        if self._agent is not None:
            self._agent.interrupt()

    def abandon(self) -> None:
        self.is_abandoned = True
        self.stop()

    async def run(self) -> None:
        """Run the message, store its result, then publish it. Raises MessageTakenOver, StoreError."""
        if not self._is_delivering:
            self._is_delivering = True
            self._context.deliver(self.chat, self.queued.id)
        content = self.queued.inbound.content
        if isinstance(content, str) and is_command(content):
            await self._run_command(content)
        else:
            await self._run_in_conversation(content, self._resolve)

    def _set_visibility(self, visibility: Visibility) -> None:
        """From now on its events may contain words of these conversations."""
        self._visibility = visibility
        self._publish = self._context.broker.publisher(self.chat, self.queued.id, visibility)

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

    # -- turn ----------------------------------------------------------------------------------------------------------

    async def _run_in_conversation(self, content: str | Mapping[str, Any], resolve: Callable[[], str | None]) -> None:
        async with self._context.pool.acquire(self._spec(resolve), partial(self._begin_turn, content)) as agent_lease:
            agent = agent_lease.agent
            agent_lease.prompter.origin = QuestionOrigin(
                self.chat, self.queued.id, self.principal.scopes, self._visibility
            )
            agent.events.tap(self._on_event)
            try:
                with agent.lent(agent_lease.lease):
                    outcome = self._done or await self._run_turn(content, agent_lease)
            except LeaseLost as error:
                raise MessageTakenOver from error
            finally:
                agent.events.tap(None)
                agent_lease.prompter.origin = self._agent = None
            if self.is_abandoned and outcome.outcome == "interrupted":
                raise MessageTakenOver
            await self._finish(outcome, agent)

    async def _run_turn(self, content: str | Mapping[str, Any], agent_lease: AgentLease) -> TurnFinished:
        """Run the turn, from its message or from where it was cut off."""
        agent, conversation = agent_lease.agent, agent_lease.agent.open()
        if not self._is_resumed:
            self._context.stats.hygiene_checks += 1
            outcome = await compact_if_needed(agent, conversation, conversation.emit)
            if outcome is not None:
                self._context.stats.add(outcome)
        if self._wants_stop:
            return TurnFinished("interrupted", "")
        self._agent = agent
        try:
            if self._is_resumed:
                return _to_event(await agent.afinish_turn(task_id=self.queued.id))
            return _to_event(await agent.arun_conversation(content, task_id=self.queued.id))
        except asyncio.CancelledError:
            # Interrupted before the turn started: nothing was appended.
            if not self._wants_stop:
                raise
            return TurnFinished("interrupted", "")

    def _on_event(self, event: Event) -> None:
        # The final event is published once it is stored, so that clients can rely on it.
        if type(event) is not TurnFinished:
            self._publish(event)

    # -- resolve and resume: in a worker thread, under the lease -------------------------------------------------------

    def _spec(self, resolve: Callable[[], str | None]) -> AgentSpec:
        return AgentSpec(self.chat, self.principal.has_scope("shell"), resolve)

    def _resolve(self) -> str | None:
        """Return the conversation of this message: where it started, the one it names, or the chat's current one."""
        # Resume the conversation that a failed attempt has already started.
        named = self.queued.conversation_id or self.conversation_id or self._named_conversation
        if named is not None:
            return named
        current = self._context.routing.get(self.chat)
        try:
            # An admin token may have switched this chat to another user's conversation, which other tokens must not
            # see.
            conversation = (
                self._context.store.conversations.get(current, visibility=self.principal.visibility)
                if current
                else None
            )
            return conversation.id if conversation is not None else None
        except NotFound:  # deleted, or not visible to the principal: start a new conversation
            return None

    def _begin_turn(self, content: str | Mapping[str, Any], agent_lease: AgentLease) -> None:
        """Detect how far another process got, else mark the message as started here. Raises MessageTakenOver."""
        store, conversation = self._context.store, agent_lease.conversation
        self.conversation_id = conversation.id
        self._set_visibility(only(conversation.user_key))
        if self.queued.begin_seq is not None and self.queued.conversation_id == conversation.id:
            self._resume_if_logged(content, agent_lease)
            return
        seq = conversation.last_seq
        if not store.inbox.begin(self.queued, conversation_id=conversation.id, seq=seq, content=content):
            raise MessageTakenOver
        inbound = replace(self.queued.inbound, content=content)
        self.queued = replace(self.queued, inbound=inbound, conversation_id=conversation.id, begin_seq=seq)
        if seq == 0 and self._is_of_chat:
            self._context.routing.set(self.chat, conversation.id)
        if not conversation.title and (title := title_of(Message.from_dict(content).text)):
            store.conversations.set_title(conversation.id, title)

    def _resume_if_logged(self, content: str | Mapping[str, Any], agent_lease: AgentLease) -> None:
        """Resume if the log already has this message; everything after its start position belongs to it."""
        begin, conversation = self.queued.begin_seq or 0, agent_lease.conversation
        if begin == 0 and self._is_of_chat:  # its process may have died before the chat was routed
            self._context.routing.set(self.chat, conversation.id)
        if conversation.last_seq <= begin:
            return
        since = self._context.store.log.read(conversation.id, Span(begin + 1, conversation.last_seq))
        messages = [e.message for e in since if e.message.kind in ("user", "assistant", "tool")]
        sent = Message.from_dict(content).to_dict()
        self._is_resumed = any(m.is_real_user and m.to_dict() == sent for m in messages)
        if self._is_resumed and messages[-1].role == "assistant" and not messages[-1].tool_calls:
            # The process died after the answer and before its result was stored.
            self._done = TurnFinished("completed", messages[-1].text)

    @property
    def _is_of_chat(self) -> bool:
        return self.queued.inbound.queue_key == queue_key(self.chat, None)

    @property
    def _named_conversation(self) -> str | None:
        return None if self._is_of_chat else self.queued.inbound.queue_key.partition(":")[2]

    # -- command -------------------------------------------------------------------------------------------------------

    async def _run_command(self, text: str) -> None:
        current = await run_blocking(self._resolve)
        self._set_visibility(self.principal.visibility)
        if current is None:
            agent = await run_blocking(self._context.pool.make_unbound, self._spec(lambda: None))
            command_context, reply = await self._dispatch(agent, text)
        else:
            self.conversation_id = current
            async with self._context.pool.acquire(self._spec(lambda: current), lambda agent_lease: None) as agent_lease:
                agent_lease.agent.events.tap(self._on_event)
                try:
                    with agent_lease.agent.lent(agent_lease.lease):
                        command_context, reply = await self._dispatch(agent_lease.agent, text)
                finally:
                    agent_lease.agent.events.tap(None)
        if command_context.has_moved:
            self.conversation_id = command_context.target
            await run_blocking(self._context.routing.set, self.chat, command_context.target)
        if reply.then_send is None:
            text = GOODBYE if reply.is_leaving else reply.text
            await self._finish(CommandAnswered(text, reply.level, self.conversation_id))
        else:
            self._publish(Notice(reply.text))
            await self._run_in_conversation(reply.then_send, lambda: command_context.target)

    async def _dispatch(self, agent: ConversationAgent, text: str) -> tuple[GatewayCommandContext, CommandResult]:
        command_context = GatewayCommandContext(
            self._context.store, agent, self.principal, route_to=self._context.route_to
        )
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
        stored = to_stored_result(result, self.queued.inbound.content)
        if not store.inbox.finish(self.queued, stored, conversation_id=self.conversation_id):
            raise MessageTakenOver
        session_id = agent.session_id if agent is not None else None
        return store.ledger.totals(session_id).cost_usd if session_id is not None else None


class GatewayCommandContext:
    """The context of a slash command for one message."""

    def __init__(
        self,
        store: SessionStore,
        agent: ConversationAgent,
        principal: Principal,
        *,
        route_to: Callable[[str], EndpointChain],
    ) -> None:
        self.store = store
        self.agent = agent
        self.visibility = principal.visibility
        self._route_to = route_to
        # The conversation the chat continues in, if a command switched it.
        self.has_moved = False
        self.target: str | None = None

    def open(self, session_id: str | None) -> None:
        """Switch the chat to a conversation. Raises NotFound if it is not visible to the principal."""
        if session_id is not None:
            session_id = self.store.conversations.get(session_id, visibility=self.visibility).id
        self.has_moved, self.target = True, session_id

    def choose_model(self, name: str) -> str:
        """Store the model with the conversation, so that every process uses it."""
        route = self._route_to(name)
        if self.agent.session_id is None:
            raise NotFound("The conversation is empty; send a message before you choose a model.")
        self.agent.switch_model(route)
        self.store.conversation_state(self.agent.session_id).set(MODEL_KEY, name)
        return f"{route.main.model} ({route.main.provider})"


def to_result(event: TurnFinished | CommandAnswered) -> dict[str, Any]:
    """Serialize the final event of a turn or command."""
    if isinstance(event, CommandAnswered):
        return {"kind": "command", "text": event.text, "level": event.level}
    usage = {f.name: getattr(event.usage, f.name) for f in fields(event.usage)}
    return {
        "kind": "turn",
        "outcome": event.outcome,
        "text": event.final_response,
        "error": event.error,
        "usage": usage,
    }


def to_stored_result(result: Mapping[str, Any], content: str | Mapping[str, Any]) -> dict[str, Any]:
    """Add a digest of the message, whose content is deleted once it is answered."""
    return {**result, _DIGEST: _digest(content)}


def is_same_message(queued: QueuedMessage, inbound: InboundMessage) -> bool:
    """Return whether a message is the one stored under its idempotency key; old results may have no digest."""
    content = inbound.content
    # OpenAI clients address no chat: it is matched by history, and a retry may match another one.
    is_addressed = inbound.platform != "openai"
    if is_addressed and (queued.inbound.chat, queued.inbound.queue_key) != (inbound.chat, inbound.queue_key):
        return False
    # A command may have been replaced by the message it produced.
    if isinstance(content, str) and is_command(content):
        return True
    if queued.state != "done":
        return _digest(queued.inbound.content) == _digest(content)
    return (queued.result or {}).get(_DIGEST) in (None, _digest(content))


def finished_event(result: Mapping[str, Any] | None, conversation_id: str | None) -> TurnFinished | CommandAnswered:
    """Rebuild the final event from a stored result."""
    stored = result or {}
    if stored.get("kind") == "command":
        return CommandAnswered(stored["text"], stored["level"], conversation_id)
    usage = CanonicalUsage(**stored["usage"]) if "usage" in stored else CanonicalUsage(reported=False)
    return TurnFinished(stored.get("outcome", "failed"), stored.get("text", ""), usage, stored.get("error"))


def _digest(content: str | Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def visibility_of(queued: QueuedMessage, store: SessionStore) -> Visibility:
    """Whose words a message's events and result may contain: those of its conversation.

    A command answers with all that its sender may see, so an administrator's is for administrators.
    """
    content, result = queued.inbound.content, queued.result or {}
    is_a_command = result["kind"] == "command" if "kind" in result else isinstance(content, str) and is_command(content)
    if is_a_command and "admin" in queued.inbound.scopes:
        return EVERYONE
    if queued.conversation_id is None:
        return only(queued.inbound.user_key)
    try:
        return only(store.conversations.get(queued.conversation_id).user_key)
    except NotFound:  # deleted since: its owner is no longer known
        return EVERYONE if "admin" in queued.inbound.scopes else only(queued.inbound.user_key)


def _to_event(result: ConversationResult) -> TurnFinished:
    outcome: Outcome = result.outcome
    return TurnFinished(outcome, result.final_response, result.usage, result.error)


def _parse_scopes(stored: Sequence[str]) -> list[Scope]:
    scopes: tuple[Scope, ...] = ("chat", "read", "shell", "admin")
    return [s for s in scopes if s in stored]
