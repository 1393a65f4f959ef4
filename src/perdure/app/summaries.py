"""Which models write the summaries of one conversation.

The auxiliary chain of the `compression` task first, then the main model. Both are derived from the endpoint that
answers now, for every call anew: after a fallback or `/model` nothing more of the history goes to the endpoint before
it, and a summary that is still being written there is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from perdure.agent.embedded import UNSTARTED
from perdure.agent.session import LiveSession
from perdure.app.runtime import Shared
from perdure.config.env import api_key_for
from perdure.config.settings import Settings
from perdure.core.errors import ConfigError, NoSummaryModel, SummarySuperseded
from perdure.providers.auxiliary import AuxiliaryCaller, Summarizer, TaskUsage, auxiliary_chain
from perdure.providers.types import Endpoint, Reply
from perdure.store.records import CallRecord
from perdure.store.records import RouteRecord as StoredRoute


class SummaryRoute:
    """The summarizers of one conversation; `live` has its current endpoint."""

    def __init__(self, shared: Shared, settings: Settings, live: LiveSession) -> None:
        self._shared = shared
        self._settings = settings
        self._live = live

    @property
    def side(self) -> Summarizer:
        """The auxiliary chain; it ends with the main model only where the settings put it first."""
        return self._summarizer(self._side_chain)

    @property
    def main(self) -> Summarizer:
        """The main model, unless the auxiliary chain has it already."""
        return self._summarizer(self._main_chain)

    def window_tokens(self) -> int | None:
        """The window that the auxiliary chain's input must fit; None where it is the main model's, or unknown."""
        configured = self._settings.auxiliary.compression.context_length
        if configured is not None:
            return configured
        try:
            first = self._side_chain()[0]
        except ConfigError:  # reported when a summary is wanted; a conversation can begin without one
            return None
        return None if _is_same_model(first, self._live.routes.endpoint) else self._shared.knowledge.side_window(first)

    def _side_chain(self) -> tuple[Endpoint, ...]:
        main = self._live.routes.endpoint
        if main.base_url == UNSTARTED:
            raise NoSummaryModel("the embedded model is too small to write summaries")
        chain = auxiliary_chain("compression", self._settings, main, lookup=api_key_for)
        return chain[:-1] if len(chain) > 1 and chain[-1] == main else chain

    def _main_chain(self) -> tuple[Endpoint, ...]:
        main = self._live.routes.endpoint
        if main in self._side_chain():
            raise NoSummaryModel("the main model was asked already")
        return (main,)

    def _summarizer(self, chain: Callable[[], tuple[Endpoint, ...]]) -> Summarizer:
        shared = self._shared
        caller = AuxiliaryCaller(shared.send, lambda task: chain(), record=self._record, credentials=shared.credentials)
        return Summarizer(caller, run=self._until_switched, price=shared.price)

    async def _until_switched(self, work: Coroutine[Any, Any, tuple[Reply, Endpoint]]) -> tuple[Reply, Endpoint]:
        """Waits for a call, and cancels it as soon as another endpoint answers the conversation."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        is_switched = False

        def cancel() -> None:
            nonlocal is_switched
            is_switched = True
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        unsubscribe = self._live.routes.on_move(cancel)
        try:
            return await work
        except asyncio.CancelledError:
            if is_switched:
                raise SummarySuperseded("the conversation moved on to another model") from None
            raise
        finally:
            unsubscribe()

    def _record(self, used: TaskUsage) -> None:
        """Have a call stored with the next write of the conversation: this runs on the event loop."""
        where = used.endpoint
        self._live.record(
            CallRecord(
                session_id=self._live.id,
                task=used.task,
                route=StoredRoute(where.provider, where.model, where.api_mode),
                usage=used.usage,
                cost_usd=self._shared.knowledge.cost_usd(where, used.usage),
            )
        )


def _is_same_model(one: Endpoint, other: Endpoint) -> bool:
    return (one.model, one.base_url) == (other.model, other.base_url)
