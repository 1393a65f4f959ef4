"""Pool of agents by conversation, each used only under a write lease, and the renewal of these leases.

`acquire` and `cancel` block and run in worker threads; `use_agent` awaits in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from perdure.agent.agent import ConversationAgent
from perdure.app.build import AgentUser, build_agent
from perdure.app.model_choices import check_known_address
from perdure.app.runtime import MODEL_KEY, Shared
from perdure.core.errors import ConfigError, LeaseLost, StoreError
from perdure.core.ports import Clock
from perdure.core.turn_options import Unattended
from perdure.core.visibility import AnyUser
from perdure.gateway.events.types import ChatKey
from perdure.gateway.executor import run_blocking
from perdure.gateway.workers.questions import ChatPrompter, QuestionRegistry
from perdure.gateway.workers.routing import chat_key
from perdure.providers.routes import EndpointChain
from perdure.store.leases import DEFAULT_TTL_MS, holder_id, is_holder_dead
from perdure.store.records import Conversation, Lease
from perdure.store.store import SessionStore

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)
RENEW_INTERVAL_S = DEFAULT_TTL_MS / 3_000
# Polling interval for a conversation whose lease another message or process holds.
_MIN_POLL_S, _MAX_POLL_S = 0.02, 0.5
# Key of the model chosen for a conversation, in its state.


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The kind of agent a message needs: its chat, access to the shell, whether a user can be asked, the model."""

    chat: ChatKey
    has_shell: bool
    unattended: Unattended | None = None
    # The model of a new conversation; None: the configured one.
    model: str | None = None

    @property
    def access(self) -> tuple[bool, Unattended | None]:
        """The permissions of the agent; a pooled one is reused only for messages with the same access."""
        return self.has_shell, self.unattended


class AgentFactory(Protocol):
    """Creates agents for the pool."""

    def make(
        self, spec: AgentSpec, *, user: AnyUser, session_id: str | None, prompter: ChatPrompter
    ) -> ConversationAgent: ...

    def route_to(self, name: str) -> EndpointChain:
        """Return the endpoints for a model by its name. Raises ConfigError."""
        ...


class WiredAgentFactory:
    """Builds agents from the gateway's settings and shared parts (the AgentFactory port)."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def make(
        self, spec: AgentSpec, *, user: AnyUser, session_id: str | None, prompter: ChatPrompter
    ) -> ConversationAgent:
        unattended = spec.unattended
        folder = Path(unattended.folder) if unattended is not None and unattended.folder is not None else None
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"the folder {folder} does not exist on this machine, or cannot be read")
        speaker = AgentUser(
            spec.chat.platform,
            user,
            chat_key=chat_key(spec.chat),
            has_shell=spec.has_shell,
            approver=prompter if unattended is None else None,
            asker=prompter if unattended is None else None,
            allowed=unattended.allowed if unattended is not None else (),
            folder=folder,
        )
        return build_agent(self._shared, speaker, session_id=session_id)

    def route_to(self, name: str) -> EndpointChain:
        return self._shared.route_to(name)


@dataclass
class AgentSlot:
    """The pool's entry of one conversation. Only the holder of the conversation's lease may use its agent."""

    agent: ConversationAgent | None = None
    prompter: ChatPrompter | None = None
    access: tuple[bool, Unattended | None] | None = None
    # The conversation as this process last wrote it; a different value means another process has written since.
    version: tuple[str, int, str | None] | None = None
    last_used_s: float = 0.0
    users: int = 0


@dataclass(frozen=True, slots=True)
class AgentLease:
    """Exclusive use of an agent, with the lease on its conversation."""

    agent: ConversationAgent
    prompter: ChatPrompter
    conversation: Conversation
    lease: Lease
    slot: AgentSlot


class AgentPool:
    """Keeps live agents by conversation for reuse, evicts the least recently used, and leases them to jobs."""

    def __init__(
        self,
        factory: AgentFactory,
        store: SessionStore,
        *,
        questions: QuestionRegistry,
        leases: LeaseRenewer,
        clock: Clock,
        max_agents: int,
        idle_s: float,
    ) -> None:
        self._factory = factory
        self._store = store
        self._questions = questions
        self._leases = leases
        self._clock = clock
        self._max_agents = max_agents
        self._idle_s = idle_s
        self._holder = holder_id()
        self._slots: OrderedDict[str, AgentSlot] = OrderedDict()
        # Slots are acquired in worker threads and evicted in the event loop.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(slot.agent is not None for slot in self._slots.values())

    def make_unbound(self, spec: AgentSpec) -> ConversationAgent:
        """Create an agent without a conversation, for commands in a chat that has none yet."""
        prompter = ChatPrompter(self._questions)
        return self._factory.make(spec, user=spec.chat.user, session_id=None, prompter=prompter)

    def route_to(self, name: str) -> EndpointChain:
        """Return the endpoints for a model by its name. Raises ConfigError."""
        return self._factory.route_to(name)

    @contextlib.asynccontextmanager
    async def use_agent(self, agent_lease: AgentLease) -> AsyncIterator[ConversationAgent]:
        """Renew an acquired lease while its agent is in use, and release both afterwards."""
        self._leases.add(agent_lease.lease)
        try:
            # Treat the agent as stale until the new version is read back.
            agent_lease.slot.version = None
            yield agent_lease.agent
            release = partial(self._release_current, agent_lease)
        except BaseException:
            release = partial(self._store.leases.release, agent_lease.lease)
            raise
        finally:
            await asyncio.shield(self._release(agent_lease, release))

    async def _release(self, agent_lease: AgentLease, release: Callable[[], None]) -> None:
        await self._leases.remove(agent_lease.lease)
        try:
            await run_blocking(release)
        finally:
            self._free(agent_lease.slot)
            agent_lease.slot.last_used_s = self._clock.monotonic_s()
            await self._evict_excess()

    async def close_idle(self) -> None:
        """Close agents that were idle for too long."""
        before = self._clock.monotonic_s() - self._idle_s
        for conversation_id, slot in list(self._slots.items()):
            if slot.last_used_s < before:
                await self._evict(conversation_id, slot)

    async def close(self) -> None:
        for conversation_id, slot in list(self._slots.items()):
            await self._evict(conversation_id, slot)

    # -- in worker threads ---------------------------------------------------------------------------------------------

    def acquire(self, conversation_id: str | None, spec: AgentSpec) -> AgentLease:
        """Take the write lease of a conversation (None: create one) with its agent.

        Raises LeaseLost if leased elsewhere.
        """
        agent, prompter = None, ChatPrompter(self._questions)
        if conversation_id is None:
            agent = self._factory.make(spec, user=spec.chat.user, session_id=None, prompter=prompter)
            if spec.model is not None:
                check_known_address(spec.model)
                agent.switch_model(self._factory.route_to(spec.model))
            conversation_id = agent.open().live.conversation_id
            if spec.model is not None:
                self._store.conversation_state(conversation_id).set(MODEL_KEY, spec.model)
        lease = self._store.leases.acquire(conversation_id, self._holder, is_dead=is_holder_dead)
        slot = self._slot_for(lease.conversation_id)
        try:
            conversation, version = self._read_version(lease.conversation_id)
            if agent is not None:
                slot.agent, slot.prompter, slot.access, slot.version = agent, prompter, spec.access, version
            agent, prompter = self._agent(slot, conversation, version, spec)
        except BaseException:
            self._free(slot)
            self._store.leases.release(lease)
            raise
        return AgentLease(agent, prompter, conversation, lease, slot)

    def cancel(self, agent_lease: AgentLease) -> None:
        """Release a lease that was acquired and will not be used."""
        self._free(agent_lease.slot)
        self._store.leases.release(agent_lease.lease)

    def _free(self, slot: AgentSlot) -> None:
        with self._lock:
            slot.users -= 1

    def _slot_for(self, conversation_id: str) -> AgentSlot:
        with self._lock:
            slot = self._slots.setdefault(conversation_id, AgentSlot())
            self._slots.move_to_end(conversation_id)
            slot.users += 1
        return slot

    def _agent(
        self, slot: AgentSlot, conversation: Conversation, version: tuple[str, int, str | None], spec: AgentSpec
    ) -> tuple[ConversationAgent, ChatPrompter]:
        """Return the slot's agent if it is current, else a new one."""
        if (
            slot.agent is not None
            and slot.prompter is not None
            and (slot.version, slot.access) == (version, spec.access)
        ):
            return slot.agent, slot.prompter
        if slot.agent is not None:
            slot.agent.close()
        prompter = ChatPrompter(self._questions)
        agent = self._factory.make(
            spec, user=conversation.user, session_id=conversation.tip_session_id, prompter=prompter
        )
        if version[2] is not None:
            agent.switch_model(self._factory.route_to(version[2]))
        agent.open()
        slot.agent, slot.prompter, slot.access, slot.version = agent, prompter, spec.access, version
        return agent, prompter

    def _read_version(self, conversation_id: str) -> tuple[Conversation, tuple[str, int, str | None]]:
        conversation = self._store.conversations.get(conversation_id)
        model = self._store.state(f"conversation:{conversation.id}").get(MODEL_KEY)
        return conversation, (conversation.tip_session_id, conversation.last_seq, model)

    def _release_current(self, agent_lease: AgentLease) -> None:
        try:
            agent_lease.slot.version = self._read_version(agent_lease.conversation.id)[1]
        finally:
            self._store.leases.release(agent_lease.lease)

    # -- eviction ------------------------------------------------------------------------------------------------------

    async def _evict_excess(self) -> None:
        if len(self._slots) <= self._max_agents:
            return
        for conversation_id, slot in list(self._slots.items())[: len(self._slots) - self._max_agents]:
            await self._evict(conversation_id, slot)

    async def _evict(self, conversation_id: str, slot: AgentSlot) -> None:
        with self._lock:
            if slot.users:
                return
            self._slots.pop(conversation_id, None)
            agent, slot.agent = slot.agent, None
        if agent is not None:
            await asyncio.to_thread(agent.close)


async def run_when_free(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `step` in a worker thread; retry while it raises LeaseLost, until the conversation is free.

    The lease of a dead process is taken over at once, so that only live holders are waited for.
    """
    poll_s = _MIN_POLL_S
    while True:
        try:
            return await run_blocking(step, *args, **kwargs)
        except LeaseLost:
            await asyncio.sleep(poll_s)
            poll_s = min(poll_s * 1.6, _MAX_POLL_S)


class LeaseRenewer:
    """Renew conversation leases until they are released; a lost lease is fenced by its token on the next write."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._leases: dict[str, tuple[Lease, asyncio.Lock]] = {}

    def add(self, lease: Lease) -> None:
        self._leases[lease.conversation_id] = (lease, asyncio.Lock())

    async def remove(self, lease: Lease) -> None:
        """Stop renewing; on return no renewal of this lease is in progress."""
        _, lock = self._leases.pop(lease.conversation_id, (lease, asyncio.Lock()))
        async with lock:
            return

    def __len__(self) -> int:
        return len(self._leases)

    async def renew_all(self) -> None:
        """Renew every lease that this process holds."""
        for lease, lock in list(self._leases.values()):
            async with lock:
                current = self._leases.get(lease.conversation_id)
                if current is None or current[0] is not lease:
                    continue
                await self._renew(lease)

    async def _renew(self, lease: Lease) -> None:
        try:
            await run_blocking(self._store.leases.renew, lease)
        except LeaseLost:
            _log.warning("the lease of %s was lost", lease.conversation_id)
        except StoreError as error:  # retried at the next interval; a lease outlives two failures
            _log.warning("a lease could not be renewed: %s", type(error).__name__)
