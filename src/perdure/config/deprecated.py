"""Renamed settings: the old name still works, with a warning that gives the new one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

RENAMED: Mapping[str, str] = {
    "compression.facts_ratio": "compression.record_ratio",
    "compression.facts_max_tokens": "compression.record_max_tokens",
    "compression.summary_model": "auxiliary.compression.model",
    "gateway.while_busy": "agent.while_busy",
    "model.cache_ttl": "prompt_caching.cache_ttl",
}


class DeprecatedSetting(FutureWarning):
    """Warning for a setting given by its old name; Python shows it once, on stderr."""


def current_name(name: str, *, origin: str = "") -> str:
    """Return the current name of a setting, with a DeprecatedSetting warning if `name` is an old one."""
    new = RENAMED.get(name)
    if new is None:
        return name
    _warn(f"{name} is now called {new}; it still works, but write the new name", origin)
    return new


def rename_settings(data: Mapping[str, Any], origins: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return nested settings and their origins under current names; if both names are given, the current one wins."""
    renamed, new_origins = deepcopy(dict(data)), dict(origins)
    for old, new in RENAMED.items():
        values = [value for path in paths_of(old) if (value := _take(renamed, path)) is not None]
        origin = new_origins.pop(old, "")
        value = values[0] if values else None
        if value is None:
            continue
        if not _put_if_absent(renamed, new, value):
            _warn(f"{old} is now called {new}, which is set as well and holds; take the old one out", origin)
            continue
        if origin:
            new_origins[new] = origin
        current_name(old, origin=origin)
    return renamed, new_origins


def _warn(text: str, origin: str) -> None:
    warnings.warn(f"{text} (from {origin})" if origin else text, DeprecatedSetting, stacklevel=3)


def former_names(name: str) -> list[str]:
    """Return the old names of a setting."""
    return [old for old, new in RENAMED.items() if new == name]


def paths_of(name: str) -> tuple[tuple[str, ...], tuple[str]]:
    """Return the two places at which a file may have a setting: inside its sections, or under its dotted name."""
    return tuple(name.split(".")), (name,)


def _take(data: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Remove and return a nested value; None if there is none."""
    node: Any = data
    for part in path[:-1]:
        node = node.get(part) if isinstance(node, dict) else None
    return node.pop(path[-1], None) if isinstance(node, dict) else None


def _put_if_absent(data: dict[str, Any], name: str, value: Any) -> bool:
    """Set a nested value; False if it is set already or a non-mapping blocks its path."""
    *sections, leaf = name.split(".")
    for part in sections:
        if data.get(part) is None:
            data[part] = {}
        data = data[part]
        if not isinstance(data, dict):
            return False
    if data.get(leaf) is not None:
        return False
    data[leaf] = value
    return True
