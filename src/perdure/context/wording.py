"""What some kind of sentence is known by: a pattern, and plain words that none of its matches is without.

Looking for a word runs at memory speed, and a pattern with many alternatives takes a hundred times as long to say no.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """`marks`, in lower case, are looked for before the pattern; what is said in CJK is short, and has its own."""

    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    cjk: re.Pattern[str] | None = None

    def is_in(self, text: str) -> bool:
        return bool(self.among((text,), text))

    def among(self, pieces: Iterable[str], whole: str) -> list[str]:
        """Those of a text's pieces that are worded so."""
        low = whole.lower()
        held = [mark for mark in self.marks if mark in low]
        found = self.pattern.search
        if self.cjk is None or whole.isascii() or not self.cjk.search(whole):
            return [p for p in pieces if any(map(p.lower().__contains__, held)) and found(p)] if held else []
        in_cjk = self.cjk.search
        return [p for p in pieces if in_cjk(p) or (any(map(p.lower().__contains__, held)) and found(p))]
