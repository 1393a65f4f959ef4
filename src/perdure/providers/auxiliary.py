"""Auxiliary tasks (summaries, vision, web extraction, session search): endpoints and usage per task.

The chain of a task is its configured endpoint, its fallbacks and the main endpoint last, so that a task never fails for
lack of a model while the conversation itself has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.config.settings import AuxiliaryTaskSettings, Settings
from perdure.core.errors import ConfigError, NoSummaryModel, ProviderError
from perdure.core.messages import Entry, user
from perdure.core.ports import Summary
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.providers.credentials import Credentials
from perdure.providers.registry import find_provider, find_provider_by_url
from perdure.providers.routes import EndpointChain, KeyLookup, RouteCursor, adapt_request, endpoint_for, fallbacks
from perdure.providers.types import Endpoint, ModelRequest, Reply

Task = Literal["compression", "vision", "web_extract", "session_search"]
Send = Callable[[Endpoint, ModelRequest], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class TaskUsage:
    """Usage of one auxiliary call, with its task and endpoint."""

    task: Task
    endpoint: Endpoint
    usage: CanonicalUsage


def auxiliary_chain(task: Task, settings: Settings, main: Endpoint, *, lookup: KeyLookup) -> tuple[Endpoint, ...]:
    """Return the endpoints of a task in order, without duplicates. Raises ConfigError for an unusable provider."""
    task_settings: AuxiliaryTaskSettings = getattr(settings.auxiliary, task)
    chain = [
        _first(task_settings, main, lookup),
        *fallbacks(task_settings.fallback, lookup=lookup, model=main.model),
        main,
    ]
    return tuple(e for i, e in enumerate(chain) if e not in chain[:i])


def _first(task_settings: AuxiliaryTaskSettings, main: Endpoint, lookup: KeyLookup) -> Endpoint:
    if task_settings.provider == "main" or (task_settings.provider == "auto" and not task_settings.base_url):
        model = task_settings.model or (_small_model(main) if task_settings.provider == "auto" else None)
        current = replace(main, model=model) if model else main
        return replace(current, base_url=task_settings.base_url.rstrip("/")) if task_settings.base_url else current
    if task_settings.provider == "auto":
        match = find_provider_by_url(task_settings.base_url or "")
        provider = match.name if match is not None else "custom"
    else:
        provider = task_settings.provider
    row = find_provider(provider)
    model = task_settings.model or (row.small_model or row.default_model if row is not None else "") or main.model
    return endpoint_for(provider, model=model, base_url=task_settings.base_url, lookup=lookup)


def _small_model(main: Endpoint) -> str | None:
    """Return the provider's small model, if the main endpoint is at the provider's own address."""
    row = find_provider(main.provider)
    if row is None or not row.small_model or main.base_url.rstrip("/") != row.base_url.rstrip("/"):
        return None
    return row.small_model


class AuxiliaryCaller:
    """Makes auxiliary calls: tries a task's endpoints until one replies, and records the usage of each call."""

    def __init__(
        self,
        send: Send,
        chain: Callable[[Task], tuple[Endpoint, ...]],
        *,
        record: Callable[[TaskUsage], None],
        credentials: Credentials | None = None,
    ) -> None:
        self._send = send
        self._chain = chain
        self._record = record
        self._credentials = credentials

    def has_endpoint(self, task: Task) -> bool:
        """Whether the task has an endpoint now; an invalid setting is reported by `call`."""
        try:
            self._chain(task)
        except NoSummaryModel:
            return False
        except ConfigError:
            pass
        return True

    async def call(self, task: Task, request: ModelRequest) -> tuple[Reply, Endpoint]:
        """Return the first reply and its endpoint. Raises the last ProviderError when every endpoint failed."""
        failure: ProviderError | None = None
        for endpoint in self._chain(task):
            try:
                return await self._call_endpoint(task, endpoint, request)
            except ProviderError as error:
                # Whatever failed (key, model, window), the next endpoint may succeed.
                failure = error
        raise failure or ConfigError(f"no endpoint is configured for auxiliary task {task!r}")

    async def _call_endpoint(self, task: Task, endpoint: Endpoint, request: ModelRequest) -> tuple[Reply, Endpoint]:
        cursor = RouteCursor(EndpointChain((endpoint,)), self._credentials)
        while True:
            current = cursor.endpoint
            try:
                reply = await self._send(current, adapt_request(request, current, cache_ttl=None))
            except ProviderError as error:
                is_cut_short = error.verdict.kind == "transport" and error.may_be_billed
                if error.partial_text or is_cut_short:  # may be billed, without a usage report
                    self._record(TaskUsage(task, current, NOT_REPORTED))
                if await cursor.advance(error.verdict) is None:
                    raise
                continue
            except asyncio.CancelledError:
                self._record(TaskUsage(task, current, NOT_REPORTED))
                raise
            self._record(TaskUsage(task, current, reply.usage))
            return reply, current


class Summarizer:
    """The `AsyncSummarize` port: one auxiliary call of the task `compression`.

    `run` awaits the call; `price` returns the cost of a call, None where unknown.
    """

    def __init__(
        self,
        caller: AuxiliaryCaller,
        *,
        run: Callable[[Coroutine[Any, Any, tuple[Reply, Endpoint]]], Awaitable[tuple[Reply, Endpoint]]],
        price: Callable[[CanonicalUsage, Endpoint], float | None],
    ) -> None:
        self._caller = caller
        self._run = run
        self._price = price

    @property
    def is_available(self) -> bool:
        """Whether a model is configured for it."""
        return self._caller.has_endpoint("compression")

    async def __call__(self, prompt: str, *, max_tokens: int) -> Summary:
        request = ModelRequest(model="", entries=(Entry(0, user(prompt)),), max_tokens=max_tokens)
        reply, endpoint = await self._run(self._caller.call("compression", request))
        cost = self._price(reply.usage, endpoint) if reply.usage.reported else None
        return Summary(reply.message.text, reply.model or endpoint.model, reply.usage, cost)
