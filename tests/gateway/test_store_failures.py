"""A store that fails for a while: what was taken is answered all the same, once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.runner import RunningLoop
from perdure.app.runtime import Shared
from perdure.config.load import validate_settings
from perdure.core.errors import StoreUnavailable
from perdure.core.events import TurnFinished
from perdure.core.visibility import User
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey, ChatMessage
from perdure.gateway.executor import run_store_write
from perdure.gateway.workers.agent_pool import WiredAgentFactory
from perdure.gateway.workers.hub import Hub
from perdure.store.inbox import MessageInbox, QueuedMessage
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import Simulator

ANN = Principal(User("ann"), frozenset(("chat", "read")))


class FlakyInbox(MessageInbox):
    """Fails as often as it is told to, before or after the deed is done."""

    def __init__(self, inbox: MessageInbox, failures: dict[str, int]) -> None:
        super().__init__(inbox._context)
        self._failures = failures

    def _fail(self, deed: str) -> None:
        if self._failures.get(deed, 0) > 0:
            self._failures[deed] -= 1
            raise StoreUnavailable(f"no {deed} right now")

    def begin(self, queued: QueuedMessage, **more: Any) -> bool:
        self._fail("begin")
        done = super().begin(queued, **more)
        self._fail("begin, unheard of")
        return done

    def finish(self, queued: QueuedMessage, result: Mapping[str, Any], *, conversation_id: str | None) -> bool:
        self._fail("finish")
        return super().finish(queued, result, conversation_id=conversation_id)

    def first(self, queue_key: str) -> QueuedMessage | None:
        self._fail("first")
        return super().first(queue_key)


async def talk(folder: Path, sim: Simulator, store: SessionStore) -> list[str]:
    model = {"name": "m-1", "provider": "custom", "base_url": sim.base_url, "context_length": 32_000}
    settings = validate_settings({"model": model})
    shared = Shared(settings, home=folder, store=store, loop_thread=RunningLoop(), run_blocking=run_store_write)
    hub = Hub(WiredAgentFactory(shared), store, settings=settings.gateway, clock=shared.clock, ids=shared.ids)
    await hub.start()
    chat = ChatKey("http", User("ann"))
    tickets = [await hub.submit(ChatMessage(chat, text), ANN) for text in ("one", "two")]
    ends = [[n.event async for n in hub.turn_events(t)][-1] for t in tickets]
    await hub.drain(5)
    await shared.transport.aclose()
    return [e.final_response for e in ends if isinstance(e, TurnFinished) and e.outcome == "completed"]


@pytest.mark.spec("I1")
@pytest.mark.parametrize(
    "failures", [{"begin": 2}, {"begin, unheard of": 1}, {"finish": 2}, {"first": 2}, {"finish": 1, "first": 1}]
)
def test_a_stored_message_is_answered_once_despite_store_failures(tmp_path: Path, failures: dict[str, int]) -> None:
    with Simulator(script=["first answer", "second answer", "an answer too many"]) as sim:
        store = open_store(tmp_path / "perdure.db")
        store.inbox = FlakyInbox(store.inbox, dict(failures))
        try:
            assert asyncio.run(asyncio.wait_for(talk(tmp_path, sim, store), 30)) == ["first answer", "second answer"]
            (conversation,) = store.conversations.list().conversations
            said = [e.message.text for e in store.log.originals(conversation.id)]
            assert said == ["one", "first answer", "two", "second answer"]
            assert store.inbox.count_pending() == 0
        finally:
            store.close()
