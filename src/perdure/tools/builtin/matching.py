"""Where a piece of text stands in a file: word for word, else line by line with small differences forgiven.

All of it takes time linear in the text: files of equal lines are as quick as any.
"""

from __future__ import annotations

import difflib
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_QUOTES = str.maketrans("‘’‚‛“”„‟–—\u00a0", "''''\"\"\"\"-- ")
# Longer files are not compared line by line for a hint: it would take longer than reading them again.
_HINT_LINES = 20_000
_HINT_CHARS = 2_000_000
# Lines are compared up to here, and only those that share most pairs of characters are compared closely.
_LINE_CHARS = 300
_CANDIDATES = 20
_ALIKE = 0.6


@dataclass(frozen=True, slots=True)
class Match:
    """One place; `indents` has, for each line that says something, what stands before it in the file and in `old`."""

    start: int
    end: int
    is_exact: bool = True
    indents: tuple[tuple[str, str], ...] = ()

    def fitted(self, new: str) -> str:
        """The replacement, indented as the file is where the request was not.

        Often only the first line came without its indent, so it has a measure of its own.
        """
        if self.is_exact or all(there == sent for there, sent in self.indents):
            return new
        first, rest = self.indents[0], Counter(self.indents[1:] or self.indents).most_common(1)[0][0]
        lines, is_first = [], True
        for line in new.split("\n"):
            if line.strip():
                lines.append(_reindented(line, *(first if is_first else rest)))
                is_first = False
            else:
                lines.append(line)
        return "\n".join(lines)


def find_matches(text: str, old: str) -> list[Match]:
    """Every place where `old` stands: exact ones, else those that differ least. Never overlapping."""
    exact, at = [], text.find(old)
    while at >= 0:
        exact.append(Match(at, at + len(old)))
        at = text.find(old, at + len(old))
    if exact:
        return exact
    for forgiving in (str.rstrip, _plain):
        if found := _by_lines(text, old, forgiving):
            return found
    return []


def closest(text: str, old: str) -> tuple[int, str] | None:
    """The line number and text of what resembles `old` most, or None where nothing does."""
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    if len(lines) > _HINT_LINES or len(text) > _HINT_CHARS:
        return None
    first = max(wanted, key=lambda line: len(line.strip()))
    k = wanted.index(first)
    near = _most_alike(first, lines)
    if near is None:
        return None
    start = max(0, lines.index(near) - k)
    return start + 1, "\n".join(lines[start : start + len(wanted)])


def _most_alike(wanted: str, lines: list[str]) -> str | None:
    """The line that resembles `wanted` most, if one does."""
    size, pairs = len(wanted), _pairs(wanted)
    # As alike as two lines can be at most is told by their lengths.
    possible = (n for n in dict.fromkeys(lines) if 2 * min(len(n), size) >= _ALIKE * (len(n) + size))
    shared = ((2 * len(pairs & (own := _pairs(n))) / (len(pairs) + len(own) or 1), n) for n in possible)
    candidates = heapq.nlargest(_CANDIDATES, shared, key=lambda pair: pair[0])
    matcher = difflib.SequenceMatcher(b=wanted[:_LINE_CHARS])
    best, best_ratio = None, _ALIKE
    for _, line in candidates:
        matcher.set_seq1(line[:_LINE_CHARS])
        if (ratio := matcher.ratio()) >= best_ratio and (best is None or ratio > best_ratio):
            best, best_ratio = line, ratio
    return best


def _pairs(line: str) -> set[str]:
    line = line[:_LINE_CHARS]
    return {line[i : i + 2] for i in range(len(line) - 1)}


def _by_lines(text: str, old: str, same: Callable[[str], str]) -> list[Match]:
    """Places where the lines agree once `same` has made both sides alike."""
    wanted_raw = old.strip("\n").split("\n")
    wanted = [same(line) for line in wanted_raw]
    if not any(wanted):
        return []
    lines = text.split("\n")
    alike = [same(line) for line in lines]
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    found = []
    for i in _positions(alike, wanted):
        last = i + len(wanted) - 1
        end = starts[last] + len(lines[last]) + (old.endswith("\n") and last + 1 < len(lines))
        start = starts[i] - (old.startswith("\n") and i > 0)
        indents = [(_indent(lines[i + k]), _indent(w)) for k, w in enumerate(wanted_raw) if w.strip()]
        found.append(Match(start, end, False, tuple(indents)))
    return found


def _positions(lines: list[str], wanted: list[str]) -> Iterator[int]:
    """Where `wanted` stands in `lines`, never overlapping: Knuth, Morris and Pratt's search, by lines."""
    # For each line of `wanted`: how many of its first lines stand right up to there as well.
    borders, length = [0] * len(wanted), 0
    for i in range(1, len(wanted)):
        while length and wanted[i] != wanted[length]:
            length = borders[length - 1]
        length += wanted[i] == wanted[length]
        borders[i] = length
    length = 0
    for i, line in enumerate(lines):
        while length and line != wanted[length]:
            length = borders[length - 1]
        length += line == wanted[length]
        if length == len(wanted):
            yield i - length + 1
            length = 0


def _plain(line: str) -> str:
    return " ".join(line.translate(_QUOTES).split()) if line.strip() else ""


def _reindented(line: str, there: str, sent: str) -> str:
    """A line sent with `sent` before it, moved to where `there` is; a deeper or less deep one keeps its step."""
    if line.startswith(sent):
        return there + line.removeprefix(sent)
    missing = len(sent) - len(_indent(line))
    return there[: max(0, len(there) - missing)] + line.lstrip()


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
