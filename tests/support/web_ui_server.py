"""The page as people get it: the real gateway with the page's API and files, in front of the simulator, on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perdure.config.load import validate_settings
from perdure.config.settings import Settings
from perdure.core.concurrency import SystemClock
from perdure.gateway.app import build_gateway_config
from perdure.gateway.auth.tokens import ProcessTokenAuthenticator
from perdure.gateway.observability.logging import LogWriter
from perdure.gateway.server import serve
from perdure.store.store import SessionStore
from perdure.testing.simulator import Simulator

WINDOW = 8_000


@dataclass(frozen=True, slots=True)
class WebUIServer:
    """Where the page is, and who may look at it."""

    url: str
    token: str
    store: SessionStore

    def link(self, path: str = "/") -> str:
        """An address as `perdure serve` prints it, for any view."""
        return f"{self.url}/#token={self.token}&to={path}"


def web_ui_settings(sim: Simulator, **changes: object) -> Settings:
    return validate_settings(
        {
            "model": {
                "name": "gpt-5-mini",
                "base_url": sim.base_url,
                "context_length": WINDOW,
                "provider": "custom",
            },
            "gateway": {"port": 0, "drain_timeout_s": 2},
            **changes,
        }
    )


@contextmanager
def web_ui_server(store: SessionStore, home: Path, settings: Settings) -> Iterator[WebUIServer]:
    """Serves until the block ends; whoever has the token may do everything."""
    authenticator = ProcessTokenAuthenticator()
    ready: list[str] = []
    running: list[asyncio.AbstractEventLoop] = []
    stopped = asyncio.Event()
    is_up = threading.Event()

    def up(host: str, port: int) -> None:
        ready.append(f"http://{host}:{port}")
        is_up.set()

    log_writer = LogWriter("plain", SystemClock(), warnings_only=True)
    site = build_gateway_config(settings, home, store, authenticator, log_writer=log_writer, on_ready=up)

    async def main() -> None:
        running.append(asyncio.get_running_loop())
        await serve(site, stopped=stopped)

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    if not is_up.wait(20):
        raise RuntimeError("the gateway did not start")
    try:
        yield WebUIServer(ready[0], authenticator.token, store)
    finally:
        running[0].call_soon_threadsafe(stopped.set)
        thread.join(15)
