"""One line for each tool: what it was called with, how long it took, how much it said, where the rest is kept."""

from __future__ import annotations

import re

from perdure.cli.ink import Style, safe
from perdure.core.events import OutputSpilled, ToolFinished
from perdure.core.messages import ToolCall

_TARGET_CHARS = 60
# How the guard tells the model that nobody allowed a call.
_NOT_ALLOWED = re.compile(r"Error: \S+ was not run, (?:the person said no|nobody is here)")
_KEPT = re.compile(r"<persisted-output>\nThe output is ([\d,]+) characters.*?kept at (output:\w+)")
# The argument that says most about a call, the best first.
_TELLING = ("command", "path", "pattern", "query", "url", "question", "task", "action", "target")


def target_of(call: ToolCall) -> str:
    """What a call is about, shortened to part of a line."""
    given = call.parsed_arguments() or {}
    for key in _TELLING:
        if isinstance(value := given.get(key), str) and value.strip():
            shown = " ".join(value.split())
            return shown if len(shown) <= _TARGET_CHARS else f"{shown[: _TARGET_CHARS - 1]}…"
    return ""


def running_line(call: ToolCall, seconds: float) -> str:
    return f"● {_named(call)} … {seconds:.0f} s"


def finished_line(event: ToolFinished, spilled: OutputSpilled | None, ink: Style) -> str:
    """`● terminal pytest tests/ · 0.8 s · 3,204 characters`."""
    mark = ink.bad("✗") if event.is_error else ink.good("●")
    text = event.result.text
    size, address = (spilled.chars, spilled.address) if spilled is not None else _kept(text) or (len(text), "")
    figures = [f"{event.seconds:.1f} s", f"{size:,} characters"]
    if event.is_error:
        figures.insert(0, "not allowed" if _NOT_ALLOWED.match(text) else "failed")
    if address:
        figures.append(f"kept at {address}")
    return f"{mark} {_named(event.call)} {ink.dim('· ' + ' · '.join(figures))}\n"


def spilled_line(event: OutputSpilled, ink: Style) -> str:
    return ink.dim(f"  {event.call.name}: {event.chars:,} characters kept at {event.address}") + "\n"


def _kept(text: str) -> tuple[int, str] | None:
    """Size and address of an output that its tool kept by itself, while it ran; None for one that is shown whole."""
    found = _KEPT.search(text)
    return (int(found[1].replace(",", "")), found[2]) if found else None


def _named(call: ToolCall) -> str:
    return safe(f"{call.name} {target_of(call)}").rstrip()
