"""Assemble a handoff from sections, exact facts and the user's instructions, within its budget."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perdure.context.facts import BETWEEN_PIECES, FactLedger, FactLines
from perdure.context.handoff import SECTIONS, Handoff, render
from perdure.context.sections import shorten
from perdure.core.messages import ImagePart, Message, Role, TextPart
from perdure.models.tokens import estimate_text
from perdure.redaction import redact

INSTRUCTIONS_HEADING = "The user's standing instructions, word for word:"
FACTS_HEADING = "Exact values from the compacted messages:"
FILES_HEADING = "Touched in the compacted messages:"
# Characters per token of handoff text.
CHARS_PER_TOKEN = 3.4
# Of a handoff with a total limit, the share of the summary; the rest is for facts.
SUMMARY_SHARE = 0.45
# Share of the facts' budget for lines carried over from a handoff whose messages cannot be read.
_CARRIED_SHARE = 0.4
NO_FACTS = FactLines()
# A summary longer than this share of its cap reduces the budget for facts, which bounds the whole handoff.
FULL_SUMMARY_SHARE = 0.33


@dataclass(frozen=True, slots=True)
class Shares:
    """Budgets of the parts of a handoff; the whole has a limit only where one is set."""

    summary_tokens: int
    facts_tokens: int
    # A digest is never longer than half of what it replaces.
    digest_tokens: int
    whole_tokens: int | None = None
    whole_chars: int | None = None
    is_short: bool = False

    @property
    def is_free(self) -> bool:
        """Whether the whole has no limit, so that there is room for sentences without facts."""
        return not self.is_short and self.whole_chars is None

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
    """Compute the budgets for a middle of this size. A handoff is never longer than what it replaces."""
    summary_tokens = min(summary_cap_tokens, max(summary_min_tokens, int(middle_tokens * summary_ratio)))
    facts = min(facts_tokens, middle_tokens // 2)
    if whole_tokens is not None:
        summary_tokens = min(summary_tokens, whole_tokens)
        facts = min(facts, whole_tokens)
    if whole_chars is not None:
        summary_tokens = min(summary_tokens, max(1, int(whole_chars * SUMMARY_SHARE / CHARS_PER_TOKEN)))
        facts = max(1, int(whole_chars / CHARS_PER_TOKEN) - summary_tokens)
    return Shares(summary_tokens, facts, min(summary_tokens, middle_tokens // 2), whole_tokens, whole_chars, is_short)


def compose(
    texts: Mapping[str, str],
    ledger: FactLedger,
    *,
    active_task: str,
    instructions: Sequence[str],
    shares: Shares,
    visible: frozenset[str],
    frame: Handoff,
    carried: FactLines = NO_FACTS,
) -> Handoff:
    """Build the handoff: the texts, shortened to their cap, and the facts they lack, except those in `visible`.

    `carried` are lines of facts whose messages cannot be read: those that fit are appended.
    """
    sections = {name: _without_headings(redact(texts.get(name, ""))) for name in SECTIONS if name != "Active Task"}
    sections["Constraints & Preferences"] = _with_instructions(sections["Constraints & Preferences"], instructions)
    sections = shorten(sections, shares.summary_tokens, size=estimate_text)
    sections["Active Task"] = active_task
    lines = _facts(sections, ledger, shares, visible, frame, carried)
    for name, heading, added in (
        ("Relevant Files", FILES_HEADING, lines.files),
        ("Critical Context", FACTS_HEADING, lines.critical),
    ):
        if added:
            before = sections.get(name, "")
            # The lines are already redacted.
            sections[name] = "\n".join((*((before,) if before else ()), heading, *added))
    return _bounded(frame.with_sections(sections), shares)


def handoff_message(
    text: str, before: Message | None, after: Message | None, image: ImagePart | None = None
) -> Message:
    """Choose the role that is valid between the neighbours; where none is, that of the next message, with which the
    projection then merges it.
    """
    # Only a user message may hold an image; after a tool result the projection inserts a reply between the two.
    role: Role = "assistant" if image is None and must_be_reply(before, after) else "user"
    return Message(role=role, content=(TextPart(text), image) if image else text, kind="handoff")


def must_be_reply(before: Message | None, after: Message | None) -> bool:
    """Whether it needs the assistant role: after a user message, note or result, unless it ends the history."""
    return before is not None and before.role != "assistant" and after is not None


def newest_image(messages: Sequence[Message]) -> tuple[int, ImagePart] | None:
    """The last image of a history and the index of its message."""
    for i in range(len(messages) - 1, -1, -1):
        content = messages[i].content
        for part in reversed(content) if isinstance(content, tuple) else ():
            if isinstance(part, ImagePart):
                return i, part
    return None


def carried_instructions(previous: Handoff | None) -> list[str]:
    """The standing instructions quoted by a handoff, so that no summary can lose them."""
    section = previous.section("Constraints & Preferences") if previous else ""
    _, separator, quoted = section.partition(f"{INSTRUCTIONS_HEADING}\n")
    lines = itertools.takewhile(lambda line: line.startswith("- “"), quoted.splitlines() if separator else ())
    return [line.removeprefix("- “").removesuffix("”") for line in lines]


def _with_instructions(section: str, instructions: Sequence[str]) -> str:
    """Prepend the user's standing instructions to the section, each once and word for word."""
    quoted = list(dict.fromkeys(f"- “{' '.join(redact(line).split())}”" for line in instructions))
    others = [line for line in section.splitlines() if line not in quoted and line != INSTRUCTIONS_HEADING]
    return "\n".join((INSTRUCTIONS_HEADING, *quoted, *others)) if quoted else section


def _without_headings(text: str) -> str:
    """Remove our own fact headings that a summary repeats; code adds each once."""
    if FACTS_HEADING not in text and FILES_HEADING not in text:
        return text
    return "\n".join(line for line in text.splitlines() if line.strip("-*# ") not in (FACTS_HEADING, FILES_HEADING))


def _facts(
    sections: Mapping[str, str],
    ledger: FactLedger,
    shares: Shares,
    visible: frozenset[str],
    frame: Handoff,
    carried: FactLines,
) -> FactLines:
    text = "\n".join(sections.values())
    without = render(frame.with_sections(sections), is_short=shares.is_short)
    if shares.whole_chars is not None:
        # With a total limit, visible facts are not skipped: the handoff is read on its own.
        room = shares.whole_chars - len(without) - 120
        old = _fitting(carried, int(room * _CARRIED_SHARE), text, len)
        lines = (
            ledger.lines_for(budget_chars=room - len(old.text), already=f"{text}\n{old.text}")
            if room >= 80
            else NO_FACTS
        )
        return _merge_lines(lines, old)
    used = estimate_text(without)
    # A longer summary leaves less budget for facts.
    spare = int(shares.summary_tokens * FULL_SUMMARY_SHARE) - used
    room = max(shares.facts_tokens // 2, shares.facts_tokens + min(0, spare))
    if shares.whole_tokens is not None:
        room = min(room, int((shares.whole_tokens - used - 20) * 0.8))
    old = _fitting(carried, int(room * _CARRIED_SHARE), text, estimate_text)
    room -= estimate_text(old.text) if old.text else 0
    lines = (
        ledger.lines_for(budget_tokens=room, already=f"{text}\n{old.text}", visible=visible) if room >= 20 else NO_FACTS
    )
    return _merge_lines(lines, old)


def _fitting(carried: FactLines, room: int, text: str, size: Callable[[str], int]) -> FactLines:
    """The first carried lines that fit and are not in the text; long ones are cut between pieces."""
    present = frozenset(text.splitlines())
    groups: list[tuple[str, ...]] = []
    for lines in (carried.files, carried.critical):
        fitting = []
        for line in dict.fromkeys(lines):
            if line not in present and (piece := _pieces_within(line, room - 1, size)):
                room -= size(piece) + 1
                fitting.append(piece)
        groups.append(tuple(fitting))
    return FactLines(critical=groups[1], files=groups[0])


def _pieces_within(line: str, room: int, size: Callable[[str], int]) -> str:
    """The line, or as many of its pieces as fit; "" where none does."""
    if size(line) <= room:
        return line
    pieces = line.split(BETWEEN_PIECES)
    while len(pieces) > 1 and size(BETWEEN_PIECES.join(pieces)) > room:
        del pieces[len(pieces) // 2 or 1 :]
    shortened = BETWEEN_PIECES.join(pieces)
    return shortened if size(shortened) <= room else ""


def _merge_lines(new: FactLines, old: FactLines) -> FactLines:
    """Append old lines to new ones, so that the oldest are dropped first at the next compaction."""
    critical, files = (
        tuple(dict.fromkeys((*a, *b))) for a, b in ((new.critical, old.critical), (new.files, old.files))
    )
    return FactLines(critical, files)


def _bounded(handoff: Handoff, shares: Shares) -> Handoff:
    """Shorten the handoff until its rendering fits the total limits, or nothing is left to cut."""
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
