"""What `gateway` and `serve` share: the port is tried, the doors are put together, and it is said where they are."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from perdure.config.keys import mask
from perdure.config.load import Loaded
from perdure.core.errors import ConfigError

if TYPE_CHECKING:
    from perdure.gateway.guards.people import Authenticator
    from perdure.gateway.watchers.journal import Journal
    from perdure.store.store import SessionStore

_NEEDED = "the gateway needs packages that are not installed ({}): pip install 'perdure[gateway]'"


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be served, and to whom."""

    loaded: Loaded
    store: SessionStore
    people: Authenticator
    journal: Journal


def serve_until_stopped(start: Start, *, say: Callable[[str], Iterable[str]]) -> None:
    """Serves; `say` makes the lines printed once the address is known."""
    settings = start.loaded.settings
    # Before the framework is imported: an address that cannot be had should be told at once.
    claim_address(settings.gateway.host, settings.gateway.port)
    try:
        from perdure.gateway.adapters.known import configured
        from perdure.gateway.serving import run
        from perdure.gateway.watchers.journal import log_to
        from perdure.gateway.watchers.telemetry import tracing
        from perdure.gateway.whole import whole_site
    except ImportError as error:
        raise ConfigError(_NEEDED.format(error.name)) from error

    def ready(host: str, port: int) -> None:
        for line in say(address(host, port)):
            click.echo(line)

    log_to(start.journal)
    adapters = configured(settings.gateway)
    with tracing(settings.gateway.traces) as provider:
        run(
            whole_site(
                settings,
                start.loaded.home,
                start.store,
                start.people,
                journal=start.journal,
                adapters=adapters,
                tracer_provider=provider,
                on_ready=ready,
            )
        )


def claim_address(host: str, port: int) -> None:
    """Raises ConfigError where nothing can listen there."""
    where = address(host, port)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        with socket.create_server((host, port), family=family):
            pass
    except socket.gaierror:
        raise ConfigError(f"there is no address {host!r} on this machine; set gateway.host") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"{where} is in use already; choose another with --port, or 0 for a free one") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"there is no address {host!r} on this machine; set gateway.host") from None
        raise ConfigError(f"cannot listen on {where}: {error.strerror}") from None


def address(host: str, port: int) -> str:
    """As one would type it; all addresses of a machine are reached by its own name."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


def place_of(loaded: Loaded) -> str:
    """The store, without its password."""
    store = loaded.settings.store
    return mask(store.url) if store.url else str(store.path or loaded.home / "perdure.db")
