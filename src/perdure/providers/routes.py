"""Where calls go: the main endpoint, the fallbacks behind it, and the keys they are made with (SPEC J10).

Everything here is decided from settings and from keys handed in; nothing is sent, and the only thing ever started is
the user's own `credentials.command`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perdure.core.error_policy import may_reroute
from perdure.core.errors import ConfigError, ErrorVerdict
from perdure.providers.caching import cache_ttl_for
from perdure.providers.credentials import Credentials
from perdure.providers.protocols import resolve_mode
from perdure.providers.registry import PROVIDERS, ProviderSpec, find_provider, find_provider_by_url, quirks_of
from perdure.providers.types import CacheTtl, Endpoint, ModelRequest

if TYPE_CHECKING:
    from perdure.config.settings import RouteSettings, Settings

# The value of an environment variable, or None: `config.credentials.api_key_for`, or a test's own.
KeyLookup = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class EndpointChain:
    """Endpoints in the order they are tried: the main one, then the fallbacks."""

    endpoints: tuple[Endpoint, ...]

    @property
    def main(self) -> Endpoint:
        return self.endpoints[0]


class RouteCursor:
    """Where a conversation stands on its route. It stays where it moved to: a new endpoint's cache is warm by then."""

    def __init__(self, route: EndpointChain, credentials: Credentials | None = None) -> None:
        self.route = route
        self._endpoint = route.main
        self._listeners: list[Callable[[], None]] = []
        self._index = 0
        self._credentials = credentials
        # Whose keys were refused and refreshed once already: a second refusal is final.
        self._refreshed: set[tuple[str, str | None]] = set()

    @property
    def endpoint(self) -> Endpoint:
        """Where the next call goes."""
        return self._endpoint

    @endpoint.setter
    def endpoint(self, new: Endpoint) -> None:
        old, self._endpoint = self._endpoint, new
        if (old.provider, old.model, old.base_url) != (new.provider, new.model, new.base_url):
            for listener in tuple(self._listeners):
                listener()

    def on_move(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener`, in any thread, when another model or service answers; returns how to unsubscribe."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def advance(self, verdict: ErrorVerdict) -> Endpoint | None:
        """Where to try after this failure: the same place with a fresh key, the next place, or None: give up."""
        if verdict.kind == "auth" and self._credentials is not None and self._who not in self._refreshed:
            self._refreshed.add(self._who)
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
    def _who(self) -> tuple[str, str | None]:
        return self.endpoint.provider, self.endpoint.api_key

    def _adopt(self, fresh: str) -> None:
        """Puts a fresh key wherever the refused one stands, so that a fallback there does not fail by it again."""
        refused = self._who
        endpoints = (
            replace(e, api_key=fresh) if (e.provider, e.api_key) == refused else e for e in self.route.endpoints
        )
        self.route = EndpointChain(tuple(endpoints))
        self.endpoint = replace(self.endpoint, api_key=fresh)
        self._refreshed.add(self._who)

    def fork(self) -> RouteCursor:
        """A cursor of its own that stands where this one does."""
        other = RouteCursor(self.route, self._credentials)
        other.endpoint, other._index = self.endpoint, self._index
        return other

    def switch_to(self, route: EndpointChain) -> None:
        """Goes on along another route, from its main endpoint: the user chose another model."""
        self.route = route
        self.restart()

    def restart(self) -> None:
        """Back to the main endpoint, as at the beginning of a new conversation."""
        self._index, self.endpoint = 0, self.route.main
        self._refreshed.clear()


def adapt_request(request: ModelRequest, endpoint: Endpoint, *, cache_ttl: CacheTtl | None = "5m") -> ModelRequest:
    """The request as this endpoint wants it: its model, its quirks, and cache marks where it takes them.

    `cache_ttl` None asks for no marks at all: what is sent once is not worth the price of writing it.
    """
    quirks = quirks_of(endpoint.provider, model=endpoint.model, base_url=endpoint.base_url, api_mode=endpoint.api_mode)
    marks = cache_ttl_for(endpoint.provider, endpoint.model, cache_ttl) if cache_ttl is not None else None
    return replace(request, model=endpoint.model, quirks=quirks, cache_ttl=marks)


def main_route(
    settings: Settings, *, lookup: KeyLookup, api_key: str | None = None, api_mode: str | None = None
) -> EndpointChain | None:
    """The route the settings describe; None where they name nothing and no key is found, so that the embedded model
    may step in. An `api_key` or `api_mode` handed in is for the main endpoint only."""
    model = settings.model
    provider = model.provider or chosen_provider(settings, lookup=lookup)
    if provider is None:
        return None
    main = endpoint_for(
        provider, model=model.name, base_url=model.base_url, lookup=lookup, api_key=api_key, api_mode=api_mode
    )
    return EndpointChain((main, *fallbacks(settings.fallback_providers, lookup=lookup, model=main.model)))


def chosen_provider(settings: Settings, *, lookup: KeyLookup) -> str | None:
    """The provider where none is named: by the base URL's host, then the first one whose key is set."""
    if settings.model.base_url:
        known = find_provider_by_url(settings.model.base_url)
        return known.name if known is not None else "custom"
    found = next((s for s in PROVIDERS if s.base_url and _key_of(s, lookup) is not None), None)
    return found.name if found is not None else None


def fallbacks(routes: Sequence[RouteSettings], *, lookup: KeyLookup, model: str) -> tuple[Endpoint, ...]:
    """The endpoints of a list of routes; one that names no model uses `model` there."""
    return tuple(endpoint_for(r.provider, model=r.model or model, base_url=r.base_url, lookup=lookup) for r in routes)


def endpoint_for(
    provider: str,
    *,
    model: str | None = None,
    base_url: str | None = None,
    lookup: KeyLookup,
    api_key: str | None = None,
    api_mode: str | None = None,
) -> Endpoint:
    """One endpoint from a provider's row and what is said beside it. Raises ConfigError with what to set."""
    row = find_provider(provider)
    url = base_url or (row.base_url if row is not None else "")
    if not url:
        if row is None:
            names = ", ".join(s.name for s in PROVIDERS)
            raise ConfigError(f"provider {provider!r} is not known and has no base_url; known: {names}")
        raise ConfigError(f"provider {provider!r} needs an address: set model.base_url, e.g. http://127.0.0.1:8000/v1")
    name = model or (row.default_model if row is not None else "")
    if not name:
        raise ConfigError(f"no model is named for provider {provider!r}: set model.name")
    return Endpoint(
        provider=row.name if row is not None else provider,
        base_url=url.rstrip("/"),
        api_mode=resolve_mode(api_mode, provider, url),
        model=name,
        api_key=api_key or (_key_of(row, lookup) if row is not None else None),
    )


def missing_key(endpoint: Endpoint) -> str | None:
    """One line that says which key is missing and where to put it; None where none is needed or it is there."""
    row = find_provider(endpoint.provider)
    if endpoint.api_key or row is None or not row.needs_key:
        return None
    return f"no key for {row.name!r}: set {row.key_variables[0]}, or `credentials.command` to a command that prints it"


def _key_of(row: ProviderSpec, lookup: KeyLookup) -> str | None:
    return next((key for variable in row.key_variables if (key := lookup(variable))), None)
