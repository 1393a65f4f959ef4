"""Fit text into a budget: options by score, whole sentences and lines, lists of names, shorter paths.

An option has a size and a score; the best are chosen first, each after those it needs.
"""

from __future__ import annotations

import math
import os.path
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from perdure.context.text import clip, has_wide, sentences, size_of, tidy

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
        chain = _missing_chain(needs, index, chosen)
        cost = sum(sizes[i] for i in chain)
        if cost <= remaining:
            chosen.update(chain)
            remaining -= cost
    return chosen


def _missing_chain(needs: Sequence[int], index: int, chosen: set[int]) -> list[int]:
    """Return an option and those it needs, as far as they are not chosen yet."""
    chain = []
    while index >= 0 and index not in chosen:
        chain.append(index)
        index = needs[index]
    return chain


def fill_budget(
    options: Options, room: int, render: Callable[[set[int]], str], *, first: Sequence[int] = ()
) -> tuple[str, set[int]]:
    """Return the rendered text of the best options that fits the room, and these; "" where none does.

    The options in `first` are taken before any other. The sizes of options are estimates: labels, gaps and merged lines
    change the sum a little.
    """
    order = [*first, *rank(options)]
    budget, step = room, _FIRST_STEP
    while budget > 0:
        chosen = choose(options, budget, order)
        text = render(chosen)
        excess = size_of(text) - room
        if excess <= 0:
            return text, chosen
        # Steps grow, for a smaller budget may choose other options that are larger than estimated, too.
        budget -= excess + step
        step *= 2
    return "", set()


_ROOT_SHARE = 0.7
# Paths with fewer folders in common are of different trees.
_LEAST_SHARED_PARTS = 3
_GAP = " … "


def address(*seqs: int) -> str:
    """Return the address of messages in the log, ` (m:12,14)`; "" where their positions are not known."""
    numbers = list(dict.fromkeys(s for s in seqs if s >= 0))
    return f" (m:{','.join(map(str, numbers))})" if numbers else ""


def whole_sentences(
    text: str,
    room: int,
    *,
    asks: Callable[[str], bool] | None = None,
    skips: Callable[[str], bool] | None = None,
) -> str:
    """Return the sentences of a text that fit: those that ask, else the first; … marks what is left out.

    A sentence that introduces the next one is quoted with it or not at all. Of one that is too long itself, the first
    clauses remain.
    """
    pieces = [tidy(s) for s in sentences(text)]
    indexes = [n for n, s in enumerate(pieces) if skips is None or not skips(s)]
    if len(indexes) == len(pieces) and len(plain := tidy(text)) <= room:
        return plain
    requests = [n for n in indexes if asks is not None and asks(pieces[n])]
    is_short = sum(len(pieces[n]) + len(_GAP) for n in indexes) <= room
    # A message asks at its beginning or at its end.
    order = indexes if is_short or not requests else dict.fromkeys((requests[0], requests[-1], *requests))
    choice: list[int] = []
    for n in order:
        if len(pieces[n]) + len(_GAP) <= room:
            room -= len(pieces[n]) + len(_GAP)
            choice.append(n)
        elif not requests:
            break
    choice = sorted(n for n in choice if n + 1 in choice or not pieces[n].endswith((":", "：")))
    if not choice:
        return clip(pieces[next(iter(order))], room) if indexes else ""
    excerpt = pieces[choice[0]]
    for before, n in pairwise(choice):
        excerpt += (" " if n == before + 1 else _GAP) + pieces[n]
    return excerpt if choice[-1] == len(pieces) - 1 else f"{excerpt} …"


def fit_lines(lines: Sequence[str], room: int, *, newest_last: bool = False) -> str:
    """Return the first whole lines that fit, at least one."""
    chosen: list[str] = []
    for line in lines:
        if (room := room - (size_of(line) if has_wide(line) else len(line)) - 1) < 0 and chosen:
            break
        chosen.append(line)
    return "\n".join(reversed(chosen) if newest_last else chosen)


def join_names(names: Sequence[str], room: int) -> str:
    """List the names that fit, and the number of the others."""
    listed: list[str] = []
    for name in names:
        # A single long name is printed whole: "and 1 more" alone is useless.
        if (room := room - len(name) - 2) < 0 and listed:
            break
        listed.append(name)
    more = len(names) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more else "")


def common_folder(paths: Iterable[str]) -> str:
    """Return the deepest folder that most paths share, at least three parts if absolute, two if not; else ""."""
    folders = [os.path.dirname(p) for p in paths]
    shared: Counter[str] = Counter()
    for folder in folders:
        parts = folder.split("/")
        shared.update("/".join(parts[:n]) for n in range(4 if folder.startswith("/") else 2, len(parts) + 1))
    most = [root for root, n in shared.items() if n >= 2 and n >= _ROOT_SHARE * len(folders)]
    return max(most, key=len, default="")


def relative_to(path: str, root: str) -> str:
    """Return a path as seen from the folder that most files share; one of another tree stays whole."""
    if not root or path.startswith(f"{root}/"):
        return path.removeprefix(f"{root}/") if root else path
    if not (path.startswith("/") and root.startswith("/")) or ".." in path.split("/"):
        return path
    shared = os.path.commonpath((path, root))
    return posixpath.relpath(path, root) if shared.count("/") >= _LEAST_SHARED_PARTS else path
