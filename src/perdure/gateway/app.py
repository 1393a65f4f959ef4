"""Assemble the gateway from its parts: API routes, OpenAI API, web UI, adapters, metrics and observers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from perdure.config.api_keys import api_key_for
from perdure.config.settings import DiscordSettings, GatewaySettings, Settings, TelegramSettings
from perdure.core.concurrency import SystemClock
from perdure.core.errors import ConfigError
from perdure.core.events import CompactionOutcome
from perdure.core.visibility import Visibility
from perdure.gateway.adapters.base import Adapter
from perdure.gateway.api.middleware import is_public
from perdure.gateway.auth.middleware import principal_with_scope, require_scope
from perdure.gateway.auth.principal import Authenticator
from perdure.gateway.auth.web_session import web_session_router
from perdure.gateway.errors import ApiError
from perdure.gateway.observability.base import Observer, TurnObserver
from perdure.gateway.observability.logging import LogObserver, LogWriter
from perdure.gateway.observability.metrics import CONTENT_TYPE, Metrics
from perdure.gateway.observability.telemetry import make_span_observer
from perdure.gateway.openai_api import OPENAI_ENDPOINTS, openai_router
from perdure.gateway.server import GatewayConfig
from perdure.gateway.workers.hub import Hub
from perdure.gateway.workers.precompaction import WorkerStats
from perdure.models.catalog import Catalog
from perdure.store.encoding import TimeIds
from perdure.store.store import SessionStore
from perdure.web import static_files, web_ui_router

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


NO_SUCH_PATH = ApiError(404, "not_found", "no such path, or method not allowed")
_OUTCOMES: tuple[CompactionOutcome, ...] = ("compacted", "digest", "nothing_to_do", "failed")
_TOKEN_COMMAND_TIMEOUT_S = 30


def build_gateway_config(
    settings: Settings,
    home: Path,
    store: SessionStore,
    authenticator: Authenticator,
    *,
    log_writer: LogWriter,
    adapters: Mapping[str, Adapter] | None = None,
    tracer_provider: TracerProvider | None = None,
    on_ready: Callable[[str, int], None] = lambda host, port: None,
    on_drain: Callable[[int, float], None] = lambda running, timeout_s: None,
) -> GatewayConfig:
    """Assemble HTTP API, OpenAI API, web UI, metrics and logs over an open store; return the config for `server.run`.

    `perdure gateway` calls this. The caller keeps the store and closes it.
    """
    clock, metrics = SystemClock(), Metrics()
    observers: list[Observer] = [LogObserver(log_writer), metrics]
    if (span_observer := make_span_observer(tracer_provider)) is not None:
        observers.append(span_observer)

    def make_routers(hub: Hub) -> Sequence[APIRouter]:
        reader = [Depends(require_scope("read"))]
        web_ui = web_ui_router(
            store,
            visibility_of=_visibility_of,
            dependencies=reader,
            clock=clock,
            catalog=Catalog(settings.model_overrides),
            is_closing=lambda: hub.is_draining,
        )
        session = web_session_router(public_url=settings.gateway.public_url, dependencies=reader)
        openai = openai_router(hub, ids=TimeIds(clock), clock=clock)
        return (openai, _metrics_router(metrics, hub), web_ui, session)

    def configure_app(app: FastAPI, hub: Hub) -> None:
        app.mount("/", WebUiFiles())

    return GatewayConfig(
        settings,
        home,
        store,
        authenticator,
        routers=make_routers,
        adapters=dict(adapters or {}),
        on_event=TurnObserver(observers, clock).on_event,
        observers=observers,
        configure_app=configure_app,
        on_ready=on_ready,
        on_drain=on_drain,
    )


class WebUiFiles:
    """Serve the web UI's static files on its public paths, and a JSON 404 on every other unknown path."""

    def __init__(self) -> None:
        self._files = static_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_public(scope["method"], scope["path"]):
            await self._files(scope, receive, send)
        else:
            await _unknown_path(scope).send_to(scope, receive, send)


def _unknown_path(scope: Scope) -> ApiError:
    """Build the 404 error for a path; below `/v1/`, it lists the OpenAI endpoints that are supported."""
    path = scope["path"]
    if not path.startswith("/v1/") or scope["type"] != "http":
        return NO_SUCH_PATH
    message = f"{scope['method']} {path[:80]} is not available; the agent has {OPENAI_ENDPOINTS}"
    return ApiError(404, "unsupported_endpoint", message)


def _visibility_of(request: Request) -> Visibility:
    return principal_with_scope("read", request).visibility


def _compactions(counts: WorkerStats, outcome: CompactionOutcome) -> float:
    return counts.precompactions.get(outcome, 0)


def _metrics_router(metrics: Metrics, hub: Hub) -> APIRouter:
    router, counts = APIRouter(tags=["health"]), hub.stats
    metrics.gauge("live_agents", "Live agents in the pool.", lambda: len(hub.pool))
    metrics.gauge("running_turns", "Messages being processed by this process.", lambda: hub.running)
    metrics.gauge("queue_depth", "Unanswered messages of all processes.", hub.store.inbox.count_pending)
    metrics.gauge("followed_chats", "Chats with subscribers.", lambda: len(hub.broker.subscribed_chats()))
    metrics.total("lease_takeovers", "Messages taken over from processes that died.", lambda: counts.takeovers)
    metrics.total(
        "hygiene_checks",
        "Messages whose conversation was checked for precompaction.",
        lambda: counts.precompaction_checks,
    )
    for outcome in _OUTCOMES:
        metrics.total(
            "hygiene_compactions",
            "Conversations compacted before processing a message.",
            partial(_compactions, counts, outcome),
            outcome=outcome,
        )

    # A sync route, so that FastAPI runs it in a thread: the queue depth is a database query.
    @router.get("/metrics", dependencies=[Depends(require_scope("admin"))], response_class=Response)
    def render() -> Response:
        """Return this process's metrics in the Prometheus text format."""
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    return router


def make_adapters(settings: GatewaySettings, store: SessionStore) -> dict[str, Adapter]:
    """Return adapters by platform. Raises ConfigError if a package or token is missing."""
    adapters: dict[str, Adapter] = {}
    if settings.telegram.enabled:
        adapters["telegram"] = _telegram(settings.telegram, store)
    if settings.discord.enabled:
        adapters["discord"] = _discord(settings.discord, store)
    return adapters


def _telegram(settings: TelegramSettings, store: SessionStore) -> Adapter:
    try:
        from perdure.gateway.adapters.telegram import TelegramAdapter
    except ImportError as error:
        raise ConfigError(
            f"Telegram needs a package that is not installed ({error}): pip install 'perdure[telegram]'"
        ) from error
    # An empty allow list is valid: the bot then replies with the user id to add.
    return TelegramAdapter(_token("telegram", settings, "from @BotFather"), settings, store.state("telegram"))


def _discord(settings: DiscordSettings, store: SessionStore) -> Adapter:
    try:
        from perdure.gateway.adapters.discord import DiscordAdapter
    except ImportError as error:
        raise ConfigError(
            f"Discord needs a package that is not installed ({error}): pip install 'perdure[discord]'"
        ) from error
    token = _token("discord", settings, "from the developer portal")
    return DiscordAdapter(token, settings, store.state("discord"))


def _token(platform: str, settings: TelegramSettings | DiscordSettings, origin: str) -> str:
    if token := api_key_for(settings.token_env):
        return token
    if settings.token_command is None:
        raise ConfigError(
            f"the {platform.capitalize()} bot's token is not set: export {settings.token_env}=… ({origin})"
        )
    try:
        process = subprocess.run(
            ["/bin/sh", "-c", settings.token_command], capture_output=True, text=True, timeout=_TOKEN_COMMAND_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"gateway.{platform}.token_command printed nothing within {_TOKEN_COMMAND_TIMEOUT_S} s"
        ) from None
    lines = process.stdout.strip().splitlines()
    if process.returncode != 0 or not lines:
        raise ConfigError(
            f"gateway.{platform}.token_command failed (exit {process.returncode}); run it by hand to see why"
        )
    return lines[-1].strip()
