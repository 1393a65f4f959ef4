"""A call's arguments, checked against what the tool takes; a wrong one is named, with what was expected instead."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

from perdure.core.errors import ToolError

_SHOWN_CHARS = 60


class ArgumentModel:
    """The arguments a typed function takes: a schema for the model, and a check for what it sends."""

    def __init__(self, takes: Mapping[str, tuple[Any, Any, str]], *, missing: object) -> None:
        from pydantic import ConfigDict, Field, create_model  # slow to import, and only needed once there are tools

        self._names = list(takes)
        fields: dict[str, Any] = {}
        for i, (name, (hint, default, note)) in enumerate(takes.items()):
            about = note or _annotated_note(hint) or None
            wanted = (
                Field(alias=name, description=about)
                if default is missing
                else Field(default, alias=name, description=about)
            )
            # Fields are numbered: a parameter may be called `schema` or `copy`, which a model's attribute may not.
            fields[f"a{i}"] = (hint, wanted)
        self._model = create_model(
            "arguments", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **fields
        )
        self.schema: dict[str, Any] = _without_titles(self._model.model_json_schema(by_alias=True))

    def check(self, tool_name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values to call the handler with. Raises ToolError that says which argument and what was expected."""
        from pydantic import ValidationError

        try:
            model = self._model.model_validate(given)
        except ValidationError as first:
            try:
                model = self._model.model_validate(_unwrapped(given, self.schema))
            except ValidationError:
                raise ToolError(self._explain(tool_name, given, first.errors())) from None
        return {name: getattr(model, f"a{i}") for i, name in enumerate(self._names)}

    def _explain(self, tool_name: str, given: Mapping[str, Any], errors: list[Any]) -> str:
        said = []
        for e in errors:
            where = ".".join(str(x) for x in e["loc"])
            if e["type"] == "missing":
                said.append(f"`{where}` is missing")
            elif e["type"] == "extra_forbidden":
                said.append(f"`{where}` is not an argument{_did_you_mean(where, self._names)}")
            else:
                said.append(f"`{where}`: {e['msg'].lower()}, but got {_show(e['input'])}")
        return f"bad arguments for {tool_name}: {'; '.join(said)}. It takes: {describe(self.schema)}"


def check_by_schema(tool_name: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a tool that brings its own JSON schema: required, unknown, wrong type, not in the list."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    said = [f"`{name}` is missing" for name in schema.get("required") or () if name not in given]
    for name, value in given.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                said.append(f"`{name}` is not an argument{_did_you_mean(name, list(properties))}")
            continue
        rule = properties[name] if isinstance(properties[name], Mapping) else {}
        if not _fits(value, rule.get("type")) or (isinstance(rule.get("enum"), list) and value not in rule["enum"]):
            said.append(f"`{name}` should be {_type_words(rule)}, but got {_show(value)}")
    if said:
        raise ToolError(f"bad arguments for {tool_name}: {'; '.join(said)}. It takes: {describe(schema)}")
    return dict(given)


def describe(schema: Mapping[str, Any]) -> str:
    """The arguments in one line: `path: string, offset: integer = 1`."""
    required = set(schema.get("required") or ())
    out = []
    for name, rule in (schema.get("properties") or {}).items():
        rule = rule if isinstance(rule, Mapping) else {}
        default = "" if name in required else f" = {json.dumps(rule.get('default'), ensure_ascii=False)}"
        out.append(f"{name}: {_type_words(rule)}{default}")
    return ", ".join(out) or "nothing"


_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _fits(value: Any, wanted: Any) -> bool:
    names = wanted if isinstance(wanted, list) else [wanted]
    known = [_PYTHON_TYPES[n] for n in names if n in _PYTHON_TYPES]
    if not known:
        return True
    if isinstance(value, bool):
        return any(bool in types for types in known)
    return any(isinstance(value, types) for types in known)


def _type_words(rule: Mapping[str, Any]) -> str:
    if isinstance(rule.get("enum"), list):
        return "one of " + ", ".join(json.dumps(v, ensure_ascii=False) for v in rule["enum"])
    options = rule.get("anyOf")
    if isinstance(options, list):
        return " or ".join(_type_words(o) for o in options if isinstance(o, Mapping))
    wanted = rule.get("type", "any value")
    return " or ".join(wanted) if isinstance(wanted, list) else str(wanted)


def _unwrapped(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Models often send a list or an object as its JSON text: where that is what is wanted, take it for that."""
    out = dict(given)
    for name, value in given.items():
        rule = (schema.get("properties") or {}).get(name) or {}
        kinds = {rule.get("type"), *(o.get("type") for o in rule.get("anyOf") or ())}
        if isinstance(value, str) and kinds & {"array", "object"}:
            try:
                out[name] = json.loads(value)
            except ValueError:
                continue
    return out


def _annotated_note(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return next((x for x in get_args(hint)[1:] if isinstance(x, str)), "")
    return ""


def _without_titles(schema: Any) -> Any:
    """Generated titles only repeat the names, and every one of them costs tokens in every request."""
    if isinstance(schema, dict):
        return {
            k: {n: _without_titles(v) for n, v in x.items()} if k == "properties" else _without_titles(x)
            for k, x in schema.items()
            if not (k == "title" and isinstance(x, str))
        }
    return [_without_titles(x) for x in schema] if isinstance(schema, list) else schema


def _did_you_mean(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" (did you mean `{near[0]}`?)" if near else ""


def _show(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}…"
