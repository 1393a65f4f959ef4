"""Parse the parameters that both OpenAI endpoints take: model, client tools, answer format, limits.

Chat Completions and Responses write the same things differently; `ParameterNames` has the differences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.turn_options import AUTO, REQUIRED, AnswerFormat, TurnOptions
from perdure.gateway.errors import ApiError, ApiException
from perdure.tools.json_schema import find_schema_error
from perdure.tools.tool import NAME

MODEL = "perdure"
MAX_NAME_CHARS = 200
_ITEM_ID = re.compile(r"(?:msg|rs|fc)_(?P<turn>t_[a-z0-9]+)_[0-9]+")
_MAX_TOOLS = 512
# Calls of one message are matched with their results one by one.
MAX_CALLS = 512
_MAX_SCHEMA_CHARS = 200_000
_MAX_STOPS = 16
_MAX_DEPTH = 100

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ParameterNames:
    """Names of the shared request parameters on one endpoint."""

    max_tokens: tuple[str, ...]
    answer_format: str
    # Functions are objects of their own inside a tool, and formats inside a format.
    is_nested: bool


CHAT = ParameterNames(("max_completion_tokens", "max_tokens"), "response_format", is_nested=True)
RESPONSES = ParameterNames(("max_output_tokens",), "text.format", is_nested=False)


def invalid_request(message: str, param: str | None = None, *, code: str = "invalid_request") -> ApiException:
    return ApiException(ApiError(400, code, message, param=param))


def unsupported_error(name: str, reason: str) -> ApiException:
    return invalid_request(f"{name} is not supported: {reason}", name, code="unsupported_parameter")


def check_model(body: Body) -> None:
    """Raise ApiException unless the request names the agent as its model."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise invalid_request(f"model is required; available: {MODEL}", "model")
    if model != MODEL:
        api_error = ApiError(404, "model_not_found", f"model not found; available: {MODEL}", param="model")
        raise ApiException(api_error)


def response_id_of(turn_id: str) -> str:
    return f"resp_{turn_id}"


def item_id_of(kind: str, turn_id: str, index: int) -> str:
    return f"{kind}_{turn_id}_{index}"


def response_id_of_item(item_id: object) -> str | None:
    """Return the id of the response that an output item belongs to; None for an id not issued here."""
    match = _ITEM_ID.fullmatch(item_id) if isinstance(item_id, str) and len(item_id) <= MAX_NAME_CHARS else None
    return response_id_of(match["turn"]) if match is not None else None


def parse_flag(body: Body, name: str, *, default: bool = False) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid_request(f"{name} must be true or false", name)
    return default if value is None else value


def user_name(body: Body) -> str | None:
    user = body.get("user")
    if user is not None and (not isinstance(user, str) or len(user) > MAX_NAME_CHARS):
        raise invalid_request(f"user must be a string of at most {MAX_NAME_CHARS} characters", "user")
    return user or None


def stop_sequences(body: Body) -> tuple[str, ...]:
    """Return the texts before which the answer ends."""
    stop = body.get("stop")
    texts = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(texts, list) or len(texts) > _MAX_STOPS or not all(isinstance(t, str) for t in texts):
        raise invalid_request(f"stop must be a string or a list of at most {_MAX_STOPS} strings", "stop")
    return tuple(t for t in texts if t)


def parse_options(body: Body, names: ParameterNames) -> tuple[TurnOptions, tuple[str, ...]]:
    """Return the turn options of a request, and the kinds of its tools that are ignored. Raises ApiException."""
    tools, unused = _tools(body.get("tools"), names)
    tools, choice = _apply_choice(tools, body.get("tool_choice"))
    options = TurnOptions(
        tools=tuple(tools.values()),
        tool_choice=choice,
        # The agent's own calls are its own business.
        allows_parallel_calls=parse_flag(body, "parallel_tool_calls", default=True) or not tools,
        answer_format=_answer_format(body, names),
        max_tokens=_max_tokens(body, names),
        temperature=_temperature(body),
    )
    return options, unused


def _max_tokens(body: Body, names: ParameterNames) -> int | None:
    for name in names.max_tokens:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise invalid_request(f"{name} must be a positive integer", name)
        return value
    return None


def _temperature(body: Body) -> float | None:
    value = body.get("temperature")
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 2:
        raise invalid_request("temperature must be a number from 0 to 2", "temperature")
    return float(value)


# -- tools -------------------------------------------------------------------------------------------------------------


def _tools(raw: object, names: ParameterNames) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """Return the client's functions by name, and the kinds of its other tools, which only OpenAI's servers can run."""
    if raw is None:
        return {}, ()
    if not isinstance(raw, list) or len(raw) > _MAX_TOOLS:
        raise invalid_request(f"tools must be a list of at most {_MAX_TOOLS} tools", "tools")
    functions: dict[str, dict[str, Any]] = {}
    others: list[str] = []
    for i, tool in enumerate(raw):
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if not isinstance(tool, Mapping) or not isinstance(kind, str):
            raise invalid_request(f"tools[{i}] must be an object with a type", f"tools[{i}]")
        if kind != "function":
            others.append(f"tools[{i}] ({kind[:40]!a})")
            continue
        raw_function, path = (tool.get("function"), ".function") if names.is_nested else (tool, "")
        function = _function(raw_function, f"tools[{i}]{path}")
        if function["name"] in functions:
            raise invalid_request(f"tools[{i}]: two tools are called {function['name']!r}", f"tools[{i}]")
        functions[function["name"]] = {"type": "function", "function": function}
    return functions, tuple(others)


def _function(raw: object, path: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise invalid_request(f"{path} must be an object", path)
    name, description, parameters = raw.get("name"), raw.get("description"), raw.get("parameters")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise invalid_request(f"{path}: a name has 1 to 64 letters, digits, _ or -", path)
    if description is not None and not isinstance(description, str):
        raise invalid_request(f"{path}: description must be a string", path)
    schema = _schema({"type": "object", "properties": {}} if parameters is None else parameters, f"{path}.parameters")
    return {"name": name, "description": description or "", "parameters": schema}


def _schema(raw: object, path: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise invalid_request(f"{path} must be a JSON schema", path)
    if not _is_shallow(raw, _MAX_DEPTH) or len(json.dumps(raw)) > _MAX_SCHEMA_CHARS:
        raise invalid_request(f"{path} is too large: {_MAX_SCHEMA_CHARS:,} characters, {_MAX_DEPTH} levels", path)
    if (problem := find_schema_error(raw, path)) is not None:
        raise invalid_request(f"this JSON schema is not valid: {problem}", path, code="invalid_schema")
    return dict(raw)


def _is_shallow(value: object, levels: int) -> bool:
    if levels <= 0:
        return False
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return all(_is_shallow(item, levels - 1) for item in items)


def _apply_choice(tools: dict[str, dict[str, Any]], choice: object) -> tuple[dict[str, dict[str, Any]], str]:
    """Apply `tool_choice`: return the tools that may be called, and AUTO, REQUIRED or the name of the one to call."""
    if choice is None or choice == AUTO:
        return tools, AUTO
    if choice == "none":
        return {}, AUTO
    if choice == REQUIRED:
        if not tools:
            raise invalid_request("tool_choice is required, but there are no tools", "tool_choice")
        return tools, REQUIRED
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if isinstance(choice, Mapping) and kind == "allowed_tools":
        listed = choice.get("allowed_tools")
        allowed = listed if isinstance(listed, Mapping) else choice
        names = [_chosen_name(tool) for tool in allowed.get("tools") or ()]
        chosen = {name: _known_tool(tools, name) for name in names}
        return chosen, REQUIRED if allowed.get("mode") == REQUIRED and chosen else AUTO
    if isinstance(choice, Mapping) and kind == "function":
        name = _chosen_name(choice)
        _known_tool(tools, name)
        return tools, name
    raise invalid_request("tool_choice must be none, auto, required or one of the tools", "tool_choice")


def _chosen_name(choice: object) -> str:
    function = choice.get("function") if isinstance(choice, Mapping) else None
    holder = function if isinstance(function, Mapping) else choice
    return str(holder.get("name")) if isinstance(holder, Mapping) else str(choice)


def _known_tool(tools: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in tools:
        raise invalid_request(f"tool_choice names {name!r}, which is not among the tools", "tool_choice")
    return tools[name]


# -- format ------------------------------------------------------------------------------------------------------------


def _answer_format(body: Body, names: ParameterNames) -> AnswerFormat | None:
    where = names.answer_format
    raw: Any = body
    for step in where.split("."):
        raw = raw.get(step) if isinstance(raw, Mapping) else None
    kind = raw.get("type") if isinstance(raw, Mapping) else None
    if raw is None or kind == "text":
        return None
    if kind == "json_object":
        return AnswerFormat()
    if not isinstance(raw, Mapping) or kind != "json_schema":
        raise unsupported_error(where, "its type must be text, json_object or json_schema")
    spec = raw.get("json_schema") if names.is_nested else raw
    if not isinstance(spec, Mapping):
        raise invalid_request(f"{where}.json_schema must be an object", where)
    name, strict = spec.get("name"), spec.get("strict")
    if name is not None and (not isinstance(name, str) or not NAME.fullmatch(name)):
        raise invalid_request(f"{where}: a name has 1 to 64 letters, digits, _ or -", where)
    path = f"{where}.json_schema.schema" if names.is_nested else f"{where}.schema"
    schema = _schema(spec.get("schema"), path) if spec.get("schema") is not None else {}
    return AnswerFormat(schema, name or "answer", strict if isinstance(strict, bool) else None)
