"""Describe every setting for help, docs and errors: dotted name, default, allowed values, meaning.

All of it is read from the schema of the settings model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import BaseModel

from perdure.config.deprecated import current_name
from perdure.config.settings import Settings
from perdure.core.errors import ConfigError

PREFIX = "PERDURE_"
_SECRETS = frozenset({"api_key", "apikey", "key", "token", "secret"})
_PASSWORD = re.compile(r"(://[^/@\s:]*:)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Key:
    """A setting with its path, type, default and description."""

    name: str
    default: Any
    allowed: str
    description: str
    is_list: bool
    is_number: bool
    is_nullable: bool

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))

    @property
    def variable(self) -> str:
        """The environment variable that sets this key."""
        return variable_of(self.name)


def variable_of(name: str) -> str:
    """Return the environment variable of a dotted name."""
    return PREFIX + name.replace(".", "__").upper()


@cache
def schema() -> Mapping[str, Any]:
    return Settings.model_json_schema()


@cache
def all_keys() -> Mapping[str, Key]:
    """Return all keys by dotted name, in the order of the settings model."""
    return {key.name: key for key in _walk(schema(), "")}


@cache
def sections() -> tuple[str, ...]:
    """Return the dotted names of sections, which hold keys and have no value themselves."""
    return tuple({name[:i]: None for name in all_keys() for i, char in enumerate(name) if char == "."})


def find(name: str) -> Key:
    """Return the key of a current or old name. Raises ConfigError, with the nearest name, for an unknown one."""
    name = current_name(name)
    if key := all_keys().get(name):
        return key
    if name in sections():
        inside = ", ".join(k for k in all_keys() if k.startswith(f"{name}."))
        raise ConfigError(f"{name} is a section, not a setting; it holds: {inside}")
    if name.rpartition(".")[2] in _SECRETS:
        raise ConfigError(
            f"unknown setting {name!r}: keys are no settings; `perdure login PROVIDER` stores one,"
            " and a variable such as ANTHROPIC_API_KEY goes before it"
        )
    listing = next(
        (k for k in all_keys().values() if k.is_list and name.startswith((f"{k.name}.", f"{k.name}["))), None
    )
    if listing is not None:
        raise ConfigError(
            f"{listing.name} is {listing.allowed}; it is set whole, as YAML in brackets{_how_to_price(name)}"
        )
    raise ConfigError(f"unknown setting {name!r}{did_you_mean_key(name)}; `perdure config list` shows all")


def _how_to_price(name: str) -> str:
    is_price = name.startswith("model_overrides") and "price" in name
    return ". A price: `perdure models price NAME IN OUT`" if is_price else ""


def did_you_mean(name: str) -> str:
    """Return ` (did you mean …?)` for a mistyped name of a setting or section; "" if no name is similar."""
    near = _nearest(name)
    return f" (did you mean {near!r}?)" if near is not None else ""


def did_you_mean_key(name: str) -> str:
    """Like `did_you_mean`, for a place that takes a value: of a section, its first setting is named."""
    near = _nearest(name)
    if near in sections():
        near = next(key for key in all_keys() if key.startswith(f"{near}."))
    return f" (did you mean {near!r}?)" if near is not None else ""


def _nearest(name: str) -> str | None:
    names = [*all_keys(), *sections()]
    leaf = name.rpartition(".")[2]
    same_leaf = [k for k in names if k.rpartition(".")[2] == leaf]
    close = get_close_matches(name, names, n=1, cutoff=0.75)
    near_leaf = get_close_matches(leaf, [k.rpartition(".")[2] for k in names], n=1, cutoff=0.8)
    matches = close or same_leaf[:1] or [k for k in names if near_leaf and k.rpartition(".")[2] == near_leaf[0]][:1]
    return matches[0] if matches and matches[0] != name else None


def describe(section: str) -> str:
    """Description of a section or a top-level key."""
    return str(_node_at(tuple(section.split(".")))["description"])


def value_of(settings: BaseModel, name: str) -> Any:
    """Return the value of a dotted name in `settings`."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def plain(value: Any) -> Any:
    """Return a setting as a plain YAML or JSON value; endpoints in their short form if they have one."""
    if isinstance(value, BaseModel):
        filled = value.model_dump(mode="json", exclude_none=True)
        if set(filled) <= {"provider", "model"} and "provider" in filled and "/" not in filled["provider"]:
            return "/".join(filled.values())
        return filled
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def format_value(value: Any) -> str:
    """Format a value on one line as a user would type it; passwords in URLs are masked."""
    value = plain(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return mask(text)


def has_password(text: str) -> bool:
    """Whether a URL in the text has a password."""
    return _PASSWORD.search(text) is not None


def mask(text: str) -> str:
    """Return the text with the passwords of URLs masked."""
    return _PASSWORD.sub(r"\1***@", text)


def describe_allowed_at(location: tuple[str | int, ...]) -> str:
    """Describe the allowed values at a location of the settings, such as (`fallback_providers`, 0, `provider`)."""
    return describe_allowed(_node_at(location))


def names_at(location: tuple[str | int, ...]) -> tuple[str, ...]:
    """Return the keys that a section or list item at this location may have."""
    return tuple(_node_at(location).get("properties", ()))


def _node_at(location: tuple[str | int, ...]) -> Mapping[str, Any]:
    node: Mapping[str, Any] = schema()
    for part in location:
        inner = node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
        if inner is None:
            break
        node = _resolve_ref(inner)
    return node


def describe_allowed(node: Mapping[str, Any]) -> str:
    """Describe in words the values that a node of the JSON schema accepts."""
    node = _resolve_ref(node)
    if "allowed" in node:
        return str(node["allowed"])
    if "anyOf" in node:
        return ", or ".join("null" if n.get("type") == "null" else describe_allowed(n) for n in node["anyOf"])
    if "enum" in node:
        return "one of " + ", ".join(map(str, node["enum"]))
    kind = node.get("type")
    if kind in ("integer", "number"):
        return _range("a whole number" if kind == "integer" else "a number", node)
    if required := node.get("required"):
        others = ", ".join(f"`{name}`" for name in node["properties"] if name not in required)
        return f"a mapping with {', '.join(f'`{name}`' for name in required)}, and any of {others}"
    if kind == "object":
        return "a section of settings"
    if kind == "array":
        return "a list; each item: " + describe_allowed(node["items"])
    return {"boolean": "true or false", "string": "some text"}.get(str(kind), "any value")


def _range(noun: str, node: Mapping[str, Any]) -> str:
    low, above, high = node.get("minimum"), node.get("exclusiveMinimum"), node.get("maximum")
    if low is not None and high is not None:
        return f"{noun} from {low:g} to {high:g}"
    text = noun if above is None else f"{noun} above {above:g}"
    text += "" if low is None else f", at least {low:g}"
    return text if high is None else f"{text}, at most {high:g}"


def _resolve_ref(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve a reference; sibling keys override the referenced node."""
    if "$ref" not in node:
        return node
    target = schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return {**target, **{k: v for k, v in node.items() if k != "$ref"}}


def _walk(node: Mapping[str, Any], prefix: str) -> Iterator[Key]:
    for name, child in node["properties"].items():
        child = _resolve_ref(child)
        dotted = f"{prefix}{name}"
        if "properties" in child:
            yield from _walk(child, f"{dotted}.")
            continue
        kinds = {node.get("type") for node in child.get("anyOf", (child,))}
        yield Key(
            name=dotted,
            default=child["default"],
            allowed=describe_allowed(child),
            description=child["description"],
            is_list=child.get("type") == "array",
            is_number=bool(kinds & {"integer", "number"}),
            is_nullable="null" in kinds,
        )
