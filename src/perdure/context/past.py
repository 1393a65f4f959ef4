"""What lies behind the handoff of an earlier compaction.

A handoff is never a source of facts (E12): what it says is looked up in the messages it stands for, which the log still
has. Over plain dicts those are gone. There its lines are all there is: they are carried over as lines, marks included,
and what they marked as unverified stays unverified.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.context.assemble import FACTS_HEADING, FILES_HEADING
from perdure.context.facts import FactLines
from perdure.context.grounding import without_marked
from perdure.context.handoff import Handoff
from perdure.core.errors import PerdureError
from perdure.core.messages import Entry
from perdure.core.ports import LogReader

# Read back at most: what was last said so long ago is hardly ever needed by its exact words.
MOST_MESSAGES = 1_500

_FACTS = {"Critical Context": FACTS_HEADING, "Relevant Files": FILES_HEADING}
# A line that quoted an earlier handoff, as versions up to 0.9 wrote it.
_QUOTED_HANDOFF = "- handoff:"


@dataclass(frozen=True, slots=True)
class Past:
    """The messages behind a handoff, as far as they can be read, and the handoff where not all of them can."""

    entries: tuple[Entry, ...] = ()
    handoff: Handoff | None = None

    @property
    def checked_text(self) -> str:
        """What the handoff says without what it marks: a source where the messages behind it are out of reach."""
        return without_marked(self.handoff.body) if self.handoff else ""

    @property
    def fact_lines(self) -> FactLines:
        """The exact values that the handoff quotes, to be carried over where they cannot be quoted anew."""
        if self.handoff is None:
            return FactLines()
        critical, files = (split_facts(name, self.handoff.section(name))[1] for name in _FACTS)
        return FactLines(critical, files)


def read_past(previous: Handoff | None, log: LogReader | None, *, without: Iterable[int] = ()) -> Past:
    """The messages that a handoff stands for, the newest ones of very many; `without` are positions at hand anyway."""
    if previous is None:
        return Past()
    if log is None or not previous.covers:
        return Past(handoff=previous)
    at_hand = frozenset(without)
    found: list[Entry] = []
    is_whole = True
    for lo, hi in reversed(previous.covers):
        start = max(lo, hi + 1 - (MOST_MESSAGES - len(found)))
        is_whole = is_whole and start == lo
        if start > hi:
            break
        try:
            read = log.read(start, hi)
        except PerdureError:  # a log that cannot be read is one that is not there
            return Past(handoff=previous)
        found += [e for e in read if e.message.kind != "handoff" and e.seq not in at_hand]
    found.sort(key=lambda e: e.seq)
    return Past(tuple(found), None if is_whole else previous)


def split_facts(name: str, section: str) -> tuple[str, tuple[str, ...]]:
    """A section's text without the exact values that code put there, and the lines of those."""
    heading = _FACTS.get(name)
    if heading is None:
        return section, ()
    told: list[str] = []
    facts: list[str] = []
    lines = told
    for line in section.splitlines():
        if line == heading:
            lines = facts
        elif not line.startswith(_QUOTED_HANDOFF):
            lines.append(line)
    return "\n".join(told), tuple(facts)


def told_sections(handoff: Handoff | None) -> dict[str, str]:
    """The sections of a handoff without the exact values that code put there."""
    return {name: split_facts(name, text)[0] for name, text in handoff.sections.items()} if handoff else {}


def in_order(past: Sequence[Entry], present: Sequence[Entry]) -> Sequence[Entry]:
    """All of them as they were said."""
    return sorted((*past, *present), key=lambda e: e.seq) if past else present
