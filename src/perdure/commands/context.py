"""`/context`: draws what fills the window."""

from __future__ import annotations

from perdure.commands.command import Command, CommandContext, CommandResult
from perdure.commands.figures import bar, gauge_line, measured, share, tokens

# As they lie in a request, first to last; a part that is empty is shown too, so that one sees what could be there.
_NAMES = {
    "system": "system",
    "tools": "tools",
    "memory": "memory",
    "head": "head",
    "handoff": "handoff",
    "tail": "tail",
    "outputs": "tool outputs",
}

_CELLS = 24


def run(surface: CommandContext, argument: str) -> CommandResult:
    gauge = measured(surface.agent)
    whole = gauge.window or gauge.tokens or 1
    rows = [(name, gauge.composition.get(part, 0)) for part, name in _NAMES.items()]
    lines = [f"{name:<12} {bar(n, whole, width=_CELLS)} {tokens(n):>9} {share(n / whole):>4}" for name, n in rows]
    free = max(0, whole - gauge.tokens)
    lines.append(f"{'free':<12} {' ' * _CELLS} {tokens(free):>9} {share(free / whole):>4}")
    return CommandResult("\n".join([gauge_line(gauge), "", *lines]))


CONTEXT = Command("context", "/context", "what fills the window", run)
