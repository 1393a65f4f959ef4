"""What part an exact fact plays beside where it stands: in what went wrong, and in what was decided.

It is read off what the digest knows of a message anyway: how a call ended, and what was said in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.context.actions import outcome_in
from perdure.context.facts import FactLedger, MessageFacts, facts_in
from perdure.context.facts.kinds import PLACES, kind_of
from perdure.context.facts.scan import scan
from perdure.context.talk import talk_in
from perdure.core.messages import Entry

# How compilers and tracebacks go on behind a file's name, before the number of a line.
_BEFORE_LINE_NUMBER = (":", '", line ', "(")


@dataclass(frozen=True, slots=True)
class Roles:
    """The facts of one message that stand in an error, and those that stand in a decision."""

    errors: frozenset[str] = frozenset()
    decisions: frozenset[str] = frozenset()


_NONE = Roles()
# So many messages back: what went wrong or was decided before that is dealt with, or told elsewhere.
_LATELY = 150


def ledger_of(entries: Sequence[Entry]) -> FactLedger:
    """The ledger of a history, in which facts weigh by the role they lately played, too."""
    start = max(0, len(entries) - _LATELY)
    roles = [(place, e.known("roles") or roles_in(e)) for place, e in enumerate(entries[start:], start)]
    return FactLedger.collect(
        list(map(facts_in, entries)),
        errors=[(place, r.errors) for place, r in roles if r.errors],
        decisions=[(place, r.decisions) for place, r in roles if r.decisions],
    )


def roles_in(entry: Entry) -> Roles:
    """The roles of an entry's facts, read once."""
    return entry.memo("roles", lambda _: _roles_of(entry))


def _roles_of(entry: Entry) -> Roles:
    facts = facts_in(entry)
    if not facts.said:
        return _NONE
    if facts.role == "tool":
        line, is_error = outcome_in(entry)
        return Roles(errors=_failing(facts, line)) if is_error else _NONE
    told = talk_in(entry)
    decided = facts.said & scan("\n".join(told.decisions + told.choices))
    return Roles(decisions=decided) if decided else _NONE


def _failing(facts: MessageFacts, line: str) -> frozenset[str]:
    """What the line that tells the error names, and every file that a failing result points into."""
    text = facts.message.text
    places = (f for f in facts.said if kind_of(f) in PLACES)
    return (facts.said & scan(line)).union(f for f in places if _has_line_number(text, f))


def _has_line_number(text: str, place: str) -> bool:
    end = text.find(place) + len(place)
    mark = next((m for m in _BEFORE_LINE_NUMBER if text.startswith(m, end)), "")
    return bool(mark) and text[end + len(mark) : end + len(mark) + 1].isdigit()
