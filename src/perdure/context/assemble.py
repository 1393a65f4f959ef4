"""The last phase: sections, exact facts and the user's own words become one handoff between head and tail (D6, E12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perdure.context.facts import FactLines, Ledger
from perdure.context.handoff import SECTIONS, Handoff, render
from perdure.context.sections import shorten
from perdure.core.messages import Message, Role
from perdure.models.tokens import estimate_text
from perdure.redaction import redact

FACTS_HEADING = "Exact values from the compacted messages:"
FILES_HEADING = "Also touched:"
# What a token of handoff text comes to in characters, for those who count in them.
CHARS_PER_TOKEN = 3.4
# Of a handoff bounded as a whole, the share that is told rather than quoted as facts.
TOLD_SHARE = 0.45
# Of the facts, the share kept for those that no message in sight tells.
UNSEEN_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Shares:
    """How long each part of a handoff may be; the whole is bounded only where a bound is given."""

    told_tokens: int
    facts_tokens: int
    # Code has no urge to round things off: its digest is never longer than half of what it stands for.
    digest_tokens: int
    whole_tokens: int | None = None
    whole_chars: int | None = None
    is_short: bool = False

    @property
    def digest_chars(self) -> int:
        return int(self.digest_tokens * CHARS_PER_TOKEN)


def share_out(
    *,
    middle_tokens: int,
    summary_cap_tokens: int,
    facts_tokens: int,
    summary_ratio: float = 0.20,
    summary_min_tokens: int = 2_000,
    whole_tokens: int | None = None,
    whole_chars: int | None = None,
    is_short: bool = False,
) -> Shares:
    """The lengths for a middle of this size (C2, C9, D5). What is added is never longer than what it stands for."""
    told = min(summary_cap_tokens, max(summary_min_tokens, int(middle_tokens * summary_ratio)))
    facts = min(facts_tokens, middle_tokens // 2)
    if whole_tokens is not None:
        told = min(told, whole_tokens)
        facts = min(facts, whole_tokens)
    if whole_chars is not None:
        told = min(told, max(1, int(whole_chars * TOLD_SHARE / CHARS_PER_TOKEN)))
        facts = max(1, int(whole_chars / CHARS_PER_TOKEN) - told)
    return Shares(told, facts, min(told, middle_tokens // 2), whole_tokens, whole_chars, is_short)


def compose(
    told: Mapping[str, str],
    ledger: Ledger,
    *,
    active_task: str,
    instructions: Sequence[str],
    shares: Shares,
    shown: str,
    frame: Handoff,
) -> Handoff:
    """The handoff: what was told, shortened to its cap; then the facts it dropped, unless `shown` has them anyway."""
    sections = {name: redact(told.get(name, "")) for name in SECTIONS if name != "Active Task"}
    sections["Constraints & Preferences"] = _with_instructions(sections["Constraints & Preferences"], instructions)
    sections = shorten(sections, shares.told_tokens, size=estimate_text)
    sections["Active Task"] = active_task
    lines = _facts(sections, ledger, shares, shown, frame)
    for name, heading, added in (
        ("Relevant Files", FILES_HEADING, lines.files),
        ("Critical Context", FACTS_HEADING, lines.critical),
    ):
        if added:
            before = sections.get(name, "")
            sections[name] = "\n".join((*((before, heading) if before else ()), *map(redact, added)))
    return _bounded(frame.with_sections(sections), shares)


def handoff_message(text: str, before: Message | None, after: Message | None) -> Message:
    """The handoff in the role that fits between its neighbours; where none does, in that of the message behind it,
    with which the projection then merges it.
    """
    # Behind a user's message or a result only a reply may stand; but a history never ends in a reply of ours.
    is_reply = before is not None and before.role in ("user", "tool") and after is not None
    role: Role = "assistant" if is_reply else "user"
    return Message(role=role, content=text, kind="handoff")


def _with_instructions(section: str, instructions: Sequence[str]) -> str:
    missing = [f"- “{redact(line)}”" for line in instructions if line not in section]
    if not missing:
        return section
    return "\n".join(("The user's standing instructions, word for word:", *missing, *((section,) if section else ())))


def _facts(sections: Mapping[str, str], ledger: Ledger, shares: Shares, shown: str, frame: Handoff) -> FactLines:
    told = "\n".join(sections.values())
    room_chars = int(shares.facts_tokens * CHARS_PER_TOKEN)
    if shares.whole_chars is not None:
        room_chars = shares.whole_chars - len(render(frame.with_sections(sections), is_short=shares.is_short)) - 120
    if shares.whole_tokens is not None:
        used = estimate_text(render(frame.with_sections(sections), is_short=shares.is_short))
        room_chars = min(room_chars, int((shares.whole_tokens - used - 20) * CHARS_PER_TOKEN * 0.8))
    if room_chars < 80:
        return FactLines()
    # First what nothing in sight tells any more; then what the kept messages do tell, but only until they go too.
    unseen = ledger.lines_for(budget_chars=int(room_chars * UNSEEN_SHARE), already=f"{told}\n{shown}")
    left = room_chars - len(unseen.text)
    seen = ledger.lines_for(budget_chars=left, already=f"{told}\n{unseen.text}") if left >= 80 else FactLines()
    return FactLines(unseen.critical + seen.critical, unseen.files + seen.files)


def _bounded(handoff: Handoff, shares: Shares) -> Handoff:
    """Within its whole, where there is one: shortened until its rendering fits, or until nothing is left to cut."""
    for most, size in ((shares.whole_chars, len), (shares.whole_tokens, estimate_text)):
        if most is None:
            continue
        for _ in range(4):
            over = size(render(handoff, is_short=shares.is_short)) - most
            if over <= 0:
                break
            within = sum(size(line) + 1 for text in handoff.sections.values() for line in text.splitlines())
            handoff = handoff.with_sections(shorten(handoff.sections, max(0, within - over - 8), size=size))
    return handoff
