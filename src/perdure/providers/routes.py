"""Routes: the endpoints a call may go to, in order, for the conversation and for auxiliary tasks.

A conversation has its main endpoint, the fallbacks and their API keys. An auxiliary task (summaries, vision, web
extraction, session search) has its configured endpoint, its fallbacks and the main endpoint last, so that it never
fails for lack of a model while the conversation has one. Resolved from settings and a key lookup; resolving sends no
request, and the only process started is the user's own `credentials.command`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from perdure.config.api_keys import origin_of
from perdure.config.settings import AuxiliaryTaskSettings, Settings
from perdure.core.error_policy import may_reroute
from perdure.core.errors import ConfigError, ErrorVerdict, NoSummaryModel, ProviderError
from perdure.core.messages import Entry, user
from perdure.core.ports import Summary
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.providers.codec import cache_ttl_for, supports_breakpoints
from perdure.providers.credentials import Credentials
from perdure.providers.registry import (
    PROVIDERS,
    ProviderSpec,
    address_of,
    find_provider,
    find_provider_by_url,
    is_own_host,
    providers_of_model,
    quirks_of,
    resolve_mode,
)
from perdure.providers.types import CacheTtl, Endpoint, ModelRequest, Reply

if TYPE_CHECKING:
    from perdure.config.settings import RouteSettings, Settings


# User and password in a URL.
_PASSWORD = re.compile(r"//[^/@]*@")
# The value of an environment variable, or None: `config.api_keys.api_key_for`, or a test's own.
KeyLookup = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class EndpointChain:
    """Endpoints in the order they are tried: the main endpoint, then its fallbacks."""

    endpoints: tuple[Endpoint, ...]

    @property
    def main(self) -> Endpoint:
        return self.endpoints[0]


class RouteCursor:
    """The position of a conversation in its chain of endpoints.

    It stays on a fallback, whose prompt cache is warm by then.
    """

    def __init__(self, route: EndpointChain, credentials: Credentials | None = None) -> None:
        self.route = route
        self._endpoint = route.main
        self._listeners: list[Callable[[], None]] = []
        self._index = 0
        self._credentials = credentials
        # (provider, key) pairs refreshed once already: a second refusal is final.
        self._refreshed: set[tuple[str, str | None]] = set()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint (provider, address, model) that the next call goes to; after a failure, the fallback."""
        return self._endpoint

    @endpoint.setter
    def endpoint(self, new: Endpoint) -> None:
        old, self._endpoint = self._endpoint, new
        if (old.provider, old.model, old.base_url) != (new.provider, new.model, new.base_url):
            for listener in tuple(self._listeners):
                listener()

    @property
    def ahead(self) -> tuple[Endpoint, ...]:
        """The endpoint of the next call and its fallbacks."""
        return (self._endpoint, *self.route.endpoints[self._index + 1 :])

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, from any thread, when the model or provider changes; returns a function to unsubscribe."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def advance(self, verdict: ErrorVerdict) -> Endpoint | None:
        """Return the endpoint to try after a failure: this one with a fresh key, or the next; None if there is none."""
        if verdict.kind == "auth" and self._credentials is not None and self._identity not in self._refreshed:
            self._refreshed.add(self._identity)
            fresh = await self._credentials.refresh(self.endpoint)
            if fresh is not None:
                self._adopt(fresh)
                return self.endpoint
        if not may_reroute(verdict) or self._index + 1 >= len(self.route.endpoints):
            return None
        self._index += 1
        self.endpoint = self.route.endpoints[self._index]
        return self.endpoint

    @property
    def _identity(self) -> tuple[str, str | None]:
        return self.endpoint.provider, self.endpoint.api_key

    def _adopt(self, fresh: str) -> None:
        """Replace the refused key on every endpoint of the route, so that no fallback fails with it again."""
        identity = self._identity
        endpoints = (
            replace(e, api_key=fresh) if (e.provider, e.api_key) == identity else e for e in self.route.endpoints
        )
        self.route = EndpointChain(tuple(endpoints))
        self.endpoint = replace(self.endpoint, api_key=fresh)
        self._refreshed.add(self._identity)

    def fork(self) -> RouteCursor:
        """Return an independent cursor at the same position."""
        other = RouteCursor(self.route, self._credentials)
        other.endpoint, other._index = self.endpoint, self._index
        return other

    def switch_to(self, route: EndpointChain) -> None:
        """Switch to another route, at its main endpoint: the user chose another model."""
        self.route = route
        self.restart()

    def restart(self) -> None:
        """Go back to the main endpoint, as in a new conversation."""
        self._index, self.endpoint = 0, self.route.main
        self._refreshed.clear()


def adapt_request(request: ModelRequest, endpoint: Endpoint, *, cache_ttl: CacheTtl | None = "5m") -> ModelRequest:
    """Adapt a request to an endpoint: its model, quirks, cache_control, cache key and breakpoint.

    `cache_ttl` None disables caching: a request sent once is not worth the price of a cache write.
    """
    quirks = quirks_of(endpoint.provider, model=endpoint.model, base_url=endpoint.base_url, api_mode=endpoint.api_mode)
    marks = cache_ttl_for(endpoint.provider, endpoint.model, cache_ttl) if cache_ttl is not None else None
    # A proxy may refuse parameters that it does not know.
    takes_key = cache_ttl is not None and quirks.takes_cache_key and is_own_host(endpoint)
    return replace(
        request,
        model=endpoint.model,
        quirks=quirks,
        cache_ttl=marks,
        cache_key=request.cache_key if takes_key else "",
        marks_system=cache_ttl is not None and supports_breakpoints(endpoint),
    )


def main_route(
    settings: Settings, *, lookup: KeyLookup, api_key: str | None = None, api_mode: str | None = None
) -> EndpointChain | None:
    """Build the endpoints of the settings.

    None if no provider is set and no key found, so that the embedded model runs.

    `api_key` and `api_mode` apply to the main endpoint only.
    """
    model = settings.model
    provider = model.provider or chosen_provider(settings, lookup=lookup)
    if provider is None:
        return None
    main = endpoint_for(
        provider, model=model.name, base_url=model.base_url, lookup=lookup, api_key=api_key, api_mode=api_mode
    )
    return EndpointChain((main, *fallbacks(settings.fallback_providers, lookup=lookup, model=main.model)))


def chosen_provider(settings: Settings, *, lookup: KeyLookup) -> str | None:
    """Choose a provider where none is set: by the base URL's host, by the model's name, else the first with a key."""
    if settings.model.base_url:
        match = find_provider_by_url(settings.model.base_url)
        return match.name if match is not None else "custom"
    makers, is_exclusive = providers_of_model(settings.model.name or "")
    with_key = [s for s in PROVIDERS if s.base_url and _key_of(s, lookup) is not None]
    match = next((s for s in makers if s in with_key), None)
    if match is None and not is_exclusive:
        match = next(iter(with_key), None)
    # Without any key the maker is named, so that the error names which key is missing.
    match = match or next(iter(makers), None)
    return match.name if match is not None else None


def address_from_environment(settings: Settings, *, lookup: KeyLookup) -> tuple[str, str] | None:
    """Return the main model's address and its variable where it is from the environment.

    Raises ConfigError for a variable that holds no address.
    """
    provider = settings.model.provider or chosen_provider(settings, lookup=lookup)
    row = find_provider(provider) if not settings.model.base_url else None
    address, variable = address_of(row, lookup) if row is not None else ("", None)
    return (address, variable) if variable is not None else None


def fallbacks(routes: Sequence[RouteSettings], *, lookup: KeyLookup, model: str) -> tuple[Endpoint, ...]:
    """Build the endpoints of the fallback settings; `model` is the default model."""
    return tuple(endpoint_for(r.provider, model=r.model or model, base_url=r.base_url, lookup=lookup) for r in routes)


def describe_unknown_provider(name: str) -> str:
    """Return the message about a provider that is neither known nor given an address."""
    names = [s.name for s in PROVIDERS]
    close = get_close_matches(name, names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"provider {name!r} is not known and has no base_url{hint}; known: {', '.join(names)}"


def unknown_providers(settings: Settings) -> list[str]:
    """Return a warning for each setting that names a provider that does not exist.

    With an address of its own any name will do, so that only one like a known one is warned of.
    """
    warnings = _misspelt_provider(settings.model.provider) if settings.model.base_url else []
    for task in type(settings.auxiliary).model_fields:
        job: AuxiliaryTaskSettings = getattr(settings.auxiliary, task)
        first = [] if job.provider in ("auto", "main") else [("provider", job.provider, job.base_url)]
        for key, provider, base_url in [*first, *(("fallback", r.provider, r.base_url) for r in job.fallback)]:
            if not base_url and find_provider(provider) is None:
                warnings.append(f"auxiliary.{task}.{key}: {describe_unknown_provider(provider)}")
    return warnings


def _misspelt_provider(name: str | None) -> list[str]:
    near = get_close_matches(name, [s.name for s in PROVIDERS], n=1, cutoff=0.8) if name else []
    if not near or find_provider(name) is not None:
        return []
    return [f"provider {name!r} is not known: base_url is called as a custom service; did you mean {near[0]!r}?"]


def endpoint_for(
    provider: str,
    *,
    model: str | None = None,
    base_url: str | None = None,
    lookup: KeyLookup,
    api_key: str | None = None,
    api_mode: str | None = None,
) -> Endpoint:
    """Build an endpoint from a provider's row and overrides. Raises ConfigError that names the setting to fix.

    Without a `base_url` the address is the one in the provider's own environment variable, else the provider's.
    """
    row = find_provider(provider)
    variable: str | None = None
    url = base_url or ""
    if url and not _is_address(url):
        raise ConfigError(f"base_url {_PASSWORD.sub('//', url)!r} is no http(s) address: it looks like https://host/v1")
    if not url and row is not None:
        url, variable = address_of(row, lookup)
    if not url:
        if row is None:
            raise ConfigError(describe_unknown_provider(provider))
        raise ConfigError(f"provider {provider!r} needs an address: set model.base_url, e.g. http://127.0.0.1:8000/v1")
    name = model or (row.default_model if row is not None else "")
    if not name:
        raise ConfigError(f"no model is named for provider {provider!r}: set model.name")
    return Endpoint(
        provider=row.name if row is not None else provider,
        base_url=url.rstrip("/"),
        api_mode=resolve_mode(api_mode, provider, url),
        model=name,
        api_key=api_key or (_key_of(row, lookup) if row is not None and row.needs_key else _key_at(url, lookup)),
        address_variable=variable,
        is_default_address=not base_url and variable is None,
    )


def _is_address(url: str) -> bool:
    return origin_of(url) is not None and url.isprintable() and " " not in url


def _key_at(base_url: str, lookup: KeyLookup) -> str | None:
    """Return the key stored for this address, for providers that have no key variable."""
    origin = origin_of(base_url)
    return lookup(origin) if origin is not None else None


def _key_of(row: ProviderSpec, lookup: KeyLookup) -> str | None:
    return next((key for variable in row.key_variables if (key := lookup(variable))), None)


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
        if not task_settings.base_url:
            return current
        url = task_settings.base_url.rstrip("/")
        return replace(current, base_url=url, address_variable=None, is_default_address=False)
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
    """Writes summaries by an auxiliary call of the task `compression` (the AsyncSummarize port).

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
        """Whether a model is configured for summaries."""
        return self._caller.has_endpoint("compression")

    async def __call__(self, prompt: str, *, max_tokens: int) -> Summary:
        request = ModelRequest(model="", entries=(Entry(0, user(prompt)),), max_tokens=max_tokens)
        reply, endpoint = await self._run(self._caller.call("compression", request))
        cost = self._price(reply.usage, endpoint) if reply.usage.reported else None
        return Summary(reply.message.text, reply.model or endpoint.model, reply.usage, cost)
