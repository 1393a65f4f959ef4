"""Side jobs (summaries, vision, web extraction, session search): a chain of endpoints each, their usage told by task.

A chain is: what the task's settings name, its fallbacks, and the main endpoint last, so that a side job never fails
for want of a model the conversation itself has (SPEC J10, F2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.config.settings import AuxiliaryTaskSettings, Settings
from perdure.core.errors import ConfigError, ProviderError
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
    """What one side call cost, and whose cost it is."""

    task: Task
    endpoint: Endpoint
    usage: CanonicalUsage


def auxiliary_chain(task: Task, settings: Settings, main: Endpoint, *, lookup: KeyLookup) -> tuple[Endpoint, ...]:
    """The endpoints a task tries, in order, each once. Raises ConfigError for a provider nobody can call."""
    wanted: AuxiliaryTaskSettings = getattr(settings.auxiliary, task)
    chain = [_first(wanted, main, lookup), *fallbacks(wanted.fallback, lookup=lookup, model=main.model), main]
    return tuple(e for i, e in enumerate(chain) if e not in chain[:i])


def _first(wanted: AuxiliaryTaskSettings, main: Endpoint, lookup: KeyLookup) -> Endpoint:
    if wanted.provider == "main" or (wanted.provider == "auto" and not wanted.base_url):
        model = wanted.model or (_small_model(main) if wanted.provider == "auto" else None)
        here = replace(main, model=model) if model else main
        return replace(here, base_url=wanted.base_url.rstrip("/")) if wanted.base_url else here
    if wanted.provider == "auto":
        known = find_provider_by_url(wanted.base_url or "")
        provider = known.name if known is not None else "custom"
    else:
        provider = wanted.provider
    row = find_provider(provider)
    model = wanted.model or (row.small_model or row.default_model if row is not None else "") or main.model
    return endpoint_for(provider, model=model, base_url=wanted.base_url, lookup=lookup)


def _small_model(main: Endpoint) -> str | None:
    """The service's small model, where the main endpoint is that service and not something at another address."""
    row = find_provider(main.provider)
    if row is None or not row.small_model or main.base_url.rstrip("/") != row.base_url.rstrip("/"):
        return None
    return row.small_model


class AuxiliaryCaller:
    """Makes side calls: runs down a task's chain until one endpoint answers, and tells what each call cost."""

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

    async def call(self, task: Task, request: ModelRequest) -> tuple[Reply, Endpoint]:
        """The first answer of the chain and who gave it. Raises the last ProviderError when nobody did."""
        failure: ProviderError | None = None
        for endpoint in self._chain(task):
            try:
                return await self._ask(task, endpoint, request)
            except ProviderError as error:
                # Whatever is wrong with this one (a key, a model, its window), the next may do better.
                failure = error
        raise failure or ConfigError(f"no endpoint is configured for auxiliary task {task!r}")

    async def _ask(self, task: Task, endpoint: Endpoint, request: ModelRequest) -> tuple[Reply, Endpoint]:
        cursor = RouteCursor(EndpointChain((endpoint,)), self._credentials)
        while True:
            here = cursor.endpoint
            try:
                reply = await self._send(here, adapt_request(request, here, cache_ttl=None))
            except ProviderError as error:
                is_cut_short = error.verdict.kind == "transport" and error.may_be_billed
                if error.partial_text or is_cut_short:  # it may bill for what it began, and nobody said how much
                    self._record(TaskUsage(task, here, NOT_REPORTED))
                if await cursor.advance(error.verdict) is None:
                    raise
                continue
            except asyncio.CancelledError:
                self._record(TaskUsage(task, here, NOT_REPORTED))
                raise
            self._record(TaskUsage(task, here, reply.usage))
            return reply, here


class Summarizer:
    """The `Summarize` port: one auxiliary call of the task `compression`, from a thread that may block.

    `run` waits for a coroutine on the event loop's own thread; `price` tells the cost of a call, None where unknown.
    """

    def __init__(
        self,
        caller: AuxiliaryCaller,
        *,
        run: Callable[[Coroutine[Any, Any, tuple[Reply, Endpoint]]], tuple[Reply, Endpoint]],
        price: Callable[[CanonicalUsage, Endpoint], float | None],
    ) -> None:
        self._caller = caller
        self._run = run
        self._price = price

    def __call__(self, prompt: str, *, max_tokens: int) -> Summary:
        request = ModelRequest(model="", entries=(Entry(0, user(prompt)),), max_tokens=max_tokens)
        reply, endpoint = self._run(self._caller.call("compression", request))
        cost = self._price(reply.usage, endpoint) if reply.usage.reported else None
        return Summary(reply.message.text, reply.model or endpoint.model, reply.usage, cost)
