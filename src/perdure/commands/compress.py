"""`/compress [focus]`: compacts now, and says before and after, or why nothing was done."""

from __future__ import annotations

from perdure.commands.command import Command, CommandContext, CommandResult, Level
from perdure.commands.figures import bar, tokens
from perdure.context.plain import CompactionReport

_HEADLINES = {
    "compacted": "Compacted.",
    "digest": "Compacted without a model: the handoff is a digest written by code.",
    "nothing_to_do": "Nothing to compact.",
    "failed": "The compaction failed; nothing has changed.",
}


def run(surface: CommandContext, argument: str) -> CommandResult:
    session_id = surface.agent.session_id
    if session_id is None:
        return CommandResult("Nothing to compact: nothing has been said yet.")
    messages_before = len(surface.store.history(session_id).entries)
    report = surface.agent.compress(argument or None)
    level: Level = "info" if report.outcome in ("compacted", "nothing_to_do") else "warning"
    return CommandResult("\n".join(_lines(report, messages_before)), level)


def _lines(report: CompactionReport, messages_before: int) -> list[str]:
    if report.outcome == "nothing_to_do" and report.message:
        return [report.message, *report.notices]
    lines = [_HEADLINES[report.outcome]]
    if report.outcome in ("compacted", "digest"):
        before, after = report.before_tokens, report.after_tokens
        whole = max(before, after)
        lines += [
            f"before {bar(before, whole)} {tokens(before):>9} tokens in {messages_before} messages",
            f"after  {bar(after, whole)} {tokens(after):>9} tokens in {len(report.messages)} messages",
            "Nothing is lost: /expand opens what the handoff stands for, /undo takes it back.",
        ]
    if report.message:
        lines.append(report.message)
    return [*lines, *report.notices]


COMPRESS = Command("compress", "/compress [focus]", "compact now, a topic in full detail if you name one", run)
