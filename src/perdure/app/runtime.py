"""Parts that all agents of a process share: endpoints, stores, model information, embedded model, summarizers.

The server of the embedded model is started by the first call to it. Summaries are written by the auxiliary chain of the
`compression` task first, then by the main model. Both are derived from the current endpoint for every call: after a
fallback or `/model` no more of the history goes to the old endpoint, and a summary still being written there is
cancelled.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perdure.agent.deps import Send
from perdure.agent.runner import LoopThread
from perdure.agent.session import LiveSession
from perdure.config.api_keys import api_key_for, origin_of
from perdure.config.env import home_dir
from perdure.config.settings import ModelSettings, Settings
from perdure.context.engine import RunInThread
from perdure.core.concurrency import SystemClock, run_shielded
from perdure.core.errors import ConfigError, ModelNotNamed, NoSummaryModel, SummarySuperseded
from perdure.core.ports import Clock
from perdure.core.usage import CanonicalUsage
from perdure.models.catalog import Catalog
from perdure.models.tokens import CalibrationStore
from perdure.models.windows import LearnedLimits, ModelKey, Window, Windows
from perdure.providers.codex_login import CodexLogins, CodexSend
from perdure.providers.credentials import Credentials
from perdure.providers.http import HttpClient
from perdure.providers.local import DEFAULT_MODEL, DEFAULT_N_CTX, LocalModel, LocalServers, OnProgress, is_packaged
from perdure.providers.model_probe import EndpointInfo, request_listing
from perdure.providers.registry import (
    address_of,
    find_provider,
    login_target,
    provider_name,
    split_model_address,
)
from perdure.providers.routes import (
    AuxiliaryCaller,
    EndpointChain,
    Summarizer,
    TaskUsage,
    auxiliary_chain,
    chosen_provider,
    endpoint_for,
    main_route,
)
from perdure.providers.sdk_client import SdkTransport, endpoint_of
from perdure.providers.transport import Timeouts, Transport
from perdure.providers.types import ApiMode, Endpoint, ModelRequest, Reply, RequestEvent
from perdure.store.encoding import TimeIds
from perdure.store.records import CallRecord
from perdure.store.records import RouteRecord as StoredRoute
from perdure.store.store import SessionStore, open_store, store_location, user_store_path
from perdure.tools.mcp import McpPool
from perdure.tools.workspace_copies import WorkspacePool

EMBEDDED_PROVIDER = "local"
# In the state of a conversation: the name of the model that was chosen for it, for every surface that resumes it.
MODEL_KEY = "gateway.model"
# In the state of a conversation: where a script took the part of its model, what its calls would have cost, by its id.
SCRIPTED_KEY = "scripted"
# The most names of a list of models in a message.
_MOST_NAMED = 8
# Where nothing listens yet: the real address is known once the server has started.
UNSTARTED = "embedded:"
# In place of a model's name where a service starts before one is chosen.
NOT_CHOSEN = "(no model chosen)"
# A very small model does not know when to stop: left alone it talks until its window is full.
EMBEDDED_REPLY_TOKENS = 400


def embedded_endpoint(model: str, api_mode: ApiMode = "chat_completions") -> Endpoint:
    """Return the endpoint of the embedded model without starting its server."""
    return Endpoint(EMBEDDED_PROVIDER, UNSTARTED, api_mode, model)


class EmbeddedSend:
    """Sends requests (the Send port); starts the embedded model's server first if a request is for it."""

    def __init__(
        self, send: Send, servers: LocalServers, *, n_ctx: int | None = None, on_progress: OnProgress | None = None
    ) -> None:
        self._send = send
        self._servers = servers
        self.n_ctx = n_ctx or DEFAULT_N_CTX
        self._on_progress = on_progress

    async def __call__(
        self, endpoint: Endpoint, request: ModelRequest, *, on_event: Callable[[RequestEvent], None] | None = None
    ) -> Reply:
        if endpoint.model == NOT_CHOSEN:
            raise ConfigError(await asyncio.to_thread(describe_choices, endpoint))
        if endpoint.base_url != UNSTARTED:
            return await self._send(endpoint, request, on_event=on_event)
        model = await asyncio.to_thread(self._get_server, endpoint.model)
        if request.tools and not model.can_call_tools:
            request = replace(request, tools=())
        if request.max_tokens is None and is_packaged(model.path):
            request = replace(request, max_tokens=EMBEDDED_REPLY_TOKENS)
        return await self._send(model.endpoint(endpoint.api_mode), request, on_event=on_event)

    def _get_server(self, model: str) -> LocalModel:
        return self._servers.get(model, n_ctx=self.n_ctx, on_progress=self._on_progress)


class ModelInfo:
    """Windows, output limits, prices and capabilities by endpoint (the Models port); construction makes no request."""

    def __init__(
        self,
        catalog: Catalog,
        learned: LearnedLimits,
        *,
        info: EndpointInfo,
        configured_window: int | None = None,
        configured_for: Sequence[Endpoint] = (),
        embedded_window: int | None = None,
    ) -> None:
        self._catalog = catalog
        self._learned = learned
        self._info = info
        self._windows = Windows(catalog, learned, configured=configured_window)
        # The configured window holds for the configured endpoints, not for a model chosen later or for side jobs.
        self._configured_for = {_route(endpoint) for endpoint in configured_for}
        self._side_windows = Windows(catalog, learned)
        # What the embedded model's server is started with; it holds for no other endpoint.
        self._embedded_window = embedded_window

    async def window(self, endpoint: Endpoint) -> Window:
        """Return the endpoint's context window and the source of the figure; may query the endpoint once."""
        if endpoint.base_url == UNSTARTED and self._embedded_window is not None:
            return Window(self._embedded_window, "config")

        async def ask(route: ModelKey) -> int | None:
            return await self._info.context_length(endpoint)

        route = _route(endpoint)
        windows = self._windows if route in self._configured_for else self._side_windows
        window = await windows.resolve(route, ask)
        if window.source == "endpoint":
            await run_shielded(lambda: self._learned.learn_reported(route, window.tokens))
        return window

    def side_window(self, endpoint: Endpoint) -> int | None:
        """Return the window of a side task's model if it is known without querying its endpoint, else None."""
        window = self._side_windows.known_window(_route(endpoint))
        return window.tokens if window is not None else None

    def output_cap_of(self, endpoint: Endpoint) -> int | None:
        return self._learned.output_cap(_route(endpoint))

    def learn_limits(self, endpoint: Endpoint, *, window: int | None = None, output: int | None = None) -> None:
        if window is not None:
            self._learned.learn(_route(endpoint), window)
        if output is not None:
            self._learned.learn_output_cap(_route(endpoint), output)

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        return self._catalog.cost_usd(endpoint.provider, endpoint.model, usage, base_url=endpoint.base_url)

    def takes_tools(self, endpoint: Endpoint) -> bool:
        """Whether the model supports tool calls."""
        return self._catalog.facts(endpoint.provider, endpoint.model, base_url=endpoint.base_url).takes_tools

    def takes_images(self, endpoint: Endpoint) -> bool:
        """Whether the model is known to take images."""
        return self._catalog.facts(endpoint.provider, endpoint.model, base_url=endpoint.base_url).takes_images


def _route(endpoint: Endpoint) -> ModelKey:
    return ModelKey(endpoint.provider, endpoint.model, endpoint.base_url)


@dataclass(slots=True, eq=False)
class _SharedStore:
    key: str
    store: SessionStore
    users: int = 0


class StoreHandle:
    """A reference to a shared store. `release` is idempotent and safe from any thread and finalizer."""

    def __init__(self, store: SessionStore, release: Callable[[], None] | None = None) -> None:
        self.store = store
        # A queue with one item: the caller that gets it performs the release.
        self._pending: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        if release is not None:
            self._pending.put(release)

    def release(self) -> None:
        try:
            release = self._pending.get_nowait()
        except queue.Empty:
            return
        release()


class SharedStores:
    """Opens each store of a process once and counts its users; the last one to release it closes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[str, _SharedStore] = {}
        # The collector may run a release at any point, also while its own thread holds the lock: it never waits for
        # it; the lock holder does the work instead.
        self._released: queue.SimpleQueue[_SharedStore] = queue.SimpleQueue()

    def acquire(self, path_or_url: str | Path) -> StoreHandle:
        """Return a handle on the store at a path or URL, opening it if this process has not."""
        key = store_location(path_or_url)
        with self._lock:
            shared = self._stores.get(key)
            if shared is None or not shared.store.is_usable:
                # One that was closed, or whose file is gone, stays with those who have it.
                shared = self._stores[key] = _SharedStore(key, open_store(path_or_url))
            shared.users += 1
        self._close_unused()
        return StoreHandle(shared.store, lambda: self._release(shared))

    def _release(self, shared: _SharedStore) -> None:
        self._released.put(shared)
        self._close_unused()

    def _close_unused(self) -> None:
        while not self._released.empty() and self._lock.acquire(blocking=False):
            unused: list[SessionStore] = []
            try:
                while not self._released.empty():
                    shared = self._released.get_nowait()
                    shared.users -= 1
                    if shared.users == 0:
                        unused.append(shared.store)
                        if self._stores.get(shared.key) is shared:
                            del self._stores[shared.key]
            finally:
                self._lock.release()
            for store in unused:
                store.close()


def process_stores() -> SharedStores:
    """Return the shared stores of this process; a forked child has its own."""
    return _stores_of(os.getpid())


@cache
def _stores_of(pid: int) -> SharedStores:
    return SharedStores()


def hold_store(source: SessionStore | str | os.PathLike[str] | None, settings: Settings, home: Path) -> StoreHandle:
    """Return a handle on an open store, or on this process's shared store at a path or URL.

    Releasing the handle does not close a store that was passed in open: its owner does.
    """
    if isinstance(source, SessionStore):
        return StoreHandle(source)
    if source is None:
        source = user_store_path(settings, home)
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(f"store takes a path, a database URL or an open store, not {source!r}")
    return process_stores().acquire(os.fsdecode(source))


def route_to(settings: Settings, name: str) -> EndpointChain:
    """Return the endpoints for another model by its name: `model`, `provider/model` or a file."""
    return route_of(settings.model_copy(update={"model": named_model(settings, name)}))


def named_model(settings: Settings, name: str) -> ModelSettings:
    """Return the model settings for `model`, `provider/model`, a GGUF file, or `http://host/v1/model`; reads no key.

    A configured provider keeps its `base_url`, where its key is sent.
    """
    provider, slash, model = name.partition("/")
    # Of several addresses of one provider the first counts.
    addresses = dict(reversed([*configured_providers(settings)])) if slash else {}
    update: dict[str, str | None] = {"name": name}
    if name.lower().endswith(".gguf") and Path(name).expanduser().is_file():
        update = {"provider": "local", "name": name, "base_url": None}
    elif provider_name(provider) in addresses:
        provider = provider_name(provider)
        update = {"provider": provider, "name": model or None, "base_url": addresses[provider]}
    elif slash and find_provider(provider) is not None:
        update = {"provider": provider, "name": model or None, "base_url": None}
    elif origin_of(name) is not None:
        update = {"provider": "custom", **split_model_address(name)}
    return settings.model.model_copy(update=update)


def configured_providers(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Yield each provider in the main and fallback settings with its `base_url`; None is the provider's default."""
    main = settings.model
    if main.provider or main.base_url:
        provider = main.provider or chosen_provider(settings, lookup=api_key_for) or "custom"
        yield provider_name(provider), main.base_url
    for fallback in settings.fallback_providers:
        yield provider_name(fallback.provider), fallback.base_url


def route_of(settings: Settings, *, api_key: str | None = None, api_mode: str | None = None) -> EndpointChain:
    """Resolve the endpoints: settings, else the first API key in the environment, else the embedded model."""
    if settings.model.provider != "local":
        settings = _with_served_model(settings, api_key, api_mode)
        route = main_route(settings, lookup=api_key_for, api_key=api_key, api_mode=api_mode)
        if route is not None:
            return route
    return EndpointChain((embedded_endpoint(settings.model.name or DEFAULT_MODEL),))


def _with_served_model(settings: Settings, api_key: str | None, api_mode: str | None) -> Settings:
    """Fill in the model of an endpoint that serves exactly one and has no default. Raises ConfigError."""
    chosen = settings.model
    provider = chosen.provider or (chosen_provider(settings, lookup=api_key_for) if chosen.base_url else None)
    row = find_provider(provider)
    if chosen.name or provider is None or (row is not None and row.default_model):
        return settings
    if not chosen.base_url:
        address, variable = address_of(row, api_key_for) if row is not None else ("", None)
        is_own_service = row is not None and row.needs_key and variable is None
        if not address or is_own_service:  # a vendor's list is too long to choose from
            return settings
    endpoint = endpoint_for(
        provider, model="?", base_url=chosen.base_url, lookup=api_key_for, api_key=api_key, api_mode=api_mode
    )
    return settings.model_copy(update={"model": chosen.model_copy(update={"name": _only_model(endpoint)})})


def _only_model(endpoint: Endpoint) -> str:
    """Query the endpoint for its models and return the only one.

    Raises ConfigError, with the next step, for none or several.
    """
    listing, address = request_listing(endpoint), endpoint.base_url
    name_it = "name the model with `perdure config set model.name NAME`"
    if len(listing.names) == 1:
        return listing.names[0]
    if listing.names:
        raise ModelNotNamed(address, listing.names)
    if listing.status in (401, 403):
        raise ConfigError(key_problem(endpoint, listing.status))
    if listing.status is None:
        raise ConfigError(
            f"{address} cannot be reached ({listing.problem}) to ask for its models:"
            f" check {endpoint.address_name}, or {name_it}"
        )
    is_root = listing.status == 404 and not urlsplit(address).path.strip("/")
    path = f"; should {endpoint.address_name} end in /v1, as most do?" if is_root else ""
    raise ConfigError(f"no model is named, and {address} lists none ({listing.status}): {name_it}{path}")


def defer_model_choice(settings: Settings) -> tuple[Settings, str | None]:
    """Return settings that a service can start with, and what is to be done where no model is chosen yet.

    Until one is, every message is answered with that. Raises ConfigError for all else that is wrong.
    """
    try:
        route_of(settings)
        return settings, None
    except ConfigError:
        if settings.model.name is not None:
            raise
        startable = settings.model_copy(update={"model": settings.model.model_copy(update={"name": NOT_CHOSEN})})
        return startable, describe_choices(route_of(startable).main)


def describe_choices(endpoint: Endpoint) -> str:
    """Return what to do where no model of an endpoint is chosen; asks the endpoint briefly."""
    try:
        names: tuple[str, ...] = (_only_model(endpoint),)
    except ModelNotNamed as error:
        names = error.models
    except ConfigError as error:
        return f"no model is chosen yet: {error}"
    names_text = ", ".join(names[:_MOST_NAMED]) + (" …" if names[_MOST_NAMED:] else "")
    return (
        f"no model is chosen yet; {endpoint.base_url} lists {names_text}. In a conversation, /model NAME chooses one;"
        f" for all, `perdure config set model.name {names[0]}` and a restart."
    )


def key_problem(endpoint: Endpoint, status: int) -> str:
    """Return the message for an endpoint that rejected its API key, with the next step."""
    what = "refuses the key" if endpoint.api_key else "asks for a key"
    login = f"`perdure login {login_target(endpoint.provider, endpoint.base_url)}`"
    return f"{endpoint.base_url} {what} ({status}): {login} stores {'another' if endpoint.api_key else 'one'}"


def route_of_client(client: Any, settings: Settings, api_mode: Any) -> EndpointChain:
    """Return the endpoints that send requests through an SDK client the caller made."""
    return EndpointChain((endpoint_of(client, settings.model.name or "", api_mode),))


# How long closing waits for connections, which a stalled event loop cannot close.
_CLOSE_TIMEOUT_S = 2.0


class Shared:
    """The parts that all conversations of a process share; constructing it makes no request."""

    def __init__(
        self,
        settings: Settings,
        *,
        home: Path,
        store: SessionStore | str | os.PathLike[str] | None = None,
        client: Any = None,
        api_key: str | None = None,
        api_mode: str | None = None,
        on_progress: OnProgress | None = None,
        loop_thread: LoopThread | None = None,
        http_client: HttpClient | None = None,
        send: Send | None = None,
        clock: Clock | None = None,
        run_blocking: RunInThread = run_shielded,
    ) -> None:
        self.settings = settings
        self.home = home
        self.loop_thread = loop_thread or shared_loop()
        self.run_blocking = run_blocking
        self.clock: Clock = clock or SystemClock()
        self.ids = TimeIds(self.clock)
        # Resolved first: an address or provider that is wrong is refused before a store is opened.
        self.route = (
            route_of_client(client, settings, api_mode)
            if client is not None
            else route_of(settings, api_key=api_key, api_mode=api_mode)
        )
        self._hold = hold_store(store, settings, home)
        self.store = self._hold.store
        # Release the store when the agent is garbage-collected unclosed.
        weakref.finalize(self, self._hold.release)
        self.transport = Transport(
            client=SdkTransport(client) if client is not None else http_client,
            timeouts=Timeouts(**settings.timeouts.model_dump()),
        )
        servers = LocalServers(home / "logs")
        signed_send = CodexSend(send or self.transport.send, CodexLogins(home_dir(), clock=self.clock))
        self.send = EmbeddedSend(signed_send, servers, n_ctx=settings.model.context_length, on_progress=on_progress)
        self.credentials = Credentials(settings.credentials.command)
        self.mcp = McpPool()
        self.workspaces = WorkspacePool(Path.home())
        self.calibrations = CalibrationStore(self.store.state("calibrations"))
        self.knowledge = ModelInfo(
            Catalog(settings.model_overrides),
            LearnedLimits(self.store.state("limits")),
            info=EndpointInfo(),
            configured_window=settings.model.context_length,
            configured_for=self.route.endpoints,
            embedded_window=self.send.n_ctx,
        )

    def close(self) -> None:
        """Close idle connections and release the store, which is closed with its last user unless it was passed in."""
        try:
            self._close_connections()
        finally:
            self._hold.release()

    def _close_connections(self) -> None:
        if not self.loop_thread.is_running:
            return  # no request was ever sent, or the loop has ended with its connections
        closing = asyncio.run_coroutine_threadsafe(self.transport.aclose(), self.loop_thread.loop)
        if not self.loop_thread.is_own_thread:
            with suppress(TimeoutError):
                closing.result(_CLOSE_TIMEOUT_S)

    def route_to(self, name: str) -> EndpointChain:
        """Return the endpoints for another model.

        The API key passed in still applies at the main endpoint's address.
        """
        route, main = route_to(self.settings, name), self.route.main
        if (route.main.provider, route.main.base_url) != (main.provider, main.base_url):
            return route
        chosen = replace(route.main, api_key=main.api_key, api_mode=main.api_mode)
        return EndpointChain((chosen, *route.endpoints[1:]))

    @property
    def is_embedded(self) -> bool:
        """Whether the main model runs in the embedded runtime of this process, as it does without a provider or key."""
        return self.route.main.base_url == UNSTARTED

    def price(self, usage: CanonicalUsage, endpoint: Endpoint) -> float | None:
        return self.knowledge.cost_usd(endpoint, usage)


@cache
def shared_loop() -> LoopThread:
    """Return the event loop thread that all agents of this process share."""
    return LoopThread()


class SummaryRoute:
    """The models that write the summaries of one conversation; `live` has its current endpoint."""

    def __init__(self, shared: Shared, settings: Settings, live: LiveSession) -> None:
        self._shared = shared
        self._settings = settings
        self._live = live

    @property
    def side(self) -> Summarizer:
        """The auxiliary models for summaries, tried first; the main model is among them only if configured so."""
        return self._summarizer(self._side_chain)

    @property
    def main(self) -> Summarizer:
        """The main model and its fallbacks, as for a turn, less those that the auxiliary chain has already."""
        return self._summarizer(self._main_chain)

    def window_tokens(self) -> int | None:
        """Return the window that the input of a summary must fit; None if it is the main model's or unknown."""
        configured = self._settings.auxiliary.compression.context_length
        if configured is not None:
            return configured
        try:
            first = self._side_chain()[0]
        except ConfigError:  # reported when a summary is wanted; a conversation can begin without one
            return None
        main = self._live.routes.endpoint
        is_main = (first.model, first.base_url) == (main.model, main.base_url)
        return None if is_main else self._shared.knowledge.side_window(first)

    def _side_chain(self) -> tuple[Endpoint, ...]:
        main = self._live.routes.endpoint
        if main.base_url == UNSTARTED:
            raise NoSummaryModel("the embedded model is too small to write summaries")
        chain = auxiliary_chain("compression", self._settings, main, lookup=api_key_for)
        return chain[:-1] if len(chain) > 1 and chain[-1] == main else chain

    def _main_chain(self) -> tuple[Endpoint, ...]:
        asked = self._side_chain()
        chain = tuple(e for e in self._live.routes.ahead if e not in asked and e.base_url != UNSTARTED)
        if not chain:
            raise NoSummaryModel("the main model was asked already")
        return chain

    def _summarizer(self, chain: Callable[[], tuple[Endpoint, ...]]) -> Summarizer:
        shared = self._shared
        caller = AuxiliaryCaller(shared.send, lambda task: chain(), record=self._record, credentials=shared.credentials)
        return Summarizer(caller, run=self._until_switched, price=shared.price)

    async def _until_switched(self, work: Coroutine[Any, Any, tuple[Reply, Endpoint]]) -> tuple[Reply, Endpoint]:
        """Await a summary call; raise SummarySuperseded as soon as the conversation moves to another endpoint."""
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
        """Queue the record of a summary call, to be stored with the conversation's next write; never blocks."""
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
