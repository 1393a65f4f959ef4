"""Answers on their way to the platforms: each turn of a chat is shown by the adapter of its platform, to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

from perdure.gateway.adapters.contract import Adapter
from perdure.gateway.telling.chats import ChatKey, SequencedEvent
from perdure.gateway.telling.streams import Streams, Subscriber
from perdure.gateway.telling.wire import is_last

_log = logging.getLogger(__name__)


class Deliveries:
    """What is being shown right now."""

    def __init__(self, adapters: Mapping[str, Adapter], streams: Streams) -> None:
        self._adapters = adapters
        self._streams = streams
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, chat: ChatKey, turn_id: str) -> None:
        """Has the chat's platform, if it is one of ours, show a turn from its first event to its last."""
        adapter = self._adapters.get(chat.platform)
        if adapter is None:
            return
        # Followed from this very moment: the turn has not begun yet.
        reader = self._streams.of(chat).follow(turn_id=turn_id)
        task = asyncio.create_task(self._deliver(adapter, chat, turn_id, reader), name=f"deliver {turn_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, timeout_s: float) -> None:
        """Waits for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _deliver(self, adapter: Adapter, chat: ChatKey, turn_id: str, reader: Subscriber) -> None:
        try:
            await adapter.deliver(chat, turn_id, _events(reader))
        except Exception:  # a platform's trouble is not the conversation's: the answer is in the log
            _log.exception("an answer could not be delivered on %s", chat.platform)
        finally:
            self._streams.of(chat).leave(reader)


async def _events(reader: Subscriber) -> AsyncIterator[SequencedEvent]:
    async for batch in reader.batches():
        for numbered in batch:
            yield numbered
            if is_last(numbered.event):
                return
