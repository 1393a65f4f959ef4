"""Rank facts by the probability that they are needed again, from where, how recently and how often they occurred.

A logistic model over a sum of evidence; its coefficients are rounded from a fit over recorded sessions of several kinds
of work. Facts used in calls are used again, soon rather than late; a name in a short message counts more than one of
two hundred in a listing; the last few turns count most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from perdure.context.facts.extraction import PLACES, FactKind, kind_of

# Kinds of facts that identify the target of a call.
_POINTED_AT = PLACES | {"number", "id", "code"}
# Kinds that results are full of (line numbers, sizes, attributes): they hardly count unless mentioned.
_INCIDENTAL: frozenset[FactKind] = frozenset(("number", "code", "dotted"))

_PRIOR: dict[FactKind, float] = {
    "url": -0.6,
    "path": -0.3,
    "pair": 0.0,
    "file": 0.7,
    "number": -0.3,
    "id": -0.9,
    "code": -0.5,
    "name": 0.9,
    "dotted": -2.3,
}
_BASE = -5.3

# How many messages back facts are ranked.
FURTHEST_BACK = 3_000
# A source stops scanning back after this many occurrences.
_MOST_OCCURRENCES = 20_000
_MANY_MESSAGES = 1_500
_PASTED = 150


# Message positions with their facts, in conversation order.
Places = Sequence[tuple[int, frozenset[str]]]


class Weighable(Protocol):
    """A message as ranked: its role, and its facts by where they occur."""

    @property
    def role(self) -> str: ...
    @property
    def mentioned(self) -> frozenset[str]: ...
    @property
    def used(self) -> frozenset[str]: ...
    @property
    def brief(self) -> frozenset[str]: ...
    @property
    def whole(self) -> frozenset[str]: ...


@dataclass(slots=True)
class Sightings:
    """Occurrences of facts in one kind of source: last position, number of facts beside them, and count."""

    last: dict[str, int] = field(default_factory=dict)
    crowd: dict[int, int] = field(default_factory=dict)
    # Scanned messages with such facts, newest first; and the total number of occurrences.
    occurrences: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    spent: int = 0

    def add(self, position: int, facts: frozenset[str]) -> tuple[int, frozenset[str]]:
        self.spent += len(facts)
        self.occurrences.append(at := (position, facts))
        return at

    def settle(self) -> None:
        """Compute the indexes, once every message was added."""
        self.crowd = {position: len(facts) for position, facts in self.occurrences}
        self.last = {fact: position for position, facts in reversed(self.occurrences) for fact in facts}

    def count(self) -> Counter[str]:
        """How many messages have each fact."""
        return Counter(chain.from_iterable(facts for _, facts in self.occurrences))


@dataclass(frozen=True, slots=True)
class Weights:
    """The probability of each fact, and the occurrences it is based on."""

    chance: dict[str, float]
    first: dict[str, int]
    first_call: dict[str, int]
    whole: Sightings
    brief: Sightings
    calls: Sightings
    assistant: Sightings
    user: Sightings
    results: Sightings
    errors: Sightings
    decisions: Sightings


def weigh(entries: Sequence[Weighable], *, errors: Places = (), decisions: Places = ()) -> Weights:
    """Rank every fact of the entries, which are in conversation order.

    `errors` and `decisions` are the facts per entry that occur in an error or a decision.
    """
    sources = whole, brief, calls, assistant, user, results = tuple(Sightings() for _ in range(6))
    roles = tuple(Sightings(occurrences=[*reversed(occurrences)]) for occurrences in (errors, decisions))
    by_role = {"assistant": assistant, "handoff": assistant, "note": assistant, "user": user}
    everywhere: list[tuple[int, frozenset[str]]] = []
    # In a long history the newest messages have more than enough facts to choose from.
    most = _MOST_OCCURRENCES if len(entries) <= _MANY_MESSAGES else _MOST_OCCURRENCES // 4
    for position in range(len(entries) - 1, max(-1, len(entries) - 1 - FURTHEST_BACK), -1):
        entry = entries[position]
        if mentioned := entry.mentioned:
            role = entry.role
            # A user message with hundreds of facts is mostly pasted text.
            source = results if role == "user" and len(mentioned) >= _PASTED else by_role.get(role, results)
            if source.spent < most:
                everywhere.append(source.add(position, mentioned))
        if used := entry.used:
            for source, facts in ((whole, entry.whole), (brief, entry.brief), (calls, used)):
                if facts and source.spent < most:
                    everywhere.append(source.add(position, facts))
    for source in (*sources, *roles):
        source.settle()
    first = {fact: position for position, facts in everywhere for fact in facts}
    first_call = {fact: position for position, facts in calls.occurrences for fact in facts}
    followed = {p: _followed(entries[p].mentioned, p, calls.last) for p in results.crowd}
    return Weights(_chances(len(entries), sources, roles, followed), first, first_call, *sources, *roles)


def _followed(listed: frozenset[str], position: int, used: Mapping[str, int]) -> float:
    """The share of a listing that was used afterwards: the rest is then likely to be used next."""
    paths = [f for f in listed if "/" in f or "." in f]
    used_later = sum(used.get(f, -1) > position for f in paths)
    return used_later / len(paths) if used_later > 1 else 0.0


# Per kind of source: base, recency, per doubling of the facts beside it, per doubling of its count.
_EVIDENCE = (
    (0.7, 0.8, 0.0, 0.0),  # a whole argument of a call: a path opened, a pattern searched for
    (-0.7, 0.4, 0.0, 0.6),  # in a short argument: part of a command
    (0.8, 1.2, -0.1, 0.0),  # anywhere in the arguments
    (-0.1, 1.1, 0.0, 0.0),  # in the assistant's text
    (0.4, 0.2, -0.05, 0.0),  # in the user's text
    (-0.5, 0.8, -0.08, 0.0),  # in a result
)
_POINTED = 2.0
# Minor coefficients: dropping any one changes retention on held-out sessions by less than half a point on average.
# The values are those that meet the targets of `benchmarks/bench_retention.py`.
# Mentioned, and not used in a call since.
_WAITING = 0.8
_FOLLOWED = 4.0
# A complete path in a result, which can be opened.
_UNOPENED = 0.5
# Occurs in an error, or in a decision.
_ROLES = (0.3, 0.3)


def _chances(
    total: int, sources: Sequence[Sightings], roles: Sequence[Sightings], followed: Mapping[int, float]
) -> dict[str, float]:
    near = [1 / (1 + (total - position) / 10) for position in range(total)]
    far = [1 / (1 + (total - position) / 50) for position in range(total)]
    logs = [0.0, *(math.log2(n) for n in range(1, 1025))]
    odds: dict[str, float] = {}
    latest: dict[str, int] = {}
    for source, (base, recency, crowding, repeating) in zip(sources, _EVIDENCE, strict=True):
        count = source.count() if repeating else {}
        at = {p: base + recency * far[p] + crowding * logs[min(n, 1024)] for p, n in source.crowd.items()}
        for fact, position in source.last.items():
            odds[fact] = odds.get(fact, 0.0) + at[position] + (repeating and repeating * logs[min(count[fact], 1024)])
            if position > latest.get(fact, -1):
                latest[fact] = position
    for source, weight in zip(roles, _ROLES, strict=True):
        for fact in source.last:
            if fact in odds:
                odds[fact] += weight
    brief, calls, results = sources[1].last, sources[2].last, sources[5].last
    used_or_mentioned = sources[2].last.keys() | sources[3].last.keys() | sources[4].last.keys()
    waiting = (sources[3].last.keys() | sources[4].last.keys()) - calls.keys()
    recent = [_BASE + 0.8 * n + 0.8 * f for n, f in zip(near, far, strict=True)]
    chances: dict[str, float] = {}
    for fact, sum_of_evidence in odds.items():
        kind = kind_of(fact)
        sum_of_evidence += recent[latest[fact]] + _PRIOR[kind]
        if fact in brief and kind in _POINTED_AT:
            sum_of_evidence += _POINTED
        elif kind in PLACES and fact not in calls and fact in results:
            sum_of_evidence += min(_POINTED, _FOLLOWED * followed[results[fact]]) + (
                _UNOPENED if kind == "path" else 0.0
            )
        elif kind in _INCIDENTAL and fact not in used_or_mentioned:
            sum_of_evidence -= _POINTED
        if fact in waiting:
            sum_of_evidence += _WAITING
        chances[fact] = 1 / (1 + math.exp(-sum_of_evidence))
    return chances
