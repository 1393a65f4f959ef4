"""The models a person can go on with: of the present endpoint, of providers with a key, and on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.app.runtime import UNSTARTED
from perdure.config.api_keys import api_key_for
from perdure.models.catalog import Catalog
from perdure.providers.discovery import LocalServer, ModelFile, local_servers, model_files
from perdure.providers.local import DEFAULT_MODEL, DEFAULT_N_CTX, has_runtime, packaged_weights
from perdure.providers.model_probe import listed_models
from perdure.providers.registry import PROVIDERS
from perdure.providers.types import Endpoint

if TYPE_CHECKING:
    from perdure.config.settings import Settings


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model by the name to choose it with; window and prices are None where they are not known."""

    name: str
    window: int | None = None
    input_per_mtok: float | None = None
    output_per_mtok: float | None = None
    # Where it runs or comes from.
    source: str = ""


def find_choices(settings: Settings, endpoint: Endpoint, home: Path) -> list[ModelChoice]:
    """Return every model that can be chosen, the endpoint's own first; asks the endpoint and loopback, each briefly."""
    catalog = Catalog(settings.model_overrides)
    choices = [*_of_endpoint(endpoint, catalog), *_of_providers(endpoint, catalog)]
    choices += local_choices(local_servers(), model_files(Path.home(), home))
    unique: dict[str, ModelChoice] = {}
    for choice in choices:
        unique.setdefault(choice.name, choice)
    return list(unique.values())


def local_choices(servers: Sequence[LocalServer], files: Sequence[ModelFile]) -> Iterator[ModelChoice]:
    """Models on this machine: of running servers, the embedded one, and files that the embedded runtime can load."""
    for server in servers:
        for model in server.models:
            name = f"{server.provider}/{model}"
            yield ModelChoice(name, input_per_mtok=0.0, output_per_mtok=0.0, source=f"{server.name}, running")
    if not has_runtime():
        return
    if packaged_weights() is not None:
        yield ModelChoice(f"local/{DEFAULT_MODEL}", DEFAULT_N_CTX, 0.0, 0.0, "embedded, for trying things out")
    for file in files:
        yield ModelChoice(str(file.path), DEFAULT_N_CTX, 0.0, 0.0, f"file, {file.size_bytes / 1e9:.1f} GB")


def _of_endpoint(endpoint: Endpoint, catalog: Catalog) -> Iterator[ModelChoice]:
    """The models the endpoint itself lists; the one in use alone where it lists none."""
    if endpoint.base_url == UNSTARTED:
        return
    rows = asyncio.run(listed_models(endpoint))
    windows = {endpoint.model: None, **dict(rows)}
    for model, window in windows.items():
        name = f"{endpoint.provider}/{model}" if endpoint.provider != "custom" else model
        yield _described(name, endpoint.provider, model, catalog, window, base_url=endpoint.base_url)


def _of_providers(endpoint: Endpoint, catalog: Catalog) -> Iterator[ModelChoice]:
    """The usual models of every other provider whose key is there."""
    for row in PROVIDERS:
        if row.name == endpoint.provider or not any(map(api_key_for, row.key_variables)):
            continue
        for model in dict.fromkeys(filter(None, (row.default_model, row.small_model))):
            yield _described(f"{row.name}/{model}", row.name, model, catalog, None)


def _described(
    name: str, provider: str, model: str, catalog: Catalog, window: int | None, *, base_url: str | None = None
) -> ModelChoice:
    facts = catalog.facts(provider, model, base_url=base_url)
    prices = facts.prices
    return ModelChoice(name, window or facts.window, prices.input_per_mtok, prices.output_per_mtok, provider)
