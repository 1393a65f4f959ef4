"""Calls of auxiliary models for side tasks of one agent: vision, web extraction and session search.

Each task has its own chain of endpoints, and each call is recorded in the conversation's ledger under its task. The
main model is used only where the settings name it: a task that fails falls back to a result without a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from perdure import prompts
from perdure.app.runtime import UNSTARTED, Shared
from perdure.config.api_keys import api_key_for
from perdure.config.settings import AuxiliaryTaskSettings, Settings
from perdure.core.errors import ConfigError
from perdure.core.messages import Entry, ImagePart, Message, TextPart
from perdure.core.ports import AuxiliaryTask, Summary
from perdure.providers.routes import AuxiliaryCaller, RouteCursor, TaskUsage, auxiliary_chain
from perdure.providers.types import Endpoint, ModelRequest
from perdure.store.records import CallRecord, RouteRecord

_DESCRIPTION_TOKENS = 1_500
_MAX_CACHED_CHARS = 8_000


class TaskModels:
    """Makes the calls of side tasks (the AuxiliaryModels port); `routes` has the conversation's current endpoint."""

    def __init__(self, shared: Shared, settings: Settings, routes: RouteCursor) -> None:
        self._shared = shared
        self._settings = settings
        self._routes = routes

    def has_model(self, task: AuxiliaryTask) -> bool:
        try:
            return bool(self._chain(task))
        except ConfigError:  # reported by the call
            return True

    async def ask(
        self,
        task: AuxiliaryTask,
        prompt: str,
        *,
        conversation_id: str,
        max_tokens: int,
        images: Sequence[ImagePart] = (),
    ) -> Summary:
        shared, used = self._shared, list[TaskUsage]()
        caller = AuxiliaryCaller(
            shared.send, lambda _: self._chain(task), record=used.append, credentials=shared.credentials
        )
        message = Message(role="user", content=(TextPart(prompt), *images) if images else prompt, kind="user")
        request = ModelRequest(model="", entries=(Entry(0, message),), max_tokens=max_tokens)
        started_ms = shared.clock.now_ms()
        try:
            reply, endpoint = await caller.call(task, request)
        finally:
            if used:
                await shared.run_blocking(lambda: self._record(conversation_id, used, started_ms))
        cost = shared.price(reply.usage, endpoint) if reply.usage.reported else None
        return Summary(reply.message.text, reply.model or endpoint.model, reply.usage, cost)

    def _chain(self, task: AuxiliaryTask) -> tuple[Endpoint, ...]:
        """Return the endpoints of a task: those of the settings, else the provider's small model, else none."""
        main, task_settings = self._routes.endpoint, self._task_settings(task)
        chain = auxiliary_chain(task, self._settings, main, lookup=api_key_for)
        if task_settings == AuxiliaryTaskSettings():
            chain = tuple(e for e in chain[:1] if e.model != main.model and self._suits(task, e))
        elif chain[0] != main:
            chain = tuple(e for e in chain if e != main)
        return tuple(e for e in chain if e.base_url != UNSTARTED)

    def _suits(self, task: AuxiliaryTask, endpoint: Endpoint) -> bool:
        return task != "vision" or self._shared.knowledge.takes_images(endpoint)

    def _task_settings(self, task: AuxiliaryTask) -> AuxiliaryTaskSettings:
        settings: AuxiliaryTaskSettings = getattr(self._settings.auxiliary, task)
        return settings

    def _record(self, conversation_id: str, used: Sequence[TaskUsage], started_ms: int) -> None:
        """Store the calls of a side task in the ledger. Blocks: call in a worker thread."""
        store, knowledge = self._shared.store, self._shared.knowledge
        session_id = store.get_compression_tip(conversation_id)
        ended_ms = self._shared.clock.now_ms()
        store.ledger.record(
            [
                CallRecord(
                    session_id=session_id,
                    task=call.task,
                    route=RouteRecord(call.endpoint.provider, call.endpoint.model, call.endpoint.api_mode),
                    usage=call.usage,
                    cost_usd=knowledge.cost_usd(call.endpoint, call.usage) if call.usage.reported else None,
                    started_at_ms=started_ms,
                    ended_at_ms=ended_ms,
                )
                for call in used
            ]
        )


class CachedDescriber:
    """Describes images for models that take none (the ImageDescriber port).

    Descriptions are cached in the store by digest.
    """

    def __init__(self, shared: Shared, models: TaskModels, routes: RouteCursor) -> None:
        self._shared = shared
        self._models = models
        self._routes = routes

    def is_needed(self) -> bool:
        return not self._shared.knowledge.takes_images(self._routes.endpoint) and self._models.has_model("vision")

    async def describe(self, image: ImagePart, *, conversation_id: str) -> str:
        state = self._shared.store.state("image_descriptions")
        key = hashlib.sha256(image.url.encode("utf-8", "surrogatepass")).hexdigest()
        cached = await self._shared.run_blocking(lambda: state.get(key))
        if isinstance(cached, str):
            return cached
        prompt = prompts.load("vision", self._shared.home / "prompts")
        reply = await self._models.ask(
            "vision", prompt, conversation_id=conversation_id, max_tokens=_DESCRIPTION_TOKENS, images=(image,)
        )
        text = " ".join(reply.text.split())[:_MAX_CACHED_CHARS]
        await self._shared.run_blocking(lambda: state.set(key, text))
        return text
