"""A tool call at a glance: its target, its arguments within bounds, how it ended, and where its output is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.messages import Message, ToolCall, clean
from perdure.store.records import ToolRun
from perdure.tools.runtime import INTERRUPTED
from perdure.web.shapes import ToolCallRow

_TARGET_CHARS = 200
_ARGUMENT_CHARS = 2_000
_MOST_ITEMS = 100
_DEEPEST = 8
# The argument that says most about a call, the best first.
_TELLING = ("command", "path", "pattern", "query", "url", "question", "task", "action", "target")
# How a budget says, in the result that the model reads, where the whole output lies: at the start of the result, behind
# one line of the tool's own at most (`[exit 0]`). Anywhere else it is text that somebody printed.
_KEPT = re.compile(
    r"(\[[^\n]{0,200}\]\n)?<persisted-output>\nThe output is ([\d,]{1,20}) characters [^\n]{0,200}? kept at "
    r"output:(\w{1,60})[^\n]{0,300}\n[^\n]{0,300}\n\n"
)
_KEPT_END = "\n</persisted-output>"
_EXIT = re.compile(r"\[exit (\d{1,3})\](?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class KeptOutput:
    id: str
    chars: int
    # Both ends of the output, without the directions meant for the model.
    preview: str


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
    if found is None:
        return None
    preview = (found[1] or "") + text[found.end() :].removesuffix(_KEPT_END)
    return KeptOutput(found[3], int(found[2].replace(",", "")), preview)


def guessed_run(message: Message) -> ToolRun:
    """How a call ended by the words of its result alone: for conversations older than the record of it."""
    text = message.text
    if text == INTERRUPTED:
        return ToolRun(state="interrupted")
    if message.name in (None, "terminal") and (found := _EXIT.match(text)):
        code = int(found[1])
        return ToolRun(state="failed" if code else "completed", exit_code=code)
    return ToolRun(state="failed" if text.startswith("Error: ") else "completed")


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
