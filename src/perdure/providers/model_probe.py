"""How large a model's window is, asked from servers that tell it: only when needed, briefly, and once.

Every known way of asking is a row of `PROBES`. What a server says about the model it has loaded goes before what it
says about the model as such: llama.cpp, Ollama and LM Studio often serve less than a model was trained for.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from perdure.core.addresses import is_local_url
from perdure.core.errors import ConfigError
from perdure.providers.http import certificates_for, url_of
from perdure.providers.protocols import mode_module
from perdure.providers.types import Endpoint

if TYPE_CHECKING:
    import httpx


TIME_LIMIT_S = 3.0
# A server that did not answer may be up again after so long.
FORGET_S = 60.0
# Nothing smaller or larger is a window: a 0 means "unknown", a huge figure a mistake.
SANE_TOKENS = range(256, 100_000_001)

_MODEL_KEYS = ("context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Probe:
    """One way of asking. `{model}` in its body is filled in; `read` finds the figure or gives None."""

    name: str
    base: Literal["api", "root"]
    path: str
    read: Callable[[Any, str], int | None]
    asks_for_model: bool = False


class EndpointInfo:
    """Remembers what servers told. Construction touches nothing."""

    def __init__(
        self, *, time_limit_s: float = TIME_LIMIT_S, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._time_limit_s = time_limit_s
        self._monotonic_s = monotonic_s
        self._known: dict[tuple[str, str], tuple[int | None, float]] = {}

    async def context_length(self, endpoint: Endpoint) -> int | None:
        """The window the server states for the endpoint's model; None when it states none. Never raises."""
        key = (endpoint.base_url, endpoint.model)
        kept = self._known.get(key)
        if kept is not None and (kept[0] is not None or self._monotonic_s() - kept[1] < FORGET_S):
            return kept[0]
        found = await self._ask(endpoint)
        self._known[key] = (found, self._monotonic_s())
        return found

    async def _ask(self, endpoint: Endpoint) -> int | None:
        import httpx

        probes = [p for p in PROBES if p.base == "api" or is_local_url(endpoint.base_url)]
        headers = dict(mode_module(endpoint.api_mode).headers(endpoint))
        try:
            async with (
                asyncio.timeout(self._time_limit_s),
                httpx.AsyncClient(
                    timeout=self._time_limit_s,
                    trust_env=not is_local_url(endpoint.base_url),
                    verify=certificates_for(endpoint.base_url),
                ) as client,
            ):
                answers = await asyncio.gather(*(_try(client, p, endpoint, headers) for p in probes))
        except (TimeoutError, ConfigError):  # the call itself will say what is wrong
            return None
        return next((a for a in answers if a is not None), None)


async def _try(client: httpx.AsyncClient, probe: Probe, endpoint: Endpoint, headers: dict[str, str]) -> int | None:
    """What one way of asking brought. A server that does not know it says 404; one that is not there says nothing."""
    import httpx

    try:
        url = _address(probe, endpoint)
        if probe.asks_for_model:
            answer = await client.post(url, json={"model": endpoint.model}, headers=headers)
        else:
            answer = await client.get(url, headers=headers)
        found = probe.read(answer.json(), endpoint.model) if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return None
    return found


def _address(probe: Probe, endpoint: Endpoint) -> str:
    base = endpoint.base_url.rstrip("/")
    if probe.base == "root":
        return f"{base.removesuffix('/v1')}{probe.path}"
    return url_of(base, "/v1/models") if endpoint.api_mode == "anthropic_messages" else f"{base}{probe.path}"


def _sane(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in SANE_TOKENS else None


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _rows(answer: object, key: str) -> list[Mapping[str, Any]]:
    rows = _map(answer).get(key)
    return [r for r in rows if isinstance(r, Mapping)] if isinstance(rows, list) else []


def _read_props(answer: object, model: str) -> int | None:
    return _sane(_map(_map(answer).get("default_generation_settings")).get("n_ctx"))


def _read_running(answer: object, model: str) -> int | None:
    """Ollama's list of loaded models: what is really allotted."""
    for row in _rows(answer, "models"):
        if model in (row.get("name"), row.get("model")) or row.get("name") == f"{model}:latest":
            return _sane(row.get("context_length"))
    return None


def _read_show(answer: object, model: str) -> int | None:
    """Ollama's description of a model: the allotment it is configured with, else what it was trained for."""
    if configured := _NUM_CTX.search(str(_map(answer).get("parameters", ""))):
        return _sane(int(configured[1]))
    facts = _map(_map(answer).get("model_info"))
    return next((_sane(v) for k, v in facts.items() if k.endswith(".context_length")), None)


def _read_lm_studio(answer: object, model: str) -> int | None:
    for row in _rows(answer, "data"):
        if row.get("id") == model:
            return _sane(row.get("loaded_context_length")) or _sane(row.get("max_context_length"))
    return None


def _read_models(answer: object, model: str) -> int | None:
    """The common list: vLLM, OpenRouter, Groq, Together, Anthropic and others, each with a key of its own."""
    for row in _rows(answer, "data"):
        aliases = row.get("aliases")
        if row.get("id") == model or (isinstance(aliases, list) and model in aliases):
            narrower = _sane(_map(row.get("top_provider")).get("context_length"))
            stated = next((v for k in _MODEL_KEYS if (v := _sane(row.get(k))) is not None), None)
            return min(v for v in (narrower, stated) if v is not None) if narrower or stated else None
    return None


# In the order of what is believed first.
PROBES: tuple[Probe, ...] = (
    Probe("llama.cpp", "root", "/props", _read_props),
    Probe("ollama, loaded", "root", "/api/ps", _read_running),
    Probe("ollama", "root", "/api/show", _read_show, asks_for_model=True),
    Probe("lm studio", "root", "/api/v0/models", _read_lm_studio),
    Probe("models", "api", "/models", _read_models),
)
