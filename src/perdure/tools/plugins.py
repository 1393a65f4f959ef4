"""Plug-ins that bring tools or hooks: a function that is handed the registry and the hooks, and adds to them.

    def plugin(registry: Registry, hooks: Hooks) -> None:
        registry.add(forecast)
        hooks.pre_tool_call.append(no_network_on_sundays)

Found in `plugins/tools/<name>/` of the home folder, registered by code, or shipped by an installed package (entry
points `perdure.tools`); loaded only where `tools.plugins` names it. A broken one is left out, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perdure import plugins
from perdure.core.errors import PluginError
from perdure.core.foreign import call_foreign, describe_error
from perdure.tools.hooks import Hooks
from perdure.tools.registry import ToolRegistry

ENTRY_POINTS = "perdure.tools"
FOLDER = Path("plugins") / "tools"
ToolPlugin = Callable[[ToolRegistry, Hooks], None]

_PLUGINS = plugins.PluginRegistry("tool plug-in", None, ENTRY_POINTS)


def register_tool_plugin(name: str, plugin: ToolPlugin | str) -> None:
    """Makes a plug-in available under a name; a string "module:function" is imported when it is used."""
    _PLUGINS.register(name, plugin)


def tool_plugins(home: Path | None = None) -> plugins.PluginRegistry:
    """Every tool plug-in there is for a home folder."""
    return _PLUGINS.within(home / FOLDER if home is not None else None)


def load_plugins(
    names: Sequence[str], registry: ToolRegistry, hooks: Hooks, *, found: plugins.PluginRegistry
) -> list[str]:
    """Runs each named plug-in; returns a warning for each that could not be."""
    warnings = []
    for name in names:
        try:
            call_foreign(found.load(name), registry, hooks)
        except PluginError as error:
            warnings.append(str(error))
        except Exception as error:  # a plug-in's own code may raise anything
            warnings.append(f"tool plug-in {name!r} failed to start: {describe_error(error)}")
    return warnings
