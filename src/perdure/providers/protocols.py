"""Select the protocol of a request, and the module that implements it.

A mode module defines `PATH`, `headers(endpoint)`, `build(request)`, `parse(body)` and `make_stream()`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import get_args
from urllib.parse import urlsplit

from perdure.core.errors import ConfigError
from perdure.providers.registry import find_provider
from perdure.providers.types import ApiMode, Endpoint

_MODULES: dict[ApiMode, str] = {
    "chat_completions": "perdure.providers.chat_completions",
    "codex_responses": "perdure.providers.responses",
    "anthropic_messages": "perdure.providers.anthropic_messages",
}
_ANTHROPIC_HOSTS = ("anthropic.com", "claude.com")


def mode_module(api_mode: ApiMode) -> ModuleType:
    """Return the module that implements this mode."""
    return import_module(_MODULES[validate_mode(api_mode)])


def default_max_tokens(endpoint: Endpoint) -> int | None:
    """Return the max_tokens of a request that sets none; None where the protocol does not require it."""
    if endpoint.api_mode != "anthropic_messages":
        return None
    default: int = mode_module(endpoint.api_mode).output_default(endpoint.model)
    return default


def resolve_mode(api_mode: str | None = None, provider: str | None = None, base_url: str | None = None) -> ApiMode:
    """Resolve the mode: explicit argument, the provider's row, the host of the base URL, then chat_completions."""
    if api_mode:
        return validate_mode(api_mode)
    row = find_provider(provider) if provider else None
    if row is not None and row.api_mode is not None:
        return row.api_mode
    return infer_mode(base_url or "") or "chat_completions"


def validate_mode(api_mode: str) -> ApiMode:
    if api_mode not in _MODULES:
        raise ConfigError(f"unknown api_mode {api_mode!r}; allowed: {', '.join(get_args(ApiMode))}")
    return api_mode


def infer_mode(base_url: str) -> ApiMode | None:
    """Infer the mode from a URL: an Anthropic host, or a path that ends in `/anthropic`."""
    try:
        parts = urlsplit(base_url if "//" in base_url else f"//{base_url}")
        host, path = (parts.hostname or "").lower(), parts.path.rstrip("/").lower()
    except ValueError:  # e.g. an unclosed bracket of an IPv6 address
        return None
    if any(host == h or host.endswith(f".{h}") for h in _ANTHROPIC_HOSTS):
        return "anthropic_messages"
    if path.removesuffix("/v1").endswith("/anthropic"):
        return "anthropic_messages"
    return None
