"""A tool: its schema from type hints, its argument validation, its cancellation."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from perdure.core.errors import ToolError
from perdure.core.messages import Part
from perdure.core.ports import OutputSink, StoredOutput


class CancelToken:
    """Set once, from any thread; every callback runs exactly once, also one hung on too late."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_cancelled(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Sleeps until cancelled or the time is up; True when cancelled."""
        return self._event.wait(timeout_s)

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Runs `callback` when cancelled, at once if that has happened; returns what takes it off again."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return lambda: self._forget(callback)
        callback()
        return lambda: None

    def cancel(self) -> None:
        with self._lock:
            if self._event.is_set():
                return
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _forget(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


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


NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What surrounds one call: whose it is, where large output may go, and how it is told to stop."""

    call_id: str
    task_id: str = ""
    conversation_id: str = ""
    user_key: str = ""
    cancel: CancelToken = field(default_factory=CancelToken)
    # Opens a place for output too large to hold in memory; None where nothing is stored.
    open_sink: Callable[[], OutputSink] | None = None


@dataclass(frozen=True, slots=True)
class ToolReply:
    """A result that says more than its text."""

    text: str
    is_error: bool = False
    # The call never ran: somebody, or a rule, said no.
    is_refused: bool = False
    # Of a command that ran to its end.
    exit_code: int | None = None
    # Set where the handler has stored the whole output itself; `text` is then its preview.
    stored: StoredOutput | None = None
    # What was read, where the whole can be had again without a copy (a path and where in it).
    source: str | None = None
    # Pictures and the like, behind the text.
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Callable[..., Any]
    toolset: str = "custom"
    # Takes the person's attention: forces one call at a time.
    is_interactive: bool = False
    # Always asks before it runs, whatever its arguments.
    is_dangerous: bool = False
    is_read_only: bool = False
    # Which argument is a shell command, a file that is written, or one that is read: looked at before the call runs.
    command_parameter: str | None = None
    written_path_parameter: str | None = None
    read_path_parameter: str | None = None
    # Most characters of one result; None: the default. 0: the tool pages itself, no limit (H2).
    max_result_chars: int | None = None
    timeout_s: float | None = None
    # Which parameter takes the ToolContext, if any.
    context_parameter: str | None = None
    arguments: ArgumentModel | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"tool name {self.name!r}: 1 to 64 letters, digits, _ or - are allowed")

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as a Chat Completions function schema."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def tool_from_function(function: Callable[..., Any], **claims: Any) -> Tool:
    """The tool that a typed function with a docstring is; `claims` are fields of Tool."""
    # A method is described once for all objects of its class: a gateway makes the same tools a thousand times.
    read = _described_method(function.__func__) if inspect.ismethod(function) else _described(function)
    fields = {"name": function.__name__, "description": read.about, **claims}
    return Tool(
        parameters=read.arguments.schema,
        handler=function,
        context_parameter=read.context_parameter,
        arguments=read.arguments,
        **fields,
    )


@dataclass(frozen=True, slots=True)
class _Described:
    """What a signature says."""

    about: str
    arguments: ArgumentModel
    context_parameter: str | None


@lru_cache(maxsize=256)
def _described_method(function: Callable[..., Any]) -> _Described:
    return _described(function, is_method=True)


def _described(function: Callable[..., Any], *, is_method: bool = False) -> _Described:
    hints = get_type_hints(function, include_extras=True)
    about, notes = _read_docstring(inspect.getdoc(function) or "")
    takes, context_parameter = {}, None
    parameters = list(inspect.signature(function).parameters.values())[is_method:]
    for p in parameters:
        if hints.get(p.name) is ToolContext:
            context_parameter = p.name
        elif p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise ValueError(f"{function.__name__}: parameter {p.name!r} must be an ordinary named one")
        else:
            takes[p.name] = (hints.get(p.name, Any), p.default, notes.get(p.name, ""))
    return _Described(about, ArgumentModel(takes, missing=inspect.Parameter.empty), context_parameter)


def tool(**claims: Any) -> Callable[[Callable[..., Any]], Tool]:
    """The decorator form of `tool_from_function`."""
    return lambda function: tool_from_function(function, **claims)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What the function is about, and the notes of its `Args:` section by parameter."""
    about, _, section = text.partition("\nArgs:\n")
    notes: dict[str, str] = {}
    current = ""
    for line in section.splitlines():
        if line.strip() and not line.startswith((" ", "\t")):
            break
        if found := re.match(r"\s+(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line):
            current = found.group(1)
            notes[current] = found.group(2).strip()
        elif current and line.strip():
            notes[current] += " " + line.strip()
    return about.strip(), notes
