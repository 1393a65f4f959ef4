"""How well a text meets a query, and the snippet that shows it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from perdure.store.query import Clause
from perdure.store.tokenizer import folded, unaccented

_SNIPPET_CHARS = 200
# Texts are ranked and shown by their beginning: counting words in megabytes would not change the order.
_LOOKED_AT_CHARS = 65_536


def score(text: str, clauses: Sequence[Clause]) -> float:
    """Higher is better: every clause that is met, how often, and more where it stands as it was typed."""
    seen = folded(text[:_LOOKED_AT_CHARS])
    total = 0.0
    for clause in clauses:
        literal = seen.count(clause.needle) if clause.needle else 0
        if literal:
            total += 2.0 + math.log1p(literal)
        else:
            total += sum(1.0 for p in clause.parts if p in seen) / len(clause.parts)
    # A short text that says it is worth more than a long one that mentions it.
    return total - 0.1 * math.log1p(len(seen) / 400)


def is_met(text: str, clause: Clause) -> bool:
    """Whether a text that was already folded holds a clause: what a scan goes by where there is no index."""
    return bool(clause.needle and clause.needle in text) or (clause.is_word and clause.parts[0] in text)


def snippet(text: str, clauses: Sequence[Clause]) -> str:
    """The place around the first hit on one line, each hit between «…»."""
    return marked(*excerpt(text, clauses))


def marked(line: str, marks: Sequence[tuple[int, int]]) -> str:
    """A line with each mark between «…»."""
    for start, end in reversed(marks):
        line = f"{line[:start]}«{line[start:end]}»{line[end:]}"
    return line


def excerpt(text: str, clauses: Sequence[Clause]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The place around the first hit on one line, and where in it the hits stand, as [start, end)."""
    pattern = _pattern(clauses)
    shown = text
    found = pattern.search(shown)
    if found is None:
        # An accent or a full-width form stands between what was typed and what is written.
        shown = unaccented(text)
        found = pattern.search(shown)
    start = max(0, (found.start() if found else 0) - _SNIPPET_CHARS // 3)
    end = min(len(shown), start + _SNIPPET_CHARS)
    line = ("…" if start else "") + " ".join(shown[start:end].split()) + ("…" if end < len(shown) else "")
    return line, tuple(m.span() for m in pattern.finditer(line)) if found else ()


def _pattern(clauses: Sequence[Clause]) -> re.Pattern[str]:
    """Whole needles first, then single words; never empty, so that it never matches nothing."""
    needles = [_spaced(c.needle) for c in clauses if c.needle]
    words = [re.escape(p) for c in clauses for p in sorted(set(c.parts), key=len, reverse=True)]
    either = needles + [w for w in words if w not in needles]
    return re.compile("|".join(either) or r"(?!)", re.IGNORECASE)


def _spaced(needle: str) -> str:
    r"""A needle as a pattern: any space fits, and either slash."""
    return r"\s+".join(re.escape(w).replace("/", r"[/\\]") for w in needle.split())
