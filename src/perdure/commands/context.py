"""`/context`: draws what fills the window."""

from __future__ import annotations

from perdure.commands.command import Command, Said, Surface
from perdure.commands.figures import bar, gauge_line, share, tokens


def run(surface: Surface, argument: str) -> Said:
    gauge = surface.agent.gauge
    parts = {k: v for k, v in gauge.composition.items() if v}
    if not parts:
        return Said("The context is empty.")
    whole = gauge.window or sum(parts.values())
    lines = [f"{name:<8} {bar(n, whole)} {tokens(n):>9}  {share(n / whole):>4}" for name, n in parts.items()]
    return Said("\n".join([gauge_line(gauge), "", *lines]))


CONTEXT = Command("context", "/context", "what fills the window", run)
