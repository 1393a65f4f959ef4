"""Perdure keeps an LLM agent's conversation going past its context window."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.app import Agent, AIAgent
    from perdure.context.api import acompress, acompress_if_needed, compress, compress_if_needed
    from perdure.context.compressor import ContextCompressor
    from perdure.context.engine import ContextEngine
    from perdure.context.registry import register_context_engine
    from perdure.core.errors import (
        ConfigError,
        InvalidMessage,
        LeaseLost,
        NotFound,
        PerdureError,
        PluginError,
        ProviderError,
        StoreError,
        ToolError,
        TurnFailed,
    )
    from perdure.models.tokens import estimate_tokens
    from perdure.providers.codec import apply_anthropic_cache_control, apply_cache_control
    from perdure.providers.errors.classify import classify_error
    from perdure.providers.types import normalize_usage
    from perdure.store.store import open_store

__version__ = "0.1.0"

__all__ = [
    "AIAgent",
    "Agent",
    "ConfigError",
    "ContextCompressor",
    "ContextEngine",
    "InvalidMessage",
    "LeaseLost",
    "NotFound",
    "PerdureError",
    "PluginError",
    "ProviderError",
    "StoreError",
    "ToolError",
    "TurnFailed",
    "acompress",
    "acompress_if_needed",
    "apply_anthropic_cache_control",
    "apply_cache_control",
    "classify_error",
    "compress",
    "compress_if_needed",
    "estimate_tokens",
    "normalize_usage",
    "open_store",
    "register_context_engine",
]

# Where each public name lives. Imported on first use, so that `import perdure` costs nothing.
_HOMES = {
    "AIAgent": "perdure.app",
    "Agent": "perdure.app",
    "ConfigError": "perdure.core.errors",
    "ContextCompressor": "perdure.context.compressor",
    "ContextEngine": "perdure.context.engine",
    "InvalidMessage": "perdure.core.errors",
    "LeaseLost": "perdure.core.errors",
    "NotFound": "perdure.core.errors",
    "PerdureError": "perdure.core.errors",
    "PluginError": "perdure.core.errors",
    "ProviderError": "perdure.core.errors",
    "StoreError": "perdure.core.errors",
    "ToolError": "perdure.core.errors",
    "TurnFailed": "perdure.core.errors",
    "acompress": "perdure.context.api",
    "acompress_if_needed": "perdure.context.api",
    "apply_anthropic_cache_control": "perdure.providers.codec",
    "apply_cache_control": "perdure.providers.codec",
    "classify_error": "perdure.providers.errors.classify",
    "compress": "perdure.context.api",
    "compress_if_needed": "perdure.context.api",
    "estimate_tokens": "perdure.models.tokens",
    "normalize_usage": "perdure.providers.types",
    "open_store": "perdure.store.store",
    "register_context_engine": "perdure.context.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
