"""Patterns with literals as a cheap pre-filter: most texts have none of them, and are not searched."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PatternMatcher:
    """A regex with required lower-case literals as a cheap pre-filter; CJK text skips the filter."""

    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    cjk: re.Pattern[str] | None = None

    def may_be_in(self, text: str) -> bool:
        """Whether a text has one of the literals, or a match of the CJK pattern."""
        low = text.lower()
        return any(mark in low for mark in self.marks) or self._is_in_cjk(text)

    def is_in(self, text: str) -> bool:
        low = text.lower()
        if any(mark in low for mark in self.marks) and self.pattern.search(text) is not None:
            return True
        return self._is_in_cjk(text)

    def _is_in_cjk(self, text: str) -> bool:
        return self.cjk is not None and not text.isascii() and self.cjk.search(text) is not None

    def among(self, pieces: Iterable[str], whole: str) -> list[str]:
        """Return the pieces of a text that match."""
        low = whole.lower()
        present = [mark for mark in self.marks if mark in low]
        search = self.pattern.search
        if self.cjk is None or whole.isascii() or not self.cjk.search(whole):
            return [p for p in pieces if any(map(p.lower().__contains__, present)) and search(p)] if present else []
        in_cjk = self.cjk.search
        return [p for p in pieces if in_cjk(p) or (any(map(p.lower().__contains__, present)) and search(p))]
