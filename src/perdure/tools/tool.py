"""What a tool is: a name, a schema the model reads, a handler, and a few claims about it.

    @tool(toolset="weather")
    def forecast(city: str, days: Annotated[int, "how far ahead"] = 3) -> str:
        "Looks up the forecast."

The schema comes from the signature (types, defaults, `Annotated` notes or an `Args:` section). A handler may be sync or
async; one with a parameter typed `ToolContext` is handed the call's surroundings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_type_hints

from perdure.core.messages import Part
from perdure.core.ports import OutputSink, StoredOutput
from perdure.tools.arguments import ArgumentModel
from perdure.tools.cancel import CancelToken

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
