"""Pattern matching with literal pre-filters, and the sentences of a text."""

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

    def is_in(self, text: str) -> bool:
        return bool(self.among((text,), text))

    def among(self, pieces: Iterable[str], whole: str) -> list[str]:
        """The pieces of a text that match."""
        low = whole.lower()
        present = [mark for mark in self.marks if mark in low]
        search = self.pattern.search
        if self.cjk is None or whole.isascii() or not self.cjk.search(whole):
            return [p for p in pieces if any(map(p.lower().__contains__, present)) and search(p)] if present else []
        in_cjk = self.cjk.search
        return [p for p in pieces if in_cjk(p) or (any(map(p.lower().__contains__, present)) and search(p))]


_END = re.compile(r"[\n.!?。！？]")
# A dot behind one of these ends no sentence.
_ABBREVIATED = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|Hr|Fr|Sra?|Dra|Mme|e\.g|i\.e|vs|bzw|z\.B|d\.h|Nr)$")
_LONGEST_ABBREVIATION = 5
PLAN = PatternMatcher(
    marks=("next", "then", "remain", "still", "to do", "todo", "[ ] "),
    pattern=re.compile(
        r"^(?:\W*(?:next(?: steps?)?|then|remaining|still (?:need|to do|left)|to ?do|left to do)\b|\W*\[ \] "
        r"|.*\b(?:remains to be|still needs? to)\b)",
        re.IGNORECASE,
    ),
    cjk=re.compile("接下来|下一步|还需要|次に|残り|まだ|다음(?:으로|은)|남은"),
)


def sentences(text: str) -> list[str]:
    """The sentences of a text in any script, lines counting as ends; code blocks are left out."""
    prose = "".join(text.split("```")[::2]) if "```" in text else text
    pieces: list[str] = []
    start = 0
    for mark in _END.finditer(prose):
        end = mark.end()
        # A Latin mark inside a word or number ends nothing.
        if mark[0] not in ".!?" or (prose[end : end + 1].isspace() and not _is_abbreviation(prose, mark)):
            pieces.append(prose[start:end].strip())
            start = end
    pieces.append(prose[start:].strip())
    return [s for s in pieces if s]


def _is_abbreviation(text: str, mark: re.Match[str]) -> bool:
    at = mark.start()
    return (
        mark[0] == "."
        and text[at + 1] == " "
        and _ABBREVIATED.search(text[max(0, at - _LONGEST_ABBREVIATION) : at]) is not None
    )
