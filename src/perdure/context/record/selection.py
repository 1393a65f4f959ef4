"""Select what fits a budget: options with a size and a score each, best score first, each after those it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.context.text import size_of

# Exponent of the size in a score: 1 prefers short texts strongly, 0 ignores the size.
_SIZE_EXPONENT = 0.35
_LEAST_SIZE = 30
# How much smaller the budget of a second attempt is than the excess.
_FIRST_STEP = 20


@dataclass(slots=True)
class Option:
    """A step that adds detail to the record; it is taken after the one it needs."""

    size: int
    score: float
    # Index of the option that has to be taken first; -1 for none.
    needs: int = -1


def score(worth: float, size: int) -> float:
    """Return the score of an option: its worth, lower for a longer text."""
    return worth / math.pow(max(size, _LEAST_SIZE), _SIZE_EXPONENT)


def age_factor(distance: float, half_life: float) -> float:
    """How much text at a distance from the end counts: 1 at the end, falling slowly like a power of the distance."""
    return 1.0 / math.sqrt(1.0 + distance / half_life)


def fair_share(sizes: Sequence[int], room: int) -> int:
    """Return the most one of several texts may take of a room: short ones are whole before long ones grow."""
    share = 0
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            break
        room -= size
    return share


def rank(options: Sequence[Option]) -> list[int]:
    """Return the indexes of the options that may be taken, best score first."""
    return sorted((i for i, o in enumerate(options) if o.score > 0), key=lambda i: -options[i].score)


def choose(options: Sequence[Option], budget: int, order: Sequence[int] | None = None) -> set[int]:
    """Return the indexes of the options to take, best score first, each with the ones it needs."""
    taken: set[int] = set()
    remaining = budget
    for index in rank(options) if order is None else order:
        if index in taken:
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


def fill_budget(options: Sequence[Option], room: int, render: Callable[[set[int]], str]) -> str:
    """Return the rendered text of the best options that fits the room; "" where none does.

    The sizes of options are estimates: labels, gaps and merged lines change the sum a little.
    """
    order = rank(options)
    budget, step = room, _FIRST_STEP
    while budget > 0:
        text = render(choose(options, budget, order))
        excess = size_of(text) - room
        if excess <= 0:
            return text
        # Steps grow, for a smaller budget may choose other options that are larger than estimated, too.
        budget -= excess + step
        step *= 2
    return ""
