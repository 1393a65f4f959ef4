"""Which engine keeps a conversation: the one `context.engine` names (M2).

A folder `plugins/context_engine/<name>/` of the user's comes first, then engines registered by code or shipped by an
installed package (entry points `perdure.context_engines`), then the built-in. `compressor` always means the built-in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from perdure.context.engine import ContextEngine
from perdure.context.guarded import GuardedEngine
from perdure.core.errors import EngineNotFound, PluginBroken
from perdure.plugins import Factory, PluginRegistry, Started

BUILT_IN = "compressor"
ENTRY_POINTS = "perdure.context_engines"
FOLDER = Path("plugins") / "context_engine"

_ENGINES = PluginRegistry(
    "context engine",
    None,
    ENTRY_POINTS,
    builtins={BUILT_IN: "perdure.context.compressor:ContextCompressor"},
    expects=ContextEngine,
    not_found=EngineNotFound,
)


def register_context_engine(name: str, factory: Callable[[], ContextEngine] | str) -> None:
    """Makes an engine available under a name; `factory` is its class, or "module:Class" to import it when chosen."""
    _ENGINES.register(name, factory)


def engines(home: Path | None = None) -> PluginRegistry:
    """Every engine there is for a home folder; `names()` lists them and `load()` refuses an unknown one."""
    return _ENGINES.within(home / FOLDER if home is not None else None)


def start_engine(name: str, *, home: Path | None = None) -> Started[ContextEngine]:
    """The engine of that name, made; one that is gone or broken becomes the built-in, with a warning to show.

    A plug-in's that breaks later, at work, hands over to the built-in as well.
    """
    registry = engines(home)
    started = registry.start(name, default=BUILT_IN, build=_make)
    if started.name == BUILT_IN:
        return started
    return replace(started, value=GuardedEngine(started.value, lambda: _make(registry.load(BUILT_IN))))


def _make(factory: Factory) -> ContextEngine:
    engine = factory()
    if not isinstance(engine, ContextEngine):
        raise PluginBroken(f"{factory!r} makes a {type(engine).__name__}, not a perdure.ContextEngine")
    return engine
