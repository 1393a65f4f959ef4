"""Run the gateway: configuration, bind address check, uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI

from perdure.agent.runner import RunningLoop
from perdure.app.runtime import Shared
from perdure.config.env import has_proxy
from perdure.config.settings import GatewaySettings, Settings
from perdure.core.addresses import is_loopback_host
from perdure.core.concurrency import DaemonThreads, run_main
from perdure.core.errors import ConfigError
from perdure.gateway.adapters.base import Adapter
from perdure.gateway.api.app import create_app
from perdure.gateway.api.connections import bounded_protocol
from perdure.gateway.auth.principal import Authenticator
from perdure.gateway.events.broker import OnEvent
from perdure.gateway.events.types import ChatKey, Ticket
from perdure.gateway.executor import run_blocking, run_store_write
from perdure.gateway.observability.base import Observer
from perdure.gateway.workers.agent_pool import WiredAgentFactory
from perdure.gateway.workers.hub import Hub
from perdure.gateway.workers.scheduler import record_outcomes
from perdure.providers.http import HttpClient, HttpxClient
from perdure.store.inbox import QueuedMessage
from perdure.store.schedules import Schedule
from perdure.store.store import SessionStore

# Grace period for open connections once all turns have finished.
_CONNECTION_GRACE_S = 3
_SWITCH_INTERVAL_S = 0.001
# Small young-generation threshold for short pauses; full collections are rare.
_GC_THRESHOLDS = (1_000, 5, 1_000)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Everything a gateway process is started with: settings, store, authenticator, routers, adapters, observers."""

    settings: Settings
    home: Path
    store: SessionStore
    authenticator: Authenticator
    # Factory of additional routers (OpenAI API, web UI), called once the hub exists.
    routers: Callable[[Hub], Sequence[APIRouter]] = lambda hub: ()
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    # Called with every event of this process; must not block or raise.
    on_event: OnEvent | None = None
    # Notified of every request and response.
    observers: Sequence[Observer] = ()
    # Hook to mount more on the app, such as the web UI's files.
    configure_app: Callable[[FastAPI, Hub], None] = lambda app, hub: None
    # Called with host and port once the server listens.
    on_ready: Callable[[str, int], None] = lambda host, port: None
    # Called with the number of running turns and their seconds to finish, if a stop has to wait for any.
    on_drain: Callable[[int, float], None] = lambda running, timeout_s: None


def check_bind_address(settings: GatewaySettings, *, has_tokens: bool) -> None:
    """Raise ConfigError if other machines could reach a gateway that requires no token."""
    if has_tokens:
        return
    if not is_loopback_host(settings.host):
        reach = f"the gateway would be reachable from other machines on {settings.host}"
    elif settings.public_url or settings.allowed_hosts or settings.trusted_proxies:
        reach = "gateway.public_url, allowed_hosts or trusted_proxies make it reachable from other machines"
    else:
        return
    raise ConfigError(f"{reach}, and no token exists; create one first: perdure gateway token add USER")


def run(config: GatewayConfig) -> None:
    """Serve until a signal stops the process."""
    # Switch threads sooner, so that the event loop with its streams waits less for the GIL.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _tune_gc()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        run_main(runner.get_loop(), serve(config))


async def serve(config: GatewayConfig, *, stopped: asyncio.Event | None = None) -> None:
    """Serve inside a running loop until SIGTERM, SIGINT, SIGHUP, or until `stopped` is set."""
    # One thread per job: commands and summaries may take minutes and must not queue behind each other.
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
    shared = Shared(
        config.settings,
        home=config.home,
        store=config.store,
        loop_thread=RunningLoop(),
        http_client=_http_client(),
        run_blocking=run_store_write,
    )
    gateway = config.settings.gateway
    hub = Hub(
        WiredAgentFactory(shared),
        config.store,
        settings=gateway,
        clock=shared.clock,
        ids=shared.ids,
        while_busy=config.settings.agent.while_busy,
        adapters=config.adapters,
        on_event=config.on_event,
    )
    app = create_app(
        hub,
        config.authenticator,
        settings=gateway,
        store=config.store,
        routers=config.routers(hub),
        observers=config.observers,
    )
    config.configure_app(app, hub)
    server = _GatewayServer(_uvicorn_config(app, config.settings))
    stopped, hurried = stopped or asyncio.Event(), asyncio.Event()
    with _handle_signals(stopped, hurried):
        await hub.start()
        serving = asyncio.create_task(server.serve())
        await _wait_started(server, serving)
        if not serving.done():
            config.on_ready(*server.address)
            await _wait_first(serving, stopped.wait())
        await hub.drain(gateway.drain_timeout_s, hurried=hurried, on_wait=config.on_drain)
        server.should_exit = True
        await serving
    await shared.transport.aclose()


async def run_schedule(settings: Settings, home: Path, store: SessionStore, schedule: Schedule) -> QueuedMessage:
    """Run a schedule once in this process, without a server, and return its finished message; cancelling stops it.

    A process that dies leaves the run to the next gateway.
    """
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
    shared = Shared(
        settings,
        home=home,
        store=store,
        loop_thread=RunningLoop(),
        http_client=_http_client(),
        run_blocking=run_store_write,
    )
    hub = Hub(WiredAgentFactory(shared), store, settings=settings.gateway, clock=shared.clock, ids=shared.ids)
    hub.start_alone()
    try:
        queued = await hub.scheduler.run_now(schedule)
        inbound = queued.inbound
        ticket = Ticket(queued.id, None, "running", ChatKey(inbound.platform, inbound.user, inbound.chat))
        async for _ in hub.turn_events(ticket):
            pass
    finally:
        hub.stop_turns([job.queued.id for job in hub.queues.jobs])
        await hub.drain(settings.gateway.drain_timeout_s)
        await shared.transport.aclose()
        await run_blocking(record_outcomes, store)
    return await run_blocking(store.inbox.get, queued.id)


class _GatewayServer(uvicorn.Server):
    """Uvicorn without signal handlers: the gateway drains before the server exits."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return str(host), int(port)


def _uvicorn_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    gateway = settings.gateway
    return uvicorn.Config(
        app,
        host=gateway.host,
        port=gateway.port,
        # The gateway writes its own log, and gateway.trusted_proxies decides which proxies to trust.
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(gateway.trusted_proxies),
        forwarded_allow_ips=list(gateway.trusted_proxies) or None,
        ws_max_size=gateway.max_body_bytes,
        timeout_graceful_shutdown=_CONNECTION_GRACE_S,
        lifespan="off",
        http=bounded_protocol(max_header_bytes=gateway.max_header_bytes, header_timeout_s=gateway.header_timeout_s),
    )


async def _wait_started(server: _GatewayServer, serving: asyncio.Task[None]) -> None:
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)


async def _wait_first(task: asyncio.Task[None], other: Coroutine[Any, Any, Any]) -> None:
    """Wait until the task or the coroutine has finished, whichever comes first."""
    waiting = asyncio.create_task(other)
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def stop_signals() -> list[int]:
    """Return the signals that stop a gateway, except those the process ignores (SIGHUP under nohup)."""
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
    return [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]


# Signals within this time are one stop: a closed terminal and its shell both send one, and a wrapper passes Ctrl-C on.
REPEAT_S = 0.5


@contextlib.contextmanager
def _handle_signals(stopped: asyncio.Event, hurried: asyncio.Event) -> Iterator[None]:
    """Set the first event on SIGTERM, Ctrl-C or SIGHUP, the second when one comes again; where this thread can."""
    loop, handled = asyncio.get_running_loop(), []
    stopped_s = 0.0

    def stop() -> None:
        nonlocal stopped_s
        if not stopped.is_set():
            stopped_s = loop.time()
            stopped.set()
        elif loop.time() - stopped_s >= REPEAT_S:
            hurried.set()

    for number in stop_signals():
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # Windows; not the main thread
            loop.add_signal_handler(number, stop)
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def _tune_gc() -> None:
    """Tune the garbage collector: a full pass over a thousand conversations would stall every stream."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _http_client() -> HttpClient:
    """Return a client for hundreds of streams, or httpx where the environment configures a proxy."""
    if has_proxy():
        return HttpxClient()
    from perdure.providers.http_aiohttp import AiohttpClient  # a slow import, needed by a process that serves

    return AiohttpClient()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
