"""List the models that a user can switch to: of the current endpoint, of providers with a key, and on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.app.runtime import NOT_CHOSEN, UNSTARTED, configured_providers, named_model, route_of, route_to
from perdure.config.api_keys import api_key_for, origin_of, stored_servers
from perdure.core.errors import ConfigError
from perdure.models.catalog import Catalog, ModelFacts
from perdure.providers.discovery import LocalServer, ModelFile, local_servers, model_files
from perdure.providers.local import (
    DEFAULT_MODEL,
    DEFAULT_N_CTX,
    embedded_notice,
    has_runtime,
    is_packaged_model,
    packaged_weights,
)
from perdure.providers.model_probe import listed_models, request_listing, with_api_path
from perdure.providers.registry import (
    PROVIDERS,
    address_of,
    find_provider,
    find_provider_by_url,
    is_own_host,
    missing_key,
)
from perdure.providers.routes import EndpointChain, endpoint_for
from perdure.providers.types import Endpoint

if TYPE_CHECKING:
    from perdure.config.settings import Settings


# The most names of a refusal.
_MOST_NAMED = 8
# What an alias leaves out of a listed name: `-2026-01-01`, `-20260101`, `-0613`, `@20260101`, `-latest`, `:latest`.
_VERSION = re.compile(r"[-@](?:\d{4}-\d\d-\d\d|\d{3,8})|[-:]latest")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that can be chosen, by the name to choose it with; window and prices are None where unknown."""

    name: str
    window: int | None = None
    input_per_mtok: float | None = None
    output_per_mtok: float | None = None
    # Where it runs or comes from.
    source: str = ""
    # Whether a new conversation begins with it.
    is_default: bool = False


def find_choices(settings: Settings, endpoint: Endpoint, home: Path) -> list[ModelChoice]:
    """Return every model that can be chosen, the current endpoint's first.

    Queries the endpoint and servers on this machine, each with a short timeout.
    """
    catalog = Catalog(settings.model_overrides)
    configured = dict(reversed(list(configured_providers(settings))))  # the first of a name applies
    endpoints = [endpoint]
    with contextlib.suppress(ConfigError):
        endpoints.append(route_of(settings).main)
    by_address: dict[tuple[str, str], list[Endpoint]] = {}
    for listed in endpoints:
        by_address.setdefault((listed.provider, listed.base_url), []).append(listed)
    choices = [choice for group in by_address.values() for choice in _of_endpoint(settings, group, catalog)]
    choices += _of_stored_servers({origin_of(listed.base_url) for listed in endpoints}, catalog)
    choices += _of_providers({endpoint.provider, *configured}, _proxy_variables(configured), catalog)
    # `ollama/…` names the configured server where the settings have one, not the one on this machine.
    servers = [s for s in local_servers() if s.base_url == _address_by_name(settings, s.provider)]
    choices += local_choices(servers, model_files(Path.home(), home))
    unique: dict[str, ModelChoice] = {}
    for choice in choices:
        unique.setdefault(choice.name, choice)
    return list(unique.values())


def model_names(endpoint: Endpoint | None) -> Collection[str]:
    """Return the names by which the model of an endpoint may be listed; none without one."""
    if endpoint is None:
        return ()
    return {f"{prefix}{endpoint.model}" for prefix in ("", f"{endpoint.provider}/", f"{endpoint.base_url}/")}


def _address_by_name(settings: Settings, provider: str) -> str | None:
    """Return the address that `provider/…` names: a configured one, else the environment's, else the provider's own."""
    chosen = named_model(settings, f"{provider}/?")
    row = find_provider(chosen.provider)
    return chosen.base_url or (address_of(row, api_key_for)[0] if row is not None else None)


def local_choices(servers: Sequence[LocalServer], files: Sequence[ModelFile]) -> Iterator[ModelChoice]:
    """Yield the models on this machine: of running servers, the embedded one, and files it can be run with."""
    for server in servers:
        for model in server.models:
            name = f"{server.provider}/{model}"
            yield ModelChoice(name, input_per_mtok=0.0, output_per_mtok=0.0, source=f"{server.name}, running")
    if not has_runtime():
        return
    if packaged_weights() is not None:
        yield ModelChoice(f"local/{DEFAULT_MODEL}", DEFAULT_N_CTX, 0.0, 0.0, "embedded")
    for file in files:
        yield ModelChoice(str(file.path), DEFAULT_N_CTX, 0.0, 0.0, f"file, {file.size_bytes / 1e9:.1f} GB")


def unlisted_notice(endpoint: Endpoint) -> str | None:
    """Query the endpoint's list of models and return a notice if its own model is not in it.

    None if it is or none is listed.
    """
    model = endpoint.model
    if endpoint.base_url == UNSTARTED or Catalog().window(endpoint.provider, model) is not None:
        return None
    names = [name for name, _ in asyncio.run(listed_models(endpoint))]
    if not names or any(name == model or _is_alias(model, name) for name in names):
        return None
    # The most similar ones of a long list, and all of a short one.
    near = names if len(names) <= _MOST_NAMED else get_close_matches(model, names, n=_MOST_NAMED) or names[:_MOST_NAMED]
    more = " …" if len(names) > len(near) else ""
    notice = f"{endpoint.server_name} does not list {model!r}; it lists {', '.join(near)}{more}"
    return f"{notice}; {embedded}" if (embedded := embedded_notice(model)) else notice


def _is_alias(model: str, listed: str) -> bool:
    """Whether a name is a listed one without its date, snapshot number or `latest`; the start of a name is not."""
    return listed.startswith(model) and _VERSION.fullmatch(listed, len(model)) is not None


def unknown_model_notice(settings: Settings, endpoint: Endpoint) -> str | None:
    """Return a notice if neither the catalogue nor this machine has the endpoint's model. Sends no request.

    The models of a user's own server are not known here, so they get no notice.
    """
    catalog, model = Catalog(settings.model_overrides), endpoint.model
    if endpoint.base_url == UNSTARTED:
        if model.lower() == DEFAULT_MODEL or Path(model).expanduser().is_file():
            return None
        packaged = packaged_weights()
        if packaged is not None and model == packaged.stem:
            return None
        near, where = catalog.similar_models(None, model) or [], "no file on this machine and in no catalogue"
        notice = f"the model {model!r} is {where}"
    elif is_own_host(endpoint) and (found := catalog.similar_models(endpoint.provider, model)) is not None:
        near, notice = found, f"the catalogue has no model {model!r} of {endpoint.provider}"
    else:
        return None
    return f"{notice}; the nearest: {', '.join(near)}" if near else notice


def choose_route(settings: Settings, name: str) -> tuple[EndpointChain, str]:
    """Resolve a model name to its endpoints and a label for the user.

    Raises ConfigError without a key, for a model missing from the endpoint's own list, for an address where no server
    answers, and for a missing model file. A model that only the catalogue lacks may be a new one and is accepted.
    """
    is_path = name.lower().endswith(".gguf") or Path(name).expanduser().is_file()
    if re.search(r"\s", name) and not is_path:
        raise ConfigError(f"{name!r} is no model: no name has a space. Nothing has changed; `/model` lists them.")
    route = route_to(settings, name)
    if (origin := origin_of(name)) is not None and (trouble := _server_problem(route.main, origin)):
        raise ConfigError(f"{trouble}. Nothing has changed.")
    if (problem := missing_key(route.main)) and not settings.credentials.command:
        raise ConfigError(problem)
    if (notice := unlisted_notice(route.main)) is not None:
        # Who means the embedded model is not helped by a call that the server refuses.
        all_the_same = f"; `perdure chat -m {shlex.quote(name)}` uses it all the same"
        raise ConfigError(
            f"{notice}. Nothing has changed{'' if is_packaged_model(route.main.model.lower()) else all_the_same}."
        )
    unknown = unknown_model_notice(settings, route.main)
    if unknown is not None and route.main.base_url == UNSTARTED:
        raise ConfigError(f"{unknown}. Nothing has changed; `/model` lists what can be called.")
    label = f"{route.main.model} ({route.main.server_name})"
    return route, f"{label}; {unknown}" if unknown is not None else label


def check_known_address(name: str) -> None:
    """Raise ConfigError if a model is named by an address without a stored key, which remote users must not choose."""
    origin = origin_of(name)
    if origin is not None and origin not in stored_servers():
        raise ConfigError(f"{origin} is not among the servers that are set up here")


def _server_problem(endpoint: Endpoint, origin: str) -> str:
    """Query the server at an address that was typed; return why it cannot be used, or ""."""
    listing = request_listing(endpoint)
    if listing.status is None:
        return f"no server answers at {origin} ({listing.problem})"
    if listing.is_key_refused:
        verb = "refuses the stored key" if endpoint.api_key else "wants a key"
        return f"the server at {origin} {verb}; `perdure login {origin}` stores one"
    if (url := with_api_path(endpoint).base_url) != endpoint.base_url:
        return f"the API of {origin} is at {url}: `/model {url}/{endpoint.model}`"
    return ""


def _of_endpoint(settings: Settings, in_use: Sequence[Endpoint], catalog: Catalog) -> Iterator[ModelChoice]:
    """Yield the models at one address: those in use there, and those it lists."""
    endpoint = in_use[0]
    if endpoint.base_url == UNSTARTED:
        return
    rows = asyncio.run(listed_models(endpoint))
    windows = {**{e.model: None for e in in_use}, **dict(rows)}
    windows.pop(NOT_CHOSEN, None)
    for model, window in windows.items():
        if (name := _name_of(settings, endpoint, model)) is not None:
            facts = catalog.facts(endpoint.provider, model, base_url=endpoint.base_url)
            yield _make_choice(name, facts, window, endpoint.server_name)


def _name_of(settings: Settings, endpoint: Endpoint, model: str) -> str | None:
    """Return the name by which `/model` selects this model at this endpoint.

    None if every name leads to another one.
    """
    prefixed = f"{endpoint.provider}/{model}"
    is_custom = endpoint.provider == "custom"
    for name in (model, prefixed, f"{endpoint.base_url}/{model}") if is_custom else (prefixed,):
        chosen = named_model(settings, name)
        row = find_provider(chosen.provider)
        base_url = chosen.base_url or (address_of(row, api_key_for)[0] if row is not None else "")
        if (base_url.rstrip("/"), chosen.name) == (endpoint.base_url, model):
            return name
    return None


def _of_stored_servers(called: Collection[str | None], catalog: Catalog) -> Iterator[ModelChoice]:
    """Yield the models of the user's servers that have a stored key and are not called already."""
    for origin in stored_servers():
        if origin in called:
            continue
        endpoint = with_api_path(endpoint_for("custom", model="?", base_url=origin, lookup=api_key_for))
        for model, window in asyncio.run(listed_models(endpoint)):
            name = f"{endpoint.base_url}/{model}"
            facts = catalog.facts(endpoint.provider, model, base_url=endpoint.base_url)
            yield _make_choice(name, facts, window, endpoint.server_name)


def _proxy_variables(configured: Mapping[str, str | None]) -> set[str]:
    """Return the key variables that belong to a configured proxy, and so must not be used for the provider itself."""
    variables: set[str] = set()
    for name, base_url in configured.items():
        row = find_provider(name)
        if row is not None and base_url and find_provider_by_url(base_url) is None:
            variables.update(row.key_variables)
    return variables


def _of_providers(listed: Collection[str], private: Collection[str], catalog: Catalog) -> Iterator[ModelChoice]:
    """Yield the default models of other providers that have a key.

    Keys in `private` belong to a proxy and do not count.
    """
    for row in PROVIDERS:
        usable = [variable for variable in row.key_variables if variable not in private]
        if row.name in listed or not any(map(api_key_for, usable)):
            continue
        for model in dict.fromkeys(filter(None, (row.default_model, row.small_model))):
            yield _make_choice(f"{row.name}/{model}", catalog.facts(row.name, model), None, row.name)


def _make_choice(name: str, facts: ModelFacts, window: int | None, source: str) -> ModelChoice:
    prices = facts.prices
    return ModelChoice(name, window or facts.window, prices.input_per_mtok, prices.output_per_mtok, source)
