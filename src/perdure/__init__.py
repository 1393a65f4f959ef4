"""Perdure keeps an LLM agent's conversation going past its context window."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Where each public name lives. Imported on first use, so that `import perdure` costs nothing.
_HOMES = {
    "CompactionReport": "perdure.context.plain",
    "ContextCompressor": "perdure.context.compressor",
    "ContextEngine": "perdure.context.engine",
    "compress": "perdure.context.plain",
    "estimate_tokens": "perdure.models.tokens",
    "register_context_engine": "perdure.context.registry",
}

# Served by __getattr__.
__all__ = [
    "CompactionReport",
    "ContextCompressor",
    "ContextEngine",
    "compress",
    "estimate_tokens",
    "register_context_engine",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
