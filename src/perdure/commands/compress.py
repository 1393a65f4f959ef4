"""`/compress [focus]`: compacts now, and says before and after, or why nothing was done."""

from __future__ import annotations

from perdure.commands.command import Command, Level, Said, Surface
from perdure.commands.figures import bar, tokens
from perdure.context.plain import CompactionReport

_HEADLINES = {
    "compacted": "Compacted.",
    "digest": "Compacted without a model: the handoff is a digest written by code.",
    "nothing_to_do": "Nothing to compact.",
    "failed": "The compaction failed; nothing has changed.",
}


def run(surface: Surface, argument: str) -> Said:
    report = surface.agent.compress(argument or None)
    level: Level = "info" if report.outcome in ("compacted", "nothing_to_do") else "warning"
    return Said("\n".join(_lines(report)), level)


def _lines(report: CompactionReport) -> list[str]:
    lines = [_HEADLINES[report.outcome]]
    if report.outcome in ("compacted", "digest"):
        before, after = report.before_tokens, report.after_tokens
        lines += [
            f"before {bar(before, before)} {tokens(before)} tokens",
            f"after  {bar(after, before)} {tokens(after)} tokens in {len(report.messages)} messages",
        ]
    if report.message:
        lines.append(report.message)
    return [*lines, *report.notices]


COMPRESS = Command("compress", "/compress [focus]", "compact now, a topic in full detail if you name one", run)
