"""Agents kept ready: a conversation talked in a moment ago need not be read again, one long idle costs no memory.

Any number of processes share the conversations. So before an agent is used, under the conversation's lease, what it
holds is compared with the store; where another process went on meanwhile, the conversation is entered anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from perdure.agent.agent import Agent
from perdure.agent.holder import is_gone, this_process
from perdure.core.errors import LeaseLost
from perdure.core.ports import Clock
from perdure.gateway.chats import ChatKey
from perdure.gateway.leases import HeldLeases
from perdure.gateway.questions import Questions, TurnVoice
from perdure.gateway.threads import in_thread
from perdure.providers.routes import Route
from perdure.store.records import Conversation, Lease
from perdure.store.store import SessionStore

# Where a conversation remembers the model chosen for it.
MODEL_KEY = "gateway.model"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which agent is wanted: of an existing conversation or a new one, for whom, with or without this machine."""

    chat: ChatKey
    conversation_id: str | None
    has_shell: bool


class AgentMaker(Protocol):
    """Makes agents; the gateway knows no more of how."""

    def make(self, wanted: Wanted, *, user_key: str, session_id: str | None, voice: TurnVoice) -> Agent: ...

    def route_to(self, name: str) -> Route:
        """The route to another model. Raises ConfigError."""
        ...


@dataclass
class Seat:
    """One conversation's place: its agent while there is one, and who may use it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    agent: Agent | None = None
    voice: TurnVoice | None = None
    has_shell: bool = False
    # The conversation as this process last left it: another tip, message or model means somebody else went on.
    seen: tuple[str, int, str | None] | None = None
    used_at_s: float = 0.0
    users: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """An agent to oneself, and the right to write its conversation."""

    agent: Agent
    voice: TurnVoice
    conversation: Conversation
    lease: Lease


class Pool:
    """Live agents by conversation, the longest idle let go first."""

    def __init__(
        self,
        maker: AgentMaker,
        store: SessionStore,
        *,
        questions: Questions,
        leases: HeldLeases,
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
        self._seats: OrderedDict[str, Seat] = OrderedDict()

    def __len__(self) -> int:
        return sum(seat.agent is not None for seat in self._seats.values())

    def blank(self, wanted: Wanted) -> Agent:
        """An agent of no conversation yet, for commands in a chat where nothing was said."""
        voice = TurnVoice(self._questions)
        return self._maker.make(wanted, user_key=wanted.chat.user_key, session_id=None, voice=voice)

    @contextlib.asynccontextmanager
    async def held(self, wanted: Wanted) -> AsyncIterator[Held]:
        """The agent, for one message. Waits while another message, or another process, has the conversation."""
        if wanted.conversation_id is None:
            voice = TurnVoice(self._questions)
            agent, conversation = await in_thread(self._begun, wanted, voice)
            seat = Seat(agent=agent, voice=voice, has_shell=wanted.has_shell)
            seat.seen = (conversation.tip_session_id, conversation.last_seq, None)
            self._seats[conversation.id] = seat
        else:
            conversation = await in_thread(self._store.conversations.get, wanted.conversation_id)
            seat = self._seats.setdefault(conversation.id, Seat())
        seat.users += 1
        try:
            async with seat.lock:
                self._seats.move_to_end(conversation.id)
                async with self._lease(conversation.id) as lease:
                    ready = await self._ready(seat, conversation.id, lease, wanted)
                    # Until it is known how this ended, the agent counts as out of date.
                    seat.seen = None
                    yield ready
                    seat.seen = await in_thread(self._state_of, conversation.id)
        finally:
            seat.users -= 1
            seat.used_at_s = self._clock.monotonic_s()
            await self._make_room()

    async def close_idle(self) -> None:
        """Lets go of what nobody has used for a while."""
        before = self._clock.monotonic_s() - self._idle_s
        for ident, seat in list(self._seats.items()):
            if seat.users == 0 and seat.used_at_s < before:
                await self._let_go(ident, seat)

    async def close(self) -> None:
        for ident, seat in list(self._seats.items()):
            await self._let_go(ident, seat)

    @contextlib.asynccontextmanager
    async def _lease(self, conversation_id: str) -> AsyncIterator[Lease]:
        """Waits for whoever writes the conversation now; one who has died is not waited for."""
        pause_s = 0.02
        while True:
            try:
                lease = await in_thread(self._store.leases.acquire, conversation_id, this_process(), is_gone=is_gone)
                break
            except LeaseLost:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.6, 0.5)
        self._leases.add(lease)
        try:
            yield lease
        finally:
            await asyncio.shield(self._leases.release(lease))

    async def _ready(self, seat: Seat, conversation_id: str, lease: Lease, wanted: Wanted) -> Held:
        agent, voice, conversation = await in_thread(self._entered, seat, conversation_id, wanted)
        return Held(agent, voice, conversation, lease)

    # -- in threads --------------------------------------------------------------------------------------------------

    def _begun(self, wanted: Wanted, voice: TurnVoice) -> tuple[Agent, Conversation]:
        agent = self._maker.make(wanted, user_key=wanted.chat.user_key, session_id=None, voice=voice)
        return agent, self._store.conversations.get(agent.open().live.id)

    def _entered(self, seat: Seat, conversation_id: str, wanted: Wanted) -> tuple[Agent, TurnVoice, Conversation]:
        """The seat's agent if it is still up to date, else a new one."""
        conversation = self._store.conversations.get(conversation_id)
        model = self._store.conversation_state(conversation_id).get(MODEL_KEY)
        now = (conversation.tip_session_id, conversation.last_seq, model)
        if seat.agent is not None and seat.voice is not None and (seat.seen, seat.has_shell) == (now, wanted.has_shell):
            return seat.agent, seat.voice, conversation
        if seat.agent is not None:
            seat.agent.close()
        voice = TurnVoice(self._questions)
        agent = self._maker.make(
            wanted, user_key=conversation.user_key, session_id=conversation.tip_session_id, voice=voice
        )
        if isinstance(model, str):
            agent.switch_model(self._maker.route_to(model))
        agent.open()
        seat.agent, seat.voice, seat.has_shell, seat.seen = agent, voice, wanted.has_shell, now
        return agent, voice, conversation

    def _state_of(self, conversation_id: str) -> tuple[str, int, str | None]:
        conversation = self._store.conversations.get(conversation_id)
        model = self._store.conversation_state(conversation_id).get(MODEL_KEY)
        return conversation.tip_session_id, conversation.last_seq, model

    # -- letting go --------------------------------------------------------------------------------------------------

    async def _make_room(self) -> None:
        for ident, seat in list(self._seats.items()):
            if len(self._seats) <= self._most:
                return
            if seat.users == 0:
                await self._let_go(ident, seat)

    async def _let_go(self, ident: str, seat: Seat) -> None:
        self._seats.pop(ident, None)
        agent, seat.agent = seat.agent, None
        if agent is not None:
            await asyncio.to_thread(agent.close)
