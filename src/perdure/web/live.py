"""Stream store changes to open views: one poller for all subscribers, none without subscribers.

The store reports what changed since a cursor, whichever process wrote it; each listener gets the conversations that its
principal may see. Changes of one conversation are merged for a slow listener.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from perdure.core.errors import StoreError
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store.records import ChangeSet
from perdure.web.schemas import ConversationChanged

POLL_S = 0.4
HEARTBEAT_S = 15.0
# How often a stream checks whether its server is closing.
_WATCH_S = 0.5


class ChangeSource(Protocol):
    """The store's change feed as the poller uses it (port)."""

    def now(self) -> str:
        """Return the cursor of the newest change."""
        ...

    def since(self, cursor: str, *, visibility: Visibility) -> ChangeSet:
        """Return the changes after a cursor. Raises StoreError for an invalid one."""
        ...


@dataclass(slots=True, eq=False)
class _Listener:
    """An open stream and its pending changes, the newest per conversation."""

    visibility: Visibility
    waiting: dict[str, ConversationChanged] = field(default_factory=dict)
    # The cursor to continue from after a full reload.
    reload_from: str | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, news: ChangeSet) -> None:
        if news.is_reload_needed:
            self.waiting.clear()
            self.reload_from = news.cursor
            self.arrived.set()
        for changed in news.changed:
            conversation = changed.conversation
            if self.visibility.covers(conversation.user):
                self.waiting[conversation.id] = ConversationChanged(
                    conversation_id=conversation.id,
                    last_seq=conversation.last_seq,
                    updated_at=conversation.updated_at_ms,
                    cursor=news.cursor,
                )
                self.arrived.set()

    def take(self) -> list[str]:
        """Return and clear the pending changes, as lines of a stream."""
        self.arrived.clear()
        lines = [_event("reload", self.reload_from, f'{{"cursor": "{self.reload_from}"}}')] if self.reload_from else []
        lines += [_event(None, c.cursor, c.model_dump_json()) for c in self.waiting.values()]
        self.reload_from = None
        self.waiting.clear()
        return lines


class LiveFeed:
    """Polls one store for changes and streams them to any number of listeners."""

    def __init__(
        self, changes: ChangeSource, *, poll_s: float = POLL_S, heartbeat_s: float = HEARTBEAT_S,
        is_closing: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._changes = changes
        self._poll_s = poll_s
        self._heartbeat_s = heartbeat_s
        self._is_closing = is_closing
        self._listeners: set[_Listener] = set()
        self._poller: asyncio.Task[None] | None = None
        self._cursor: str | None = None
        self._placing = asyncio.Lock()

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def is_polling(self) -> bool:
        return self._poller is not None and not self._poller.done()

    async def stream(self, visibility: Visibility, cursor: str | None) -> AsyncGenerator[str, None]:
        """Stream server-sent events, from `cursor` on or from now, until the server closes.

        Raises StoreError for an invalid cursor, before anything is sent.
        """
        listener = _Listener(visibility)
        self._join(listener)
        try:
            # First the poller's cursor, then the changes before it, so that none is lost in between.
            start = await self._start_cursor()
            if cursor is not None:
                listener.hear(await asyncio.to_thread(self._changes.since, cursor, visibility=visibility))
                start = cursor
            yield _event("ready", start, f'{{"cursor": "{start}"}}')
            async for lines in self._lines(listener):
                yield lines
        finally:
            self._leave(listener)

    async def _lines(self, listener: _Listener) -> AsyncGenerator[str, None]:
        silent_s = 0.0
        # Without its poller a stream would stay silent: it ends, and the client reconnects.
        while self.is_polling and not self._is_closing():
            for line in listener.take():
                silent_s = 0.0
                yield line
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(listener.arrived.wait(), _WATCH_S)
                continue
            silent_s += _WATCH_S
            if silent_s >= self._heartbeat_s:
                silent_s = 0.0
                yield ": still here\n\n"

    async def _start_cursor(self) -> str:
        """Return the cursor that the poller starts from, read once: a second, later read would skip changes."""
        async with self._placing:
            if self._cursor is None:
                self._cursor = await asyncio.to_thread(self._changes.now)
            return self._cursor

    def _join(self, listener: _Listener) -> None:
        self._listeners.add(listener)
        if not self.is_polling:
            self._cursor, self._placing = None, asyncio.Lock()
            self._poller = asyncio.create_task(self._poll(), name="perdure-live")

    def _leave(self, listener: _Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def _poll(self) -> None:
        while True:
            # Retry while the database is unavailable: listeners wait and miss nothing.
            with contextlib.suppress(StoreError):
                news = await asyncio.to_thread(self._changes.since, await self._start_cursor(), visibility=EVERYONE)
                self._cursor = news.cursor
                for listener in tuple(self._listeners):
                    listener.hear(news)
            await asyncio.sleep(self._poll_s)


def _event(name: str | None, ident: str | None, data: str) -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}id: {ident}\ndata: {data}\n\n"
