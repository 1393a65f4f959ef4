"""Gathers settings from their four sources, the later over the earlier: defaults, file, environment, flags.

A key's variable is `PERDURE_` and its name in capitals with two underscores for each dot:
`PERDURE_COMPRESSION__THRESHOLD` sets `compression.threshold`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perdure.config import document, keys
from perdure.config.deprecated import RENAMED, rename_settings
from perdure.config.home import CONFIG_FILE, home_dir
from perdure.config.problems import Origins, Problem, as_error, problems
from perdure.config.settings import Settings
from perdure.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, the home they belong to, and where each value that is no default came from."""

    settings: Settings
    home: Path
    origins: Origins

    @property
    def path(self) -> Path:
        """The user's file, which need not exist."""
        return self.home / CONFIG_FILE

    @property
    def prompts(self) -> Path:
        """The folder of the user's own prompts, which need not exist."""
        return self.home / "prompts"


def load(
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    home: Path | None = None,
) -> Loaded:
    """All sources merged and validated. Raises ConfigError that names every wrong value and where it stands."""
    environ = os.environ if environ is None else environ
    home = home or home_dir(environ)
    file = document.read(home / CONFIG_FILE)
    data, origins = file.data, file.origins
    for key, variable, value in _from_environment(environ):
        put(data, key.path, value)
        origins[key.name] = f"the variable {variable}"
    for name, value in (flags or {}).items():
        key = keys.find(name)
        put(data, key.path, from_text(key, value) if isinstance(value, str) else value)
        origins[key.name] = "the command line"
    data, origins = rename_settings(data, origins)
    settings, found = check(data, origins)
    if settings is None:
        raise as_error(found)
    return Loaded(settings, home, origins)


def load_settings(
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    home: Path | None = None,
) -> Settings:
    """Only the settings of `load`."""
    return load(environ=environ, flags=flags, home=home).settings


def checked(given: Mapping[str, Any]) -> Settings:
    """Settings handed over by code. Raises ConfigError that names every wrong value."""
    settings, found = check(*rename_settings(given, {}))
    if settings is None:
        raise as_error(found)
    return settings


def check_file(path: Path) -> None:
    """Raises ConfigError with everything that is wrong in one file, whatever the environment says."""
    file = document.read(path)
    if found := check(*rename_settings(file.data, file.origins))[1]:
        raise as_error(found)


def overriding_variable(key: keys.Key, environ: Mapping[str, str] | None = None) -> str | None:
    """The variable that wins over the file for this key, where it is set."""
    environ = os.environ if environ is None else environ
    return key.variable if environ.get(key.variable, "").strip() else None


def check(data: Mapping[str, Any], origins: Origins) -> tuple[Settings | None, tuple[Problem, ...]]:
    """The settings that nested `data` gives, or None and what is wrong."""
    try:
        return Settings.model_validate(filled(data)), ()
    except ValidationError as error:
        return None, problems(error, origins)


def from_text(key: keys.Key, text: str) -> Any:
    """A value typed on a command line or in a variable, as the file would hold it."""
    if key.is_nullable and text.strip() in ("null", "~"):
        return None
    if key.is_number:
        return _number(text)
    if not key.is_list:
        return text
    if not text.strip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        parsed: Any = document.parse(f"{key.path[-1]}: {text}", Path(key.name)).data
    except ConfigError:
        return text  # which the settings refuse, with what they allow
    return parsed[key.path[-1]]


def _number(text: str) -> int | float | str:
    """The number that `text` spells, or `text` itself, which the settings refuse with what they allow."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def put(data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Sets a nested value, making the sections on its way; where none can be, what stands there is left to `check`."""
    for part in path[:-1]:
        if data.get(part) is None:
            data[part] = {}
        data = data[part]
        if not isinstance(data, dict):
            return
    data[path[-1]] = value


def filled(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Without the sections and lists that were left empty, as when all their lines are commented out."""
    kept = {}
    for name, value in data.items():
        dotted = f"{prefix}{name}"
        if dotted in keys.sections() and isinstance(value, Mapping):
            value = filled(value, f"{dotted}.") or None
        if value is not None or not (dotted in keys.sections() or _is_list(dotted)):
            kept[name] = value
    return kept


def _is_list(name: str) -> bool:
    key = keys.all_keys().get(name)
    return key is not None and key.is_list


def _from_environment(environ: Mapping[str, str]) -> list[tuple[keys.Key, str, Any]]:
    """Each setting found there. An empty variable counts as unset; a mistyped one is refused, not passed over."""
    by_variable = {key.variable: key for key in keys.all_keys().values()}
    by_letters = {variable.replace("_", ""): variable for variable in by_variable}
    old_names = {keys.variable_of(name): name for name in RENAMED}
    found = []
    for variable, text in environ.items():
        if not variable.startswith(keys.PREFIX) or not text.strip():
            continue
        if key := by_variable.get(variable):
            found.append((key, variable, from_text(key, text)))
        elif old := old_names.get(variable):
            key = keys.find(old)
            # Today's name holds where both are set.
            if not environ.get(key.variable, "").strip():
                found.append((key, variable, from_text(key, text)))
        elif meant := by_letters.get(variable.replace("_", "")):
            raise ConfigError(f"the variable {variable} sets nothing; did you mean {meant}?")
        elif "__" in variable:
            name = variable.removeprefix(keys.PREFIX).replace("__", ".").lower()
            raise ConfigError(
                f"the variable {variable} sets nothing: unknown setting {name!r}{keys.did_you_mean(name)}"
            )
    return found
