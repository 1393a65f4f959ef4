"""Run one message job: resolve, acquire, begin, report."""

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
from perdure.gateway.auth.principal import Principal, Scope
from perdure.gateway.events.broker import Streams
from perdure.gateway.events.types import ChatKey, CommandAnswered, ContextUsageChanged
from perdure.gateway.executor import in_thread
from perdure.gateway.workers.agent_pool import MODEL_KEY, AgentLease, AgentPool, AgentSpec
from perdure.gateway.workers.precompaction import HygieneCounts, keep_clean
from perdure.gateway.workers.questions import QuestionOrigin
from perdure.gateway.workers.routing import ChatRouting, lane_of
from perdure.providers.routes import EndpointChain
from perdure.store.inbox import QueuedMessage
from perdure.store.records import Span, StoredEvent
from perdure.store.store import SessionStore

_DIGEST = "message_digest"


def result_of(event: TurnFinished | CommandAnswered) -> dict[str, Any]:
    """A turn's or a command's end as JSON."""
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


def kept_result(result: Mapping[str, Any], content: str | Mapping[str, Any]) -> dict[str, Any]:
    """A result as it is kept: with a digest of its message, whose text is not kept once it is answered."""
    return {**result, _DIGEST: _digest(content)}


def is_message_of(taken: QueuedMessage, content: str | Mapping[str, Any]) -> bool:
    """Whether a message is the one that was taken under its key; one answered long ago may have no digest."""
    # A command may have been replaced by the message it made.
    if isinstance(content, str) and is_command(content):
        return True
    if taken.state != "done":
        return _digest(taken.inbound.content) == _digest(content)
    return (taken.result or {}).get(_DIGEST) in (None, _digest(content))


def _digest(content: str | Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def finished_event(result: Mapping[str, Any] | None, conversation_id: str | None) -> TurnFinished | CommandAnswered:
    """The event of an end that was kept."""
    kept = result or {}
    if kept.get("kind") == "command":
        return CommandAnswered(kept["text"], kept["level"], conversation_id)
    usage = CanonicalUsage(**kept["usage"]) if "usage" in kept else CanonicalUsage(reported=False)
    return TurnFinished(kept.get("outcome", "failed"), kept.get("text", ""), usage, kept.get("error"))


class GatewayCommandContext:
    """What a command is lent for one message."""

    def __init__(
        self,
        store: SessionStore,
        agent: ConversationAgent,
        person: Principal,
        *,
        route_to: Callable[[str], EndpointChain],
    ) -> None:
        self.store = store
        self.agent = agent
        self.visibility = person.visibility
        self._route_to = route_to
        # Where the chat goes on: as it was, unless a command says otherwise.
        self.has_moved = False
        self.target: str | None = None

    def open(self, session_id: str | None) -> None:
        """The chat goes on there. Raises NotFound for a conversation that is somebody else's."""
        if session_id is not None:
            session_id = self.store.conversations.get(session_id, visibility=self.visibility).id
        self.has_moved, self.target = True, session_id

    def choose_model(self, name: str) -> str:
        """Kept with the conversation, so that whichever process goes on with it uses the same."""
        route = self._route_to(name)
        if self.agent.session_id is None:
            raise NotFound("Nothing has been said yet; the model can be chosen once the conversation has begun.")
        self.agent.switch_model(route)
        self.store.conversation_state(self.agent.session_id).set(MODEL_KEY, name)
        return f"{route.main.model} ({route.main.provider})"


_log = logging.getLogger(__name__)
# A store that cannot be reached is waited for before the sender is told: what was taken goes on where it was.
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, None)
LEFT = "Bye. The conversation is kept; write whenever you like."


class TakenOver(Exception):
    """Another process has the message by now: nothing more is said or written about it here."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What every run works with."""

    store: SessionStore
    pool: AgentPool
    pointers: ChatRouting
    streams: Streams
    commands: Commands
    hygiene: HygieneCounts
    clock: Clock
    route_to: Callable[[str], EndpointChain]
    # Has the chat's platform show a turn, from now to its end.
    deliver: Callable[[ChatKey, str], None]


class MessageJob:
    """One message being worked on."""

    def __init__(self, taken: QueuedMessage, desk: WorkerContext) -> None:
        self.taken = taken
        self._desk = desk
        letter = taken.inbound
        self.chat = ChatKey(letter.platform, letter.user_key, letter.chat)
        self.person = Principal(letter.user_key, frozenset(_scopes(letter.scopes)))
        self.conversation_id: str | None = taken.conversation_id
        self._agent: ConversationAgent | None = None
        self._wants_stop = taken.wants_stop
        self._tell = desk.streams.teller(self.chat, taken.id)
        self._is_shown = False
        # Its end is kept; what is left is putting things away.
        self.is_over = False
        # How far another process came with it: its message is in the log, or even its answer.
        self._is_resumed = False
        self._done: TurnFinished | None = None
        # A process that is told to go ends its turns, but not its messages: another one finishes those.
        self.is_abandoned = False

    def stop(self) -> None:
        """Interrupts the turn, or keeps it from beginning."""
        self._wants_stop = True
        if self._agent is not None:
            self._agent.interrupt()

    def abandon(self) -> None:
        self.is_abandoned = True
        self.stop()

    async def work(self) -> None:
        """Runs it and keeps what came of it, then tells. Raises TakenOver, StoreError."""
        if not self._is_shown:
            self._is_shown = True
            self._desk.deliver(self.chat, self.taken.id)
        content = self.taken.inbound.content
        if isinstance(content, str) and is_command(content):
            await self._command(content)
        else:
            await self._turn(content, self._find)

    async def fail(self, why: str) -> None:
        """Ends it without an answer."""
        await in_thread(self._keep_failure, why)
        await self._finish(TurnFinished("failed", "", error=why))

    def _keep_failure(self, why: str) -> None:
        """Keeps the reason with the conversation, where there is one. In a thread."""
        if self.conversation_id is None:
            return
        store = self._desk.store
        try:
            session_id = store.conversations.get(self.conversation_id).tip_session_id
            store.ledger.record_event(StoredEvent(session_id, "turn_failed", {"reason": why}))
        except StoreError as error:
            _log.warning("turn %s: why it failed was not kept (%s)", self.taken.id, type(error).__name__)

    # -- a turn ------------------------------------------------------------------------------------------------------

    async def _turn(self, content: str | Mapping[str, Any], find: Callable[[], str | None]) -> None:
        async with self._desk.pool.held(self._wanted(find), partial(self._begin, content)) as held:
            agent = held.agent
            held.voice.place = QuestionOrigin(self.chat, self.taken.id, self.person.scopes)
            agent.events.tap(self._hear)
            try:
                with agent.lent(held.lease):
                    outcome = self._done or await self._answered(content, held)
            except LeaseLost as error:
                raise TakenOver from error
            finally:
                agent.events.tap(None)
                held.voice.place = self._agent = None
            if self.is_abandoned and outcome.outcome == "interrupted":
                raise TakenOver
            await self._finish(outcome, agent)

    async def _answered(self, content: str | Mapping[str, Any], held: AgentLease) -> TurnFinished:
        """The turn itself, from its message or from where it was cut off."""
        agent, talk = held.agent, held.agent.open()
        if not self._is_resumed:
            self._desk.hygiene.checked += 1
            outcome = await keep_clean(agent, talk, talk.emit)
            if outcome is not None:
                self._desk.hygiene.add(outcome)
        if self._wants_stop:
            return TurnFinished("interrupted", "")
        self._agent = agent
        try:
            if self._is_resumed:
                return _event(await agent.afinish_turn(task_id=self.taken.id))
            return _event(await agent.arun_conversation(content, task_id=self.taken.id))
        except asyncio.CancelledError:
            # Stopped before the turn had begun: nothing was said, so there is nothing to settle.
            if not self._wants_stop:
                raise
            return TurnFinished("interrupted", "")

    def _hear(self, event: Event) -> None:
        # The end is told once it is kept: whoever hears of it may rely on it.
        if type(event) is not TurnFinished:
            self._tell(event)

    # -- where it goes, and how far it came: in a thread, under the lease --------------------------------------------

    def _wanted(self, find: Callable[[], str | None]) -> AgentSpec:
        return AgentSpec(self.chat, self.person.may("shell"), find)

    def _find(self) -> str | None:
        """The conversation this message goes to: where it was begun, the one it names, or the chat's own."""
        # What an attempt that failed had already begun is gone on with, not begun again.
        named = self.taken.conversation_id or self.conversation_id or self._named
        if named is not None:
            return named
        current = self._desk.pointers.get(self.chat)
        try:
            # A token with `admin` may have moved this chat into somebody else's conversation; others may not follow.
            found = self._desk.store.conversations.get(current, visibility=self.person.visibility) if current else None
            return found.id if found is not None else None
        except NotFound:  # deleted meanwhile, or not this person's: the chat begins anew
            return None

    def _begin(self, content: str | Mapping[str, Any], held: AgentLease) -> None:
        """Finds out how far another process came with it, else notes that it begins here. Raises TakenOver."""
        store, conversation = self._desk.store, held.conversation
        self.conversation_id = conversation.id
        if self.taken.begin_seq is not None and self.taken.conversation_id == conversation.id:
            self._look_back(content, held)
            return
        seq = conversation.last_seq
        if not store.inbox.begin(self.taken, conversation_id=conversation.id, seq=seq, content=content):
            raise TakenOver
        letter = replace(self.taken.inbound, content=content)
        self.taken = replace(self.taken, inbound=letter, conversation_id=conversation.id, begin_seq=seq)
        if seq == 0 and self._is_of_chat:
            self._desk.pointers.set(self.chat, conversation.id)
        if not conversation.title and (title := title_of(Message.from_dict(content).text)):
            store.conversations.set_title(conversation.id, title)

    def _look_back(self, content: str | Mapping[str, Any], held: AgentLease) -> None:
        """What stands behind the place where it began came of this message."""
        begin, conversation = self.taken.begin_seq or 0, held.conversation
        if begin == 0 and self._is_of_chat:  # its process may have died before the chat was told
            self._desk.pointers.set(self.chat, conversation.id)
        if conversation.last_seq <= begin:
            return
        since = self._desk.store.log.read(conversation.id, Span(begin + 1, conversation.last_seq))
        said = [e.message for e in since if e.message.kind in ("user", "assistant", "tool")]
        asked = Message.from_dict(content).to_dict()
        self._is_resumed = any(m.is_real_user and m.to_dict() == asked for m in said)
        if self._is_resumed and said[-1].role == "assistant" and not said[-1].tool_calls:
            # Its process died after the answer was given and before that was noted.
            self._done = TurnFinished("completed", said[-1].text)

    @property
    def _is_of_chat(self) -> bool:
        return self.taken.inbound.queue_key == lane_of(self.chat, None)

    @property
    def _named(self) -> str | None:
        return None if self._is_of_chat else self.taken.inbound.queue_key.partition(":")[2]

    # -- a command ---------------------------------------------------------------------------------------------------

    async def _command(self, text: str) -> None:
        current = await in_thread(self._find)
        if current is None:
            agent = await in_thread(self._desk.pool.blank, self._wanted(lambda: None))
            surface, said = await self._dispatched(agent, text)
        else:
            self.conversation_id = current
            async with self._desk.pool.held(self._wanted(lambda: current), lambda held: None) as held:
                held.agent.events.tap(self._hear)
                try:
                    with held.agent.lent(held.lease):
                        surface, said = await self._dispatched(held.agent, text)
                finally:
                    held.agent.events.tap(None)
        if surface.has_moved:
            self.conversation_id = surface.target
            await in_thread(self._desk.pointers.set, self.chat, surface.target)
        if said.then_send is None:
            shown = LEFT if said.is_leaving else said.text
            await self._finish(CommandAnswered(shown, said.level, self.conversation_id))
        else:
            self._tell(Notice(said.text))
            await self._turn(said.then_send, lambda: surface.target)

    async def _dispatched(self, agent: ConversationAgent, text: str) -> tuple[GatewayCommandContext, CommandResult]:
        surface = GatewayCommandContext(self._desk.store, agent, self.person, route_to=self._desk.route_to)
        said = await asyncio.to_thread(self._desk.commands.dispatch, surface, text)
        return surface, said or CommandResult("")

    # -- its end -----------------------------------------------------------------------------------------------------

    async def _finish(self, event: TurnFinished | CommandAnswered, agent: ConversationAgent | None = None) -> None:
        """Kept first, then told."""
        result = result_of(event)
        cost = await in_thread(self._keep, result, agent)
        self.is_over = True
        if agent is not None:
            gauge = agent.gauge
            moved = ContextUsageChanged(
                gauge.model, gauge.tokens, gauge.window, gauge.threshold, gauge.composition, cost
            )
            self._tell(moved)
        self._tell(finished_event(result, self.conversation_id))

    def _keep(self, result: Mapping[str, Any], agent: ConversationAgent | None) -> float | None:
        store = self._desk.store
        kept = kept_result(result, self.taken.inbound.content)
        if not store.inbox.finish(self.taken, kept, conversation_id=self.conversation_id):
            raise TakenOver
        session_id = agent.session_id if agent is not None else None
        return store.ledger.totals(session_id).cost_usd if session_id is not None else None


async def work_through(run: MessageJob) -> None:
    """Runs a message to an end of some kind. Raises StoreError where not even a failure could be kept."""
    try:
        await _attempts(run)
    except TakenOver:
        return


async def _attempts(run: MessageJob) -> None:
    for pause_s in _PAUSES_S:
        try:
            return await run.work()
        except NotFound as error:
            return await run.fail(str(error))
        except StoreError as error:
            _log.warning("turn %s: the store failed (%s)", run.taken.id, type(error).__name__)
            if pause_s is None:
                return await run.fail(str(error))
            await asyncio.sleep(pause_s)
        except TakenOver:
            raise
        except PerdureError as error:
            return await run.fail(str(error))
        except Exception as error:  # one message must not end the lane of all that follow
            _log.exception("turn %s failed", run.taken.id)
            why = f"something went wrong inside the gateway ({type(error).__name__}); its log says what"
            return await run.fail(why)


def _event(result: ConversationResult) -> TurnFinished:
    outcome: Outcome = result.outcome
    return TurnFinished(outcome, result.final_response, result.usage, result.error)


def _scopes(kept: Sequence[str]) -> list[Scope]:
    known: tuple[Scope, ...] = ("chat", "read", "shell", "admin")
    return [s for s in known if s in kept]
