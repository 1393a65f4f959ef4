"""What is wrong with settings, in words: the key, what was given, what is allowed, where it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from perdure.config import keys
from perdure.core.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import ValidationError

# Dotted name → where its value came from, e.g. "/home/me/.perdure/config.yaml, line 3".
Origins = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong value or unknown name; `text` is a whole sentence about it."""

    location: tuple[str | int, ...]
    text: str

    @property
    def name(self) -> str:
        return dotted(self.location)


def dotted(location: Iterable[str | int]) -> str:
    """`("fallback_providers", 0, "model")` as `fallback_providers[0].model`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def problems(error: ValidationError, origins: Origins) -> tuple[Problem, ...]:
    """Each thing the settings model refused."""
    return tuple(_problem(detail, origins) for detail in error.errors(include_url=False))


def as_error(found: Iterable[Problem]) -> ConfigError:
    """One error for all of them, a line each."""
    return ConfigError("\n".join(problem.text for problem in found))


def _problem(detail: Mapping[str, Any], origins: Origins) -> Problem:
    location = tuple(detail["loc"])
    name = dotted(location)
    origin = _origin(location, origins)
    if detail["type"] == "extra_forbidden":
        text = f"unknown setting {name!r}{_hint(location)}"
    elif detail["type"] == "missing":
        text = f"{name} is missing: {keys.allowed_at(location)}"
    else:
        text = f"{name} = {_given(detail['input'])} is not allowed: {keys.allowed_at(location)}"
    return Problem(location, f"{text} (from {origin})" if origin else text)


def _hint(location: tuple[str | int, ...]) -> str:
    name = str(location[-1])
    if name in keys.all_keys():
        section, _, leaf = name.rpartition(".")
        return f"; write `{leaf}:` inside `{section.replace('.', ': ')}:` instead"
    if close := get_close_matches(name, keys.names_at(location[:-1]), n=1):
        return f" (did you mean {dotted((*location[:-1], close[0]))!r}?)"
    return keys.did_you_mean(dotted(location))


def _given(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else keys.shown(value)
    text = keys.mask(text)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _origin(location: tuple[str | int, ...], origins: Origins) -> str:
    """Of the place itself, or of the nearest thing around it."""
    for end in range(len(location), 0, -1):
        if origin := origins.get(dotted(location[:end])):
            return origin
    return ""
