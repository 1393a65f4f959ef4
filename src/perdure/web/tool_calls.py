"""A tool call at a glance: its target, its arguments within bounds, and where its output is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.messages import ToolCall, clean
from perdure.web.shapes import ToolCallRow

_TARGET_CHARS = 200
_ARGUMENT_CHARS = 2_000
_MOST_ITEMS = 100
_DEEPEST = 8
# The argument that says most about a call, the best first.
_TELLING = ("command", "path", "pattern", "query", "url", "question", "task", "action", "target")
# How a budget says, in the result that the model reads, where the whole output lies.
_KEPT = re.compile(
    r"<persisted-output>\nThe output is ([\d,]{1,20}) characters [^\n]{0,200}? kept at output:(\w{1,60})"
)


@dataclass(frozen=True, slots=True)
class KeptOutput:
    id: str
    chars: int


def tool_call_row(call: ToolCall) -> ToolCallRow:
    given = call.parsed_arguments()
    arguments = call.arguments if given is None else given
    shown = within(arguments)
    return ToolCallRow(id=call.id, name=call.name, target=target_of(call), arguments=shown, is_cut=shown != arguments)


def target_of(call: ToolCall) -> str:
    """The one argument worth reading at a glance, on one line."""
    given = call.parsed_arguments() or {}
    telling = [v for k in _TELLING if isinstance(v := given.get(k), str) and v.strip()]
    shown = " ".join(clean(telling[0][: 4 * _TARGET_CHARS]).split()) if telling else ""
    return shown if len(shown) <= _TARGET_CHARS else f"{shown[: _TARGET_CHARS - 1]}…"


def kept_output(text: str) -> KeptOutput | None:
    """The output a result stands for; None where the result is all there is."""
    found = _KEPT.match(text)
    return KeptOutput(found[2], int(found[1].replace(",", ""))) if found else None


def within(value: Any, depth: int = 0) -> Any:
    """The same value with what is too long for a glance cut off."""
    if isinstance(value, str):
        # JSON can spell half a character, which nothing else can: it is replaced.
        return clean(value) if len(value) <= _ARGUMENT_CHARS else f"{clean(value[:_ARGUMENT_CHARS])}…"
    if depth >= _DEEPEST and isinstance(value, Mapping | list):
        return "…"
    if isinstance(value, Mapping):
        return {clean(str(k)[:_ARGUMENT_CHARS]): within(v, depth + 1) for k, v in list(value.items())[:_MOST_ITEMS]}
    if isinstance(value, list):
        return [within(v, depth + 1) for v in value[:_MOST_ITEMS]]
    return value
