"""Check a JSON value against a JSON schema, within bounds: schema and value both come from elsewhere.

Types, required and additional properties, items, enums, bounds, `anyOf`, `oneOf`, `allOf` and local `$ref` are checked.
`pattern` and `format` are not: a foreign regular expression can take for ever. A keyword that is unknown, or has a
value of the wrong type, is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

_MAX_DEPTH = 200
# Nested alternatives multiply; a check that takes more steps than this returns the problems so far.
_MAX_STEPS = 200_000
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def schema_problem(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return the first reason why a value does not fit, with its place, or None."""
    return next(_Check(schema).problems(value, schema, "answer", _MAX_DEPTH), None)


class _Check:
    """One check: the root schema for local references, and the steps left."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = _MAX_STEPS

    def problems(self, value: Any, schema: Any, where: str, depth: int) -> Iterator[str]:
        self._steps -= 1
        if schema is False:
            yield f"{where} is not allowed"
            return
        if not isinstance(schema, Mapping) or depth <= 0 or self._steps <= 0:
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield from self.problems(value, self._resolve(reference), where, depth - 1)
        if not _has_type(value, schema.get("type")):
            yield f"{where} must be of type {_type_label(schema['type'])}, not {_name_of(value)}"
            return
        yield from _value_problems(value, schema, where)
        if isinstance(value, dict):
            yield from self._object_problems(value, schema, where, depth)
        elif isinstance(value, list):
            yield from self._array_problems(value, schema, where, depth)
        yield from self._alternative_problems(value, schema, where, depth)

    def _object_problems(
        self, value: dict[str, Any], schema: Mapping[str, Any], where: str, depth: int
    ) -> Iterator[str]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        for name in _list(schema.get("required")):
            if name not in value:
                yield f"{where}.{name} is missing"
        others = schema.get("additionalProperties", True)
        patterns = isinstance(schema.get("patternProperties"), Mapping)
        for name, item in value.items():
            if name in properties:
                yield from self.problems(item, properties[name], f"{where}.{name}", depth - 1)
            elif not patterns:
                yield from self.problems(item, others, f"{where}.{name}", depth - 1)

    def _array_problems(self, value: list[Any], schema: Mapping[str, Any], where: str, depth: int) -> Iterator[str]:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items", True)
        for i, item in enumerate(value):
            yield from self.problems(item, first[i] if i < len(first) else rest, f"{where}[{i}]", depth - 1)

    def _alternative_problems(self, value: Any, schema: Mapping[str, Any], where: str, depth: int) -> Iterator[str]:
        for part in _list(schema.get("allOf")):
            yield from self.problems(value, part, where, depth - 1)
        for keyword in ("anyOf", "oneOf"):
            options = _list(schema.get(keyword))
            reasons = [next(self.problems(value, option, where, depth - 1), None) for option in options]
            if reasons and all(reasons):
                yield f"{where} fits none of its alternatives ({'; '.join(r for r in reasons[:3] if r)})"

    def _resolve(self, reference: str) -> Any:
        """Return the schema a local reference points to; one that fits everything if there is none."""
        if not reference.startswith("#"):
            return True
        target: Any = self._root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            target = target.get(step, True) if isinstance(target, Mapping) else True
        return target


def _value_problems(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(schema.get("enum"), list) and not any(_is_equal(value, e) for e in schema["enum"]):
        yield f"{where} must be one of {_shorten(schema['enum'])}"
    if "const" in schema and not _is_equal(value, schema["const"]):
        yield f"{where} must be {_shorten(schema['const'])}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        size, low, high = value, schema.get("minimum"), schema.get("maximum")
    elif isinstance(value, str):
        size, low, high = len(value), schema.get("minLength"), schema.get("maxLength")
    elif isinstance(value, list):
        size, low, high = len(value), schema.get("minItems"), schema.get("maxItems")
    else:
        return
    what = "" if isinstance(value, int | float) else "the length of "
    if _is_number(low) and size < low:
        yield f"{what}{where} must be at least {low}"
    if _is_number(high) and size > high:
        yield f"{what}{where} must be at most {high}"


def _has_type(value: Any, expected: Any) -> bool:
    names = [n for n in (expected if isinstance(expected, list) else [expected]) if isinstance(n, str) and n in _TYPES]
    return not names or any(_is_of_type(value, name) for name in names)


def _is_of_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _is_equal(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _name_of(value: Any) -> str:
    return next(name for name in _TYPES if _is_of_type(value, name))


def _type_label(expected: Any) -> str:
    return " or ".join(map(str, expected)) if isinstance(expected, list) else str(expected)


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:100]}…"
