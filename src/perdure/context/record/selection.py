"""Select what fits a budget: options with a size and a score each, best score first, each after those it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perdure.context.text import size_of

# Exponent of the size in a score: 1 prefers short texts strongly, 0 ignores the size.
_SIZE_EXPONENT = 0.35
_LEAST_SIZE = 30
# How much smaller the budget of a second attempt is than the excess.
_FIRST_STEP = 20


@dataclass(slots=True)
class Options:
    """Steps that add detail to the record, in parallel lists: there are thousands of them."""

    sizes: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    # Index of the option that has to be taken before each; -1 for none.
    needs: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sizes)

    def add(self, size: int, score: float, needs: int = -1) -> None:
        self.sizes.append(size)
        self.scores.append(score)
        self.needs.append(needs)

    def add_step(self, worth: float, size: int, more: int, needs: int) -> None:
        """Add what makes a text longer by `more`; without worth where it does not."""
        self.sizes.append(more if more > 0 else 0)
        self.scores.append(score(worth, size) if more > 0 else 0.0)
        self.needs.append(needs)


def score(worth: float, size: int) -> float:
    """Return the score of an option: its worth, lower for a longer text."""
    return worth / math.pow(size if size > _LEAST_SIZE else _LEAST_SIZE, _SIZE_EXPONENT)


def age_factor(distance: float, half_life: float) -> float:
    """Return the weight of text by its distance from the end: 1 at the end, falling like a power of it."""
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


def rank(options: Options) -> list[int]:
    """Return the indexes of the options that may be taken, best score first."""
    scores = options.scores
    return sorted((i for i, s in enumerate(scores) if s > 0), key=scores.__getitem__, reverse=True)


def choose(options: Options, budget: int, order: Sequence[int] | None = None) -> set[int]:
    """Return the indexes of the options to take, best score first, each with the ones it needs."""
    chosen: set[int] = set()
    sizes, needs = options.sizes, options.needs
    remaining = budget
    for index in rank(options) if order is None else order:
        if index in chosen:
            continue
        needed = needs[index]
        if needed < 0 or needed in chosen:  # as most
            if sizes[index] <= remaining:
                chosen.add(index)
                remaining -= sizes[index]
            continue
        chain = _untaken(needs, index, chosen)
        cost = sum(sizes[i] for i in chain)
        if cost <= remaining:
            chosen.update(chain)
            remaining -= cost
    return chosen


def _untaken(needs: Sequence[int], index: int, chosen: set[int]) -> list[int]:
    """Return an option and those it needs, as far as they are not chosen yet."""
    chain = []
    while index >= 0 and index not in chosen:
        chain.append(index)
        index = needs[index]
    return chain


def fill_budget(options: Options, room: int, render: Callable[[set[int]], str]) -> str:
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
