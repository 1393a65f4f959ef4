"""What one process has once, however many conversations it holds: store, transport, route, what is known of models."""

from __future__ import annotations

import weakref
from functools import cache
from pathlib import Path
from typing import Any

from perdure.agent.bridge import LoopThread
from perdure.agent.embedded import UNSTARTED, EmbeddedSend
from perdure.agent.knowledge import ModelInfo
from perdure.agent.parts import RunBlocking, at_once
from perdure.app.routing import hold_store, route_of, route_of_client
from perdure.config.settings import Settings
from perdure.core.clock import SystemClock
from perdure.core.usage import CanonicalUsage
from perdure.models.calibrations import Calibrations
from perdure.models.catalog import Catalog
from perdure.models.limits import LearnedLimits
from perdure.providers.client_adapter import SdkTransport
from perdure.providers.credentials import Credentials
from perdure.providers.endpoint_info import EndpointInfo
from perdure.providers.exchange import Endpoint
from perdure.providers.local import LocalServers, OnProgress
from perdure.providers.transport import Timeouts, Transport
from perdure.providers.wire import HttpClient
from perdure.store.ids import TimeIds
from perdure.store.store import SessionStore


class Shared:
    """The parts that conversations have in common. Making it touches no network."""

    def __init__(
        self,
        settings: Settings,
        *,
        home: Path,
        store: SessionStore | str | Path | None = None,
        client: Any = None,
        api_key: str | None = None,
        api_mode: str | None = None,
        on_progress: OnProgress | None = None,
        bridge: LoopThread | None = None,
        wire: HttpClient | None = None,
        keep: RunBlocking = at_once,
    ) -> None:
        self.settings = settings
        self.home = home
        self.bridge = bridge or shared_loop()
        self.keep = keep
        self.clock = SystemClock()
        self.ids = TimeIds(self.clock)
        self._hold = hold_store(store, settings, home)
        self.store = self._hold.store
        # Whoever forgets to close it does not keep the store open for ever.
        weakref.finalize(self, self._hold.release)
        self.route = (
            route_of_client(client, settings, api_mode)
            if client is not None
            else route_of(settings, api_key=api_key, api_mode=api_mode)
        )
        self.transport = Transport(
            wire=SdkTransport(client) if client is not None else wire,
            timeouts=Timeouts(**settings.timeouts.model_dump()),
        )
        servers = LocalServers(home / "logs")
        self.send = EmbeddedSend(
            self.transport.send, servers, n_ctx=settings.model.context_length, on_progress=on_progress
        )
        self.credentials = Credentials(settings.credentials.command)
        self.calibrations = Calibrations(self.store.state("calibrations"))
        self.knowledge = ModelInfo(
            Catalog(settings.model_overrides),
            LearnedLimits(self.store.state("limits")),
            info=EndpointInfo(),
            configured_window=settings.model.context_length,
            embedded_window=self.send.n_ctx,
        )

    def close(self) -> None:
        """Lets go of the store: one opened here is closed with its last user, one handed in stays its owner's."""
        self._hold.release()

    @property
    def is_embedded(self) -> bool:
        """Nothing but the model that comes with Perdure answers."""
        return self.route.main.base_url == UNSTARTED

    def price(self, usage: CanonicalUsage, endpoint: Endpoint) -> float | None:
        return self.knowledge.cost_usd(endpoint, usage)


@cache
def shared_loop() -> LoopThread:
    """The one event loop of this process."""
    return LoopThread()
