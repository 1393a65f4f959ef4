"""Pool of agents, one slot per conversation, with lease renewal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from perdure.agent.agent import ConversationAgent
from perdure.app import WiredAgent
from perdure.app.build import AgentUser
from perdure.app.runtime import Shared, route_to
from perdure.core.errors import LeaseLost, StoreError
from perdure.core.ports import Clock
from perdure.gateway.events.types import ChatKey
from perdure.gateway.executor import in_thread
from perdure.gateway.workers.questions import QuestionBoard, TurnVoice
from perdure.gateway.workers.routing import key_of
from perdure.providers.routes import EndpointChain
from perdure.store.leases import DEFAULT_TTL_MS, holder_id, is_holder_dead
from perdure.store.records import Conversation, Lease
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)
BEAT_S = DEFAULT_TTL_MS / 3_000


class LeaseRenewer:
    """Renewed until they are released. One that was lost stays lost: the next write shows the old token, in vain."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._held: dict[str, tuple[Lease, asyncio.Lock]] = {}

    def add(self, lease: Lease) -> None:
        self._held[lease.conversation_id] = (lease, asyncio.Lock())

    async def release(self, lease: Lease, release: Callable[[], None]) -> None:
        """Gives it up by `release`, run in a thread; a beat under way is waited for, so as not to beat for it after."""
        _, lock = self._held.pop(lease.conversation_id, (lease, asyncio.Lock()))
        async with lock:
            await in_thread(release)

    def __len__(self) -> int:
        return len(self._held)

    async def beat(self) -> None:
        """Renews them all."""
        for lease, lock in list(self._held.values()):
            async with lock:
                known = self._held.get(lease.conversation_id)
                if known is None or known[0] is not lease:
                    continue
                await self._renew(lease)

    async def _renew(self, lease: Lease) -> None:
        try:
            await in_thread(self._store.leases.renew, lease)
        except LeaseLost:
            _log.warning("the lease of %s was lost", lease.conversation_id)
        except StoreError as error:  # the next beat tries again; a lease outlives two that fail
            _log.warning("a lease could not be renewed: %s", type(error).__name__)


class Agents:
    """The AgentMaker of a real gateway."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def make(self, wanted: AgentSpec, *, user_key: str, session_id: str | None, voice: TurnVoice) -> ConversationAgent:
        speaker = AgentUser(
            wanted.chat.platform,
            user_key,
            chat_key=key_of(wanted.chat),
            has_shell=wanted.has_shell,
            approver=voice,
            asker=voice,
        )
        return WiredAgent(self._shared, speaker, session_id=session_id)

    def route_to(self, name: str) -> EndpointChain:
        return route_to(self._shared.settings, name)


# Where a conversation remembers the model chosen for it.
MODEL_KEY = "gateway.model"


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Which agent is wanted: for whom, with or without this machine, and of which conversation."""

    chat: ChatKey
    has_shell: bool
    # Asked in a thread: the conversation's id; None begins a new one.
    find: Callable[[], str | None]


class AgentMaker(Protocol):
    """Makes agents; the gateway knows no more of how."""

    def make(
        self, wanted: AgentSpec, *, user_key: str, session_id: str | None, voice: TurnVoice
    ) -> ConversationAgent: ...

    def route_to(self, name: str) -> EndpointChain:
        """The route to another model. Raises ConfigError."""
        ...


@dataclass
class AgentSlot:
    """One conversation's place: its agent while there is one. Whoever holds the conversation's lease may touch it."""

    agent: ConversationAgent | None = None
    voice: TurnVoice | None = None
    has_shell: bool = False
    # The conversation as this process last left it: another tip, message or model means somebody else went on.
    seen: tuple[str, int, str | None] | None = None
    used_at_s: float = 0.0
    users: int = 0


@dataclass(frozen=True, slots=True)
class AgentLease:
    """An agent to oneself, and the right to write its conversation."""

    agent: ConversationAgent
    voice: TurnVoice
    conversation: Conversation
    lease: Lease
    seat: AgentSlot


class AgentPool:
    """Live agents by conversation, the longest idle let go first."""

    def __init__(
        self,
        maker: AgentMaker,
        store: SessionStore,
        *,
        questions: QuestionBoard,
        leases: LeaseRenewer,
        clock: Clock,
        most: int,
        idle_s: float,
    ) -> None:
        self._maker = maker
        self._store = store
        self._questions = questions
        self._leases = leases
        self._clock = clock
        self._most = most
        self._idle_s = idle_s
        self._holder = holder_id()
        self._seats: OrderedDict[str, AgentSlot] = OrderedDict()
        # Seats are taken in threads and cleared away in the loop.
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return sum(seat.agent is not None for seat in self._seats.values())

    def blank(self, wanted: AgentSpec) -> ConversationAgent:
        """An agent of no conversation yet, for commands in a chat where nothing was said."""
        voice = TurnVoice(self._questions)
        return self._maker.make(wanted, user_key=wanted.chat.user_key, session_id=None, voice=voice)

    @contextlib.asynccontextmanager
    async def held(self, wanted: AgentSpec, begin: Callable[[AgentLease], None]) -> AsyncIterator[AgentLease]:
        """The agent, for one message. Waits while another message, or another process, has the conversation.

        `begin` is called in the same thread as everything that must be read first, under the lease.
        """
        held = await self._entered(wanted, begin)
        self._leases.add(held.lease)
        try:
            # Until it is known how this ended, the agent counts as out of date.
            held.seat.seen = None
            yield held
            left = partial(self._leave, held)
        except BaseException:
            left = partial(self._store.leases.release, held.lease)
            raise
        finally:
            await asyncio.shield(self._leases.release(held.lease, left))
            with self._guard:
                held.seat.users -= 1
            held.seat.used_at_s = self._clock.monotonic_s()
            await self._make_room()

    async def close_idle(self) -> None:
        """Lets go of what nobody has used for a while."""
        before = self._clock.monotonic_s() - self._idle_s
        for ident, seat in list(self._seats.items()):
            if seat.used_at_s < before:
                await self._let_go(ident, seat)

    async def close(self) -> None:
        for ident, seat in list(self._seats.items()):
            await self._let_go(ident, seat)

    async def _entered(self, wanted: AgentSpec, begin: Callable[[AgentLease], None]) -> AgentLease:
        """Waits for whoever writes the conversation now; one who has died is not waited for."""
        pause_s = 0.02
        while True:
            try:
                return await in_thread(self._enter, wanted, begin)
            except LeaseLost:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.6, 0.5)

    # -- in threads --------------------------------------------------------------------------------------------------

    def _enter(self, wanted: AgentSpec, begin: Callable[[AgentLease], None]) -> AgentLease:
        found = wanted.find()
        agent, voice = None, TurnVoice(self._questions)
        if found is None:
            agent = self._maker.make(wanted, user_key=wanted.chat.user_key, session_id=None, voice=voice)
            found = agent.open().live.conversation_id
        lease = self._store.leases.acquire(found, self._holder, is_dead=is_holder_dead)
        seat = self._seat(lease.conversation_id)
        try:
            conversation, now = self._now(lease.conversation_id)
            if agent is not None:
                seat.agent, seat.voice, seat.has_shell, seat.seen = agent, voice, wanted.has_shell, now
            agent, voice = self._agent(seat, conversation, now, wanted)
            held = AgentLease(agent, voice, conversation, lease, seat)
            begin(held)
        except BaseException:
            with self._guard:
                seat.users -= 1
            self._store.leases.release(lease)
            raise
        return held

    def _seat(self, conversation_id: str) -> AgentSlot:
        with self._guard:
            seat = self._seats.setdefault(conversation_id, AgentSlot())
            self._seats.move_to_end(conversation_id)
            seat.users += 1
        return seat

    def _agent(
        self, seat: AgentSlot, conversation: Conversation, now: tuple[str, int, str | None], wanted: AgentSpec
    ) -> tuple[ConversationAgent, TurnVoice]:
        """The seat's agent if it is still up to date, else a new one."""
        if seat.agent is not None and seat.voice is not None and (seat.seen, seat.has_shell) == (now, wanted.has_shell):
            return seat.agent, seat.voice
        if seat.agent is not None:
            seat.agent.close()
        voice = TurnVoice(self._questions)
        agent = self._maker.make(
            wanted, user_key=conversation.user_key, session_id=conversation.tip_session_id, voice=voice
        )
        if now[2] is not None:
            agent.switch_model(self._maker.route_to(now[2]))
        agent.open()
        seat.agent, seat.voice, seat.has_shell, seat.seen = agent, voice, wanted.has_shell, now
        return agent, voice

    def _now(self, conversation_id: str) -> tuple[Conversation, tuple[str, int, str | None]]:
        conversation = self._store.conversations.get(conversation_id)
        model = self._store.state(f"conversation:{conversation.id}").get(MODEL_KEY)
        return conversation, (conversation.tip_session_id, conversation.last_seq, model)

    def _leave(self, held: AgentLease) -> None:
        try:
            held.seat.seen = self._now(held.conversation.id)[1]
        finally:
            self._store.leases.release(held.lease)

    # -- letting go --------------------------------------------------------------------------------------------------

    async def _make_room(self) -> None:
        if len(self._seats) <= self._most:
            return
        for ident, seat in list(self._seats.items())[: len(self._seats) - self._most]:
            await self._let_go(ident, seat)

    async def _let_go(self, ident: str, seat: AgentSlot) -> None:
        with self._guard:
            if seat.users:
                return
            self._seats.pop(ident, None)
            agent, seat.agent = seat.agent, None
        if agent is not None:
            await asyncio.to_thread(agent.close)
