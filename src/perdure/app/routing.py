"""Which store and which model the settings mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.agent.embedded import embedded_endpoint
from perdure.app.stores import StoreHandle, process_stores
from perdure.config.credentials import api_key_for
from perdure.config.home import make_home
from perdure.config.settings import Settings
from perdure.core.errors import ConfigError
from perdure.providers.client_adapter import endpoint_of
from perdure.providers.local import DEFAULT_MODEL
from perdure.providers.routes import EndpointChain, main_route
from perdure.providers.services import service
from perdure.store.store import SessionStore, open_store


def open_user_store(settings: Settings, home: Path) -> SessionStore:
    """The store the settings name; the home folder's own file where they name none."""
    return open_store(_user_place(settings, home))


def hold_store(given: SessionStore | str | Path | None, settings: Settings, home: Path) -> StoreHandle:
    """A hold on the store handed in, which stays its owner's to close, or on the process's own at that place."""
    if isinstance(given, SessionStore):
        return StoreHandle(given)
    if given is None:
        given = _user_place(settings, home)
    if not isinstance(given, str | Path):
        raise ConfigError(f"store takes a path, a database URL or an open store, not {given!r}")
    return process_stores().acquire(given)


def _user_place(settings: Settings, home: Path) -> str | Path:
    if settings.store.url:
        return settings.store.url
    return Path(settings.store.path) if settings.store.path else make_home(home) / "perdure.db"


def route_to(settings: Settings, name: str) -> EndpointChain:
    """The route to another model: `model`, or `provider/model` where the provider is one we know."""
    provider, slash, model = name.partition("/")
    update = {"name": name}
    if slash and service(provider) is not None:
        update = {"provider": provider, "name": model, "base_url": ""}
    chosen = settings.model.model_copy(update={k: v or None for k, v in update.items()})
    return route_of(settings.model_copy(update={"model": chosen}))


def route_of(settings: Settings, *, api_key: str | None = None, api_mode: str | None = None) -> EndpointChain:
    """Where calls go: what the settings say, else the first key found, else the embedded model."""
    if settings.model.provider != "local":
        found = main_route(settings, lookup=api_key_for, api_key=api_key, api_mode=api_mode)
        if found is not None:
            return found
    return EndpointChain((embedded_endpoint(settings.model.name or DEFAULT_MODEL),))


def route_of_client(client: Any, settings: Settings, api_mode: Any) -> EndpointChain:
    """The route through a client the caller made."""
    return EndpointChain((endpoint_of(client, settings.model.name or "", api_mode),))
