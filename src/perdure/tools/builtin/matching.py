"""Where a piece of text stands in a file: word for word, else line by line with small differences forgiven."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

_QUOTES = str.maketrans("‘’‚‛“”„‟–—\u00a0", "''''\"\"\"\"-- ")
# Longer files are not compared line by line for a hint: it would take longer than reading them again.
_HINT_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Match:
    """One place; `indent` is what the file's lines have in front of those that were asked for."""

    start: int
    end: int
    is_exact: bool = True
    indent: str = ""
    dedent: str = ""

    def fitted(self, new: str, old: str) -> str:
        """The replacement, indented as the file is where the request was not."""
        if self.is_exact or self.indent == self.dedent:
            return new
        lines = [self.indent + line.removeprefix(self.dedent) if line.strip() else line for line in new.split("\n")]
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
    if len(lines) > _HINT_LINES:
        return None
    first = max(wanted, key=lambda line: len(line.strip()))
    k = wanted.index(first)
    near = difflib.get_close_matches(first, list(dict.fromkeys(lines)), n=1, cutoff=0.6)
    if not near:
        return None
    start = max(0, lines.index(near[0]) - k)
    return start + 1, "\n".join(lines[start : start + len(wanted)])


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
    found, i = [], 0
    while i + len(wanted) <= len(lines):
        if alike[i] == wanted[0] and alike[i : i + len(wanted)] == wanted:
            last = i + len(wanted) - 1
            end = starts[last] + len(lines[last]) + (old.endswith("\n") and last + 1 < len(lines))
            k = next((n for n, line in enumerate(wanted_raw) if line.strip()), 0)
            start = starts[i] - (old.startswith("\n") and i > 0)
            found.append(Match(start, end, False, _indent(lines[i + k]), _indent(wanted_raw[k])))
            i += len(wanted)
        else:
            i += 1
    return found


def _plain(line: str) -> str:
    return " ".join(line.translate(_QUOTES).split()) if line.strip() else ""


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
