"""Query a server for the context window of a model: only when needed, with a short timeout, and cached.

Every known query is a row of `PROBES`. The window of the loaded model takes precedence over the model's nominal one:
llama.cpp, Ollama and LM Studio often serve less than a model was trained for.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from perdure.core.addresses import is_local_url
from perdure.core.errors import ConfigError
from perdure.providers.http import certificates_for, url_of
from perdure.providers.registry import mode_module
from perdure.providers.types import Endpoint

if TYPE_CHECKING:
    import httpx


TIME_LIMIT_S = 3.0
# How long a failed probe is cached.
FORGET_S = 60.0
# Plausible windows: 0 means "unknown", a huge number is an error.
SANE_TOKENS = range(256, 100_000_001)

_MODEL_KEYS = ("context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens")
# Routers list hundreds.
_MAX_LISTED = 500
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Probe:
    """A query for a model's window; `read` extracts it from the response, or returns None."""

    name: str
    base: Literal["api", "root"]
    path: str
    read: Callable[[Any, str], int | None]
    asks_for_model: bool = False


class EndpointInfo:
    """Caches the windows servers report. Construction does no I/O."""

    def __init__(
        self, *, time_limit_s: float = TIME_LIMIT_S, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._time_limit_s = time_limit_s
        self._monotonic_s = monotonic_s
        self._cache: dict[tuple[str, str], tuple[int | None, float]] = {}

    async def context_length(self, endpoint: Endpoint) -> int | None:
        """Return the window the server reports for the endpoint's model; None if it reports none. Never raises."""
        key = (endpoint.base_url, endpoint.model)
        cached = self._cache.get(key)
        if cached is not None and (cached[0] is not None or self._monotonic_s() - cached[1] < FORGET_S):
            return cached[0]
        tokens = await self._probe(endpoint)
        self._cache[key] = (tokens, self._monotonic_s())
        return tokens

    async def _probe(self, endpoint: Endpoint) -> int | None:
        probes = [p for p in PROBES if p.base == "api" or is_local_url(endpoint.base_url)]
        headers = dict(mode_module(endpoint.api_mode).headers(endpoint))
        try:
            async with asyncio.timeout(self._time_limit_s), _client(endpoint, self._time_limit_s) as client:
                results = await asyncio.gather(*(_try(client, p, endpoint, headers) for p in probes))
        except (TimeoutError, ConfigError):  # the model call itself will raise the error
            return None
        return next((a for a in results if a is not None), None)


@dataclass(frozen=True, slots=True)
class ModelListing:
    """The response of an endpoint to a request for its models; without one, `problem` names the error."""

    names: tuple[str, ...] = ()
    status: int | None = None
    problem: str = ""
    # By the response the key is wrong; a right one may still be forbidden to list models.
    is_key_refused: bool = False


def request_listing(endpoint: Endpoint, *, time_limit_s: float = TIME_LIMIT_S) -> ModelListing:
    """Request the models of an endpoint, with its key. Raises ConfigError for certificates that cannot be used."""
    import httpx

    from perdure.providers.errors.classify import classify_error  # slow to import, and seldom needed

    headers = dict(mode_module(endpoint.api_mode).headers(endpoint))
    try:
        with httpx.Client(
            timeout=time_limit_s,
            trust_env=not is_local_url(endpoint.base_url),
            verify=certificates_for(endpoint.base_url),
        ) as client:
            response = client.get(_address(PROBES[-1], endpoint), headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return ModelListing(problem=type(error).__name__)
    try:
        names = listed_names(response.json()) if response.status_code == 200 else []
    except (ValueError, RecursionError):
        names = []
    status = response.status_code
    is_refused = status in (400, 401) and classify_error(status, response.text).kind == "auth"
    return ModelListing(tuple(names[:_MAX_LISTED]), status, is_key_refused=is_refused)


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """Whether a service accepts a key: None where it cannot be asked, with the reason in `detail`."""

    is_accepted: bool | None
    detail: str
    # Whether the service answered at all.
    is_reached: bool = True


# No service has issued it.
_FOREIGN_KEY = "sk-perdure-checks-whether-any-key-will-do"


def check_key(endpoint: Endpoint, *, time_limit_s: float = TIME_LIMIT_S) -> KeyCheck:
    """Ask a service for its models with the endpoint's key, which costs nothing. Raises ConfigError for certificates.

    A public list proves nothing, so one that an invalid key gets as well counts as no answer.
    """
    listing = request_listing(endpoint, time_limit_s=time_limit_s)
    host = urlsplit(endpoint.base_url).netloc
    if listing.status is None:
        return KeyCheck(None, f"{host} cannot be reached ({listing.problem})", is_reached=False)
    if listing.is_key_refused:
        return KeyCheck(False, f"{host} refuses it ({listing.status})")
    if listing.status != 200:
        return KeyCheck(None, f"{host} lists no models ({listing.status})")
    if request_listing(replace(endpoint, api_key=_FOREIGN_KEY), time_limit_s=time_limit_s).status == 200:
        return KeyCheck(None, f"{host} lists its models to any key")
    return KeyCheck(True, f"{host} accepts it")


def with_api_path(endpoint: Endpoint, *, time_limit_s: float = TIME_LIMIT_S) -> Endpoint:
    """Return the endpoint with /v1 appended to its address, if only that address has a list of models."""
    if urlsplit(endpoint.base_url).path.rstrip("/").endswith("/v1"):
        return endpoint
    if request_listing(endpoint, time_limit_s=time_limit_s).status not in (404, 405):
        return endpoint
    longer = replace(endpoint, base_url=f"{endpoint.base_url.rstrip('/')}/v1")
    listing = request_listing(longer, time_limit_s=time_limit_s)
    return longer if listing.names or listing.is_key_refused else endpoint


async def listed_models(endpoint: Endpoint, *, time_limit_s: float = TIME_LIMIT_S) -> list[tuple[str, int | None]]:
    """Return the models an endpoint lists, each with the window it states; [] where it does not. Never raises."""
    import httpx

    headers = dict(mode_module(endpoint.api_mode).headers(endpoint))
    try:
        async with asyncio.timeout(time_limit_s), _client(endpoint, time_limit_s) as client:
            response = await client.get(_address(PROBES[-1], endpoint), headers=headers)
            body: Any = response.json() if response.status_code == 200 else None
    except (TimeoutError, ConfigError, httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return []
    return [(name, _read_models(body, name)) for name in listed_names(body)[:_MAX_LISTED]]


def listed_names(body: object) -> list[str]:
    """Return the names in a list of models as services send it; [] for anything else."""
    return [row["id"] for row in _rows(body, "data") if isinstance(row.get("id"), str)]


def _client(endpoint: Endpoint, time_limit_s: float) -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(
        timeout=time_limit_s,
        trust_env=not is_local_url(endpoint.base_url),
        verify=certificates_for(endpoint.base_url),
    )


async def _try(client: httpx.AsyncClient, probe: Probe, endpoint: Endpoint, headers: dict[str, str]) -> int | None:
    """Run one probe; None where the server does not support it or is not reachable."""
    import httpx

    try:
        url = _address(probe, endpoint)
        if probe.asks_for_model:
            response = await client.post(url, json={"model": endpoint.model}, headers=headers)
        else:
            response = await client.get(url, headers=headers)
        tokens = probe.read(response.json(), endpoint.model) if response.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return None
    return tokens


def _address(probe: Probe, endpoint: Endpoint) -> str:
    base = endpoint.base_url.rstrip("/")
    if probe.base == "root":
        return f"{base.removesuffix('/v1')}{probe.path}"
    return url_of(base, "/v1/models") if endpoint.api_mode == "anthropic_messages" else f"{base}{probe.path}"


def _sane(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in SANE_TOKENS else None


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _rows(response: object, key: str) -> list[Mapping[str, Any]]:
    rows = _map(response).get(key)
    return [r for r in rows if isinstance(r, Mapping)] if isinstance(rows, list) else []


def _read_props(response: object, model: str) -> int | None:
    return _sane(_map(_map(response).get("default_generation_settings")).get("n_ctx"))


def _read_running(response: object, model: str) -> int | None:
    """Return the context size that Ollama has allocated for a loaded model, if it lists the model."""
    for row in _rows(response, "models"):
        if model in (row.get("name"), row.get("model")) or row.get("name") == f"{model}:latest":
            return _sane(row.get("context_length"))
    return None


def _read_show(response: object, model: str) -> int | None:
    """Parse Ollama's model description: the configured context, else the trained one."""
    if configured := _NUM_CTX.search(str(_map(response).get("parameters", ""))):
        return _sane(int(configured[1]))
    facts = _map(_map(response).get("model_info"))
    return next((_sane(v) for k, v in facts.items() if k.endswith(".context_length")), None)


def _read_lm_studio(response: object, model: str) -> int | None:
    for row in _rows(response, "data"):
        if row.get("id") == model:
            return _sane(row.get("loaded_context_length")) or _sane(row.get("max_context_length"))
    return None


def _read_models(response: object, model: str) -> int | None:
    """Parse the common model list: vLLM, OpenRouter, Groq, Together, Anthropic and others, each with its own key."""
    for row in _rows(response, "data"):
        aliases = row.get("aliases")
        if row.get("id") == model or (isinstance(aliases, list) and model in aliases):
            narrower = _sane(_map(row.get("top_provider")).get("context_length"))
            stated = next((v for k in _MODEL_KEYS if (v := _sane(row.get(k))) is not None), None)
            return min(v for v in (narrower, stated) if v is not None) if narrower or stated else None
    return None


# In order of precedence.
PROBES: tuple[Probe, ...] = (
    Probe("llama.cpp", "root", "/props", _read_props),
    Probe("ollama, loaded", "root", "/api/ps", _read_running),
    Probe("ollama", "root", "/api/show", _read_show, asks_for_model=True),
    Probe("lm studio", "root", "/api/v0/models", _read_lm_studio),
    Probe("models", "api", "/models", _read_models),
)
