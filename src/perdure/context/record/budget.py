"""Choose what fits a budget, by score per size: the newest and most valuable text in most detail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Exponent of the size in a score: 1 prefers short texts strongly, 0 ignores the size.
_SIZE_EXPONENT = 0.35
_LEAST_SIZE = 30


@dataclass(slots=True)
class Option:
    """A step that adds detail to the record; it is taken after the one it needs."""

    size: int
    score: float
    # Index of the option that has to be taken first; -1 for none.
    needs: int = -1


def score(worth: float, size: int) -> float:
    """The score of an option: its worth, lower for a longer text."""
    return worth / math.pow(max(size, _LEAST_SIZE), _SIZE_EXPONENT)


def age_factor(distance: float, half_life: float) -> float:
    """How much text at a distance from the end counts: 1 at the end, falling slowly like a power of the distance."""
    return 1.0 / math.sqrt(1.0 + distance / half_life)


def choose(options: Sequence[Option], budget: int) -> set[int]:
    """The indexes of the options to take, best score first, each with the ones it needs."""
    taken: set[int] = set()
    remaining = budget
    for index in sorted(range(len(options)), key=lambda i: -options[i].score):
        if index in taken or options[index].score <= 0:
            continue
        chain = _untaken(options, index, taken)
        cost = sum(options[i].size for i in chain)
        if cost <= remaining:
            taken.update(chain)
            remaining -= cost
    return taken


def _untaken(options: Sequence[Option], index: int, taken: set[int]) -> list[int]:
    """An option and those it needs, as far as they are not taken yet."""
    chain = []
    while index >= 0 and index not in taken:
        chain.append(index)
        index = options[index].needs
    return chain
