"""The folder that most paths of a stretch share, to be named once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# A root that fewer paths share is not worth a line.
_FEWEST_PATHS = 4
_LONGEST_TARGET = 400
_PATH = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)+[\w.@+-]+")


def common_root(targets: Iterable[str]) -> str:
    """The folder whose name saves most characters when it is left out of the targets; "" where none is worth it."""
    folders: Counter[str] = Counter(
        path.rpartition("/")[0]
        for target in targets
        if "/" in target
        for path in _PATH.findall(target[:_LONGEST_TARGET])
    )
    counts: Counter[str] = Counter()
    for folder, times in folders.items():
        while folder.count("/") >= 2:
            counts[folder] += times
            folder = folder.rpartition("/")[0]
    best = max(counts, key=lambda f: (counts[f] * len(f), len(f)), default="")
    return best if best and counts[best] >= _FEWEST_PATHS else ""
