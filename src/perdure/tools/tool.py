"""A tool: its schema from type hints, its argument validation, its cancellation; and the registry of tools by name."""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from perdure.core.concurrency import CancelToken
from perdure.core.errors import ConfigError, ToolError
from perdure.core.messages import Part, clean
from perdure.core.ports import OutputSink, StoredOutput
from perdure.core.visibility import OWNER, AnyUser
from perdure.tools.json_schema import SchemaUndecided, schema_problem
from perdure.tools.return_values import to_json

_VALUE_CHARS = 60
# So many levels of objects inside a parameter are described.
_MOST_NESTED = 2


class ArgumentModel:
    """The parameters of a typed function: a JSON schema for the model, and validation of the arguments it sends.

    Raises ConfigError for a parameter of a type that has no schema.
    """

    def __init__(self, parameters: Mapping[str, tuple[Any, Any, str]], *, missing: object) -> None:
        from pydantic import Field  # slow to import, and only needed with tools

        self._names = list(parameters)
        fields: dict[str, Any] = {}
        for i, (name, (hint, default, note)) in enumerate(parameters.items()):
            about = note or _annotated_note(hint) or None
            expected = (
                Field(alias=name, description=about)
                if default is missing
                else Field(default, alias=name, description=about)
            )
            # Fields are numbered: a parameter may be named `schema` or `copy`, which a model reserves.
            fields[f"a{i}"] = (hint, expected)
        self._model, schema = _model_and_schema(fields)
        self.schema: dict[str, Any] = _without_titles(schema)

    def validate(self, tool_name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values to call the handler with. Raises ToolError naming the argument and its expected type."""
        from pydantic import ValidationError

        try:
            model = self._model.model_validate(arguments)
        except ValidationError as first:
            try:
                model = self._model.model_validate(_parse_json_strings(arguments, self.schema))
            except ValidationError:
                raise ToolError(self._explain(tool_name, arguments, first.errors())) from None
        return {name: getattr(model, f"a{i}") for i, name in enumerate(self._names)}

    def _explain(self, tool_name: str, arguments: Mapping[str, Any], errors: list[Any]) -> str:
        problems = []
        for e in errors:
            where = ".".join(str(x) for x in e["loc"])
            if e["type"] == "missing":
                problems.append(f"`{where}` is missing")
            elif e["type"] == "extra_forbidden":
                problems.append(f"`{where}` is not an argument{_did_you_mean(where, self._names)}")
            else:
                problems.append(f"`{where}`: {_lower_first(e['msg'])}, but got {_shorten(e['input'])}")
        return f"bad arguments for {tool_name}: {'; '.join(problems)}. It takes: {describe_schema(self.schema)}"


def _model_and_schema(fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a pydantic model of these fields and its schema. Raises ConfigError, which names the wrong field."""
    from pydantic import ConfigDict, PydanticUserError, create_model

    try:
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        model: Any = create_model("arguments", __config__=config, **fields)
        return model, model.model_json_schema(by_alias=True)
    except PydanticUserError as error:
        if len(fields) > 1:
            for name, definition in fields.items():
                _model_and_schema({name: definition})
        hint, field = next(iter(fields.values()))
        type_name = getattr(hint, "__name__", None) if isinstance(hint, type) else None
        is_typed_dict = "typing_extensions.TypedDict" in str(error)
        instead = "typing_extensions.TypedDict" if is_typed_dict else "str, int, list, dict, a dataclass or an Enum"
        raise ConfigError(
            f"parameter {field.alias!r} is of a type that a model cannot fill in ({type_name or hint}): write {instead}"
        ) from None


def validate_arguments(tool_name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Validate arguments against a JSON schema. Raises ToolError, with the problems a model makes most in plain words.

    Blocks for seconds if the schema is hostile; call it in a worker thread.
    """
    properties: Mapping[str, Any] = schema.get("properties") or {}
    problems = [f"`{name}` is missing" for name in schema.get("required") or () if name not in arguments]
    for name, value in arguments.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                problems.append(f"`{name}` is not an argument{_did_you_mean(name, list(properties))}")
            continue
        rule = properties[name] if isinstance(properties[name], Mapping) else {}
        enum = rule.get("enum")
        if not _matches_type(value, rule.get("type")) or (isinstance(enum, list) and value not in enum):
            problems.append(f"`{name}` should be {type_label(rule)}, but got {_shorten(value)}")
    if not problems:
        with suppress(SchemaUndecided):  # the tool decides
            problem = schema_problem(dict(arguments), schema, name="arguments")
            problems += [problem] if problem is not None else []
    if problems:
        raise ToolError(f"bad arguments for {tool_name}: {'; '.join(problems)}. It takes: {describe_schema(schema)}")
    return dict(arguments)


def describe_schema(schema: Mapping[str, Any]) -> str:
    """Format the parameters on one line: `path: string, offset: integer = 1`."""
    return ", ".join(_describe_properties(schema, schema.get("$defs"), depth=_MOST_NESTED)) or "nothing"


def _describe_properties(schema: Mapping[str, Any], definitions: object, *, depth: int) -> list[str]:
    required = set(schema.get("required") or ())
    out = []
    for name, rule in (schema.get("properties") or {}).items():
        rule = rule if isinstance(rule, Mapping) else {}
        default = "" if name in required else f" = {json.dumps(rule.get('default'), ensure_ascii=False)}"
        out.append(f"{name}: {type_label(rule, definitions, depth=depth)}{default}")
    return out


_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _matches_type(value: Any, expected: Any) -> bool:
    names = expected if isinstance(expected, list) else [expected]
    accepted = [_PYTHON_TYPES[n] for n in names if n in _PYTHON_TYPES]
    if not accepted:
        return True
    if isinstance(value, bool):
        return any(bool in types for types in accepted)
    return any(isinstance(value, types) for types in accepted)


def type_label(rule: Mapping[str, Any], definitions: object = None, *, depth: int = 0) -> str:
    """Return the type of a parameter, its values where only some are allowed, or what an object is made of.

    `definitions` are the `$defs` of the schema; objects are described `depth` levels deep.
    """
    rule = _resolve_reference(rule, definitions)
    if isinstance(rule.get("enum"), list):
        return "one of " + ", ".join(json.dumps(v, ensure_ascii=False) for v in rule["enum"])
    if "const" in rule:
        return json.dumps(rule["const"], ensure_ascii=False)
    options = rule.get("anyOf")
    if isinstance(options, list):
        return " or ".join(type_label(o, definitions, depth=depth) for o in options if isinstance(o, Mapping))
    expected = rule.get("type", "any value")
    label = " or ".join(expected) if isinstance(expected, list) else str(expected)
    if depth and expected == "object" and (inside := _describe_properties(rule, definitions, depth=depth - 1)):
        return f"object {{{', '.join(inside)}}}"
    return label


def _resolve_reference(rule: Mapping[str, Any], definitions: object) -> Mapping[str, Any]:
    """Return the definition that a rule refers to, where it does; one step, since a chain may be a circle."""
    name = str(rule.get("$ref", "")).removeprefix("#/$defs/")
    definition = definitions.get(name) if isinstance(definitions, Mapping) else None
    return definition if isinstance(definition, Mapping) else rule


def _parse_json_strings(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parse arguments that hold JSON text where the schema expects a list or an object: models often send those."""
    out = dict(arguments)
    for name, value in arguments.items():
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
    """Remove generated titles: they repeat the names, and each one costs tokens in every request."""
    if isinstance(schema, dict):
        return {
            k: {n: _without_titles(v) for n, v in x.items()} if k == "properties" else _without_titles(x)
            for k, x in schema.items()
            if not (k == "title" and isinstance(x, str))
        }
    return [_without_titles(x) for x in schema] if isinstance(schema, list) else schema


def _lower_first(text: str) -> str:
    """Return the text with its first letter in lower case."""
    return f"{text[:1].lower()}{text[1:]}"


def _did_you_mean(name: str, names: list[str]) -> str:
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" (did you mean `{matches[0]}`?)" if matches else ""


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…"


NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class OutputPreview:
    """Preview of a tool's output so far: the start, the end where that is not all of it, and the number of lines."""

    first: str
    last: str
    lines: int


def _ignore_preview(preview: OutputPreview) -> None:
    """Ignore the event: there is no listener."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of a tool call beside its arguments: conversation and user, output sink, cancellation token."""

    call_id: str
    task_id: str = ""
    conversation_id: str = ""
    user: AnyUser = OWNER
    cancel: CancelToken = field(default_factory=CancelToken)
    # Opens a sink for output too large for memory; None without an output store.
    open_sink: Callable[[], OutputSink] | None = None
    # The most characters of a result that the model's window has room for.
    max_result_chars: int = 100_000
    # Shows the user what a running tool has printed so far; from any thread, a few times a second at most.
    show_output: Callable[[OutputPreview], None] = _ignore_preview

    @property
    def user_key(self) -> str:
        """The key that the user's data is stored under; the owner's is empty."""
        return self.user.stored_key


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The result of a call: text plus status, exit code, stored output and images."""

    text: str
    is_error: bool = False
    # The call never ran: the user, the guard or a hook refused it.
    is_refused: bool = False
    # Set for a command that ran to completion.
    exit_code: int | None = None
    # Set when the handler stored the whole output itself; `text` is then a preview.
    stored: StoredOutput | None = None
    # Where the text can be read again without a stored copy (a path and a range).
    source: str | None = None
    # Images and other content parts, appended to the text.
    parts: tuple[Part, ...] = ()
    # The lines that the call removed from a file and added to it, for the user; the model does not read them.
    diff: tuple[str, ...] = ()


def to_reply(value: Any) -> ToolReply:
    """Convert the return value of a handler to a reply: bytes are decoded, other values become JSON."""
    if isinstance(value, ToolReply):
        return value if type(value.text) is str else replace(value, text=to_reply(value.text).text)
    if isinstance(value, str):
        # A plain string: the methods of a subclass are the tool's code.
        return ToolReply(clean(str.__str__(value)))
    if isinstance(value, bytes | bytearray):
        return ToolReply(bytes(value).decode("utf-8", "replace"))
    if value is None:
        return ToolReply("(done, no output)")
    return ToolReply(clean(to_json(value)))


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool definition. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Callable[..., Any]
    toolset: str = "custom"
    # Needs the user's attention: the calls of its message run sequentially.
    is_interactive: bool = False
    # Requires approval before every call.
    is_dangerous: bool = False
    is_read_only: bool = False
    # Works on the conversation's own state only: the plan, memory, questions, delegated agents.
    is_internal: bool = False
    # Each call may change what the next one reads: the calls of one message run in their order.
    is_ordered: bool = False
    # Which argument holds shell commands, paths written, or paths read (`tools.call_targets`): all are checked for
    # approval before the call runs.
    command_parameter: str | None = None
    written_path_parameter: str | None = None
    read_path_parameter: str | None = None
    # Maximum characters of one result; None: the default; 0: no limit, the tool paginates its own output.
    max_result_chars: int | None = None
    timeout_s: float | None = None
    # Name of the parameter that receives the ToolContext, if any.
    context_parameter: str | None = None
    arguments: ArgumentModel | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"tool name {self.name!r}: 1 to 64 letters, digits, _ or - are allowed")
        properties = self.parameters.get("properties")
        if isinstance(properties, Mapping):
            for claim in ("command_parameter", "written_path_parameter", "read_path_parameter"):
                self._check_claim(claim, list(properties))

    def _check_claim(self, claim: str, names: list[str]) -> None:
        """Raise ConfigError if a claim names a parameter that the tool does not have: it would not be judged."""
        name = getattr(self, claim)
        if name is not None and name not in names:
            instead = suggest_name(str(name), names) if names else "it has no parameters"
            raise ConfigError(f"tool {self.name!r}: {claim}={name!r} is not one of its parameters; {instead}")

    @property
    def schema(self) -> dict[str, Any]:
        """Return the tool as a Chat Completions function schema."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def tool_from_function(function: Callable[..., Any], **claims: Any) -> Tool:
    """Build a tool from a typed function with a docstring; `claims` set fields of Tool, such as `is_read_only`."""
    # Methods are cached per class: a gateway builds the same tools for every conversation.
    spec = _inspect_method(function.__func__) if inspect.ismethod(function) else _inspect_function(function)
    fields = {"name": function.__name__, "description": spec.about, **claims}
    return Tool(
        parameters=spec.arguments.schema,
        handler=function,
        context_parameter=spec.context_parameter,
        arguments=spec.arguments,
        **fields,
    )


@dataclass(frozen=True, slots=True)
class _FunctionSpec:
    """Description and parameters parsed from a function's signature and docstring."""

    about: str
    arguments: ArgumentModel
    context_parameter: str | None


@lru_cache(maxsize=256)
def _inspect_method(function: Callable[..., Any]) -> _FunctionSpec:
    return _inspect_function(function, is_method=True)


def _inspect_function(function: Callable[..., Any], *, is_method: bool = False) -> _FunctionSpec:
    hints = get_type_hints(function, include_extras=True)
    about, notes = _read_docstring(inspect.getdoc(function) or "")
    accepted, context_parameter = {}, None
    for p in list(inspect.signature(function).parameters.values())[is_method:]:
        if hints.get(p.name) is ToolContext:
            context_parameter = p.name
        elif p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise ValueError(f"{function.__name__}: parameter {p.name!r} must be an ordinary named parameter")
        else:
            accepted[p.name] = (hints.get(p.name, Any), p.default, notes.get(p.name, ""))
    try:
        arguments = ArgumentModel(accepted, missing=inspect.Parameter.empty)
    except ConfigError as error:
        raise ConfigError(f"tool {function.__name__!r}: {error}") from None
    return _FunctionSpec(about, arguments, context_parameter)


def tool(**claims: Any) -> Callable[[Callable[..., Any]], Tool]:
    """Return a decorator that turns a function into a tool; see `tool_from_function`."""
    return lambda function: tool_from_function(function, **claims)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and the `Args:` notes by parameter."""
    about, _, section = text.partition("\nArgs:\n")
    notes: dict[str, str] = {}
    current = ""
    for line in section.splitlines():
        if line.strip() and not line.startswith((" ", "\t")):
            break
        if match := re.match(r"\s+(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line):
            current = match.group(1)
            notes[current] = match.group(2).strip()
        elif current and line.strip():
            notes[current] += " " + line.strip()
    return about.strip(), notes


FIND_TOOLS = "find_tools"
# In the message about a name that no tool has.
_MOST_NAMED, _MOST_NEAREST, _LONGEST_NAME = 20, 5, 64


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return the names most similar to a mistyped one, or all of them."""
    there = sorted(names)
    matches = difflib.get_close_matches(name, there, n=1)
    return f"did you mean {matches[0]!r}?" if matches else f"there are: {', '.join(there)}"


class ToolRegistry:
    """Tools by name. Registering a name again replaces the tool, so a user's own version wins."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._off: set[str] = set()
        for t in tools:
            self.add(t)

    def add(self, tool: Tool | Callable[..., Any]) -> Tool:
        """Register a tool, or a typed function as a tool."""
        registered = tool if isinstance(tool, Tool) else tool_from_function(tool)
        self._tools[registered.name] = registered
        return registered

    def switch_off(self, toolset: str) -> None:
        """Hide a toolset, or a single tool by name, from the model."""
        self._off.add(toolset)

    def names(self) -> frozenset[str]:
        """Return the names of all tools and toolsets, disabled ones included."""
        return frozenset(n for t in self._tools.values() for n in (t.name, t.toolset))

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove every tool but these, by name or toolset. Raises ConfigError for an unknown name."""
        selected = set(names)
        for name in sorted(selected - self.names()):
            raise ConfigError(f"there is no tool or toolset {name!r}; {suggest_name(name, self.names())}")
        self._tools = {n: t for n, t in self._tools.items() if selected & {t.name, t.toolset}}

    def switch_on(self, toolset: str) -> None:
        self._off.discard(toolset)

    def without(self, *names: str) -> ToolRegistry:
        """Return a copy of the registry without these tools."""
        copy = ToolRegistry(t for t in self._tools.values() if t.name not in names)
        copy._off = set(self._off)
        return copy

    def find(self, name: str) -> Tool:
        """Return the tool of that name. Raises ToolError with a suggestion."""
        registered = self._tools.get(name)
        if registered is not None and self._is_on(registered):
            return registered
        if registered is not None:
            raise ToolError(f"tool {name!r} is disabled here; {self._nearest(name)}")
        raise ToolError(f"there is no tool {name[:_LONGEST_NAME]!r}; {self._nearest(name)}")

    def schemas(self) -> list[dict[str, Any]]:
        """Return the schemas for the model in registration order: a stable order keeps the prompt cache valid."""
        return [t.schema for t in self]

    def toolsets(self) -> dict[str, bool]:
        """Return every toolset and whether it is enabled."""
        return {t.toolset: t.toolset not in self._off for t in self._tools.values()}

    def __iter__(self) -> Iterator[Tool]:
        return (t for t in self._tools.values() if self._is_on(t))

    def __contains__(self, name: object) -> bool:
        return any(t.name == name for t in self)

    def _is_on(self, tool: Tool) -> bool:
        return tool.toolset not in self._off and tool.name not in self._off

    def _nearest(self, name: str) -> str:
        """Return the tool names most similar to an unknown one: a few, since there may be thousands."""
        names = [t.name for t in self]
        if (matches := difflib.get_close_matches(name[:_LONGEST_NAME], names, n=1, cutoff=0.5)) and name:
            return f"did you mean {matches[0]!r}?"
        if len(names) <= _MOST_NAMED:
            return f"available: {', '.join(names) or 'none'}"
        nearest = difflib.get_close_matches(name[:_LONGEST_NAME], names, n=_MOST_NEAREST, cutoff=0.0)
        search = "; find_tools finds others by what they do" if FIND_TOOLS in self else ""
        return f"the nearest of {len(names):,} are: {', '.join(nearest)}{search}"
