"""Determine how much of an output a result holds, by the notes that mark where it was cut.

Shells, agents and Perdure's own limits replace what does not fit by a note, and `head` and `tail` cut an output without
one. What is counted in such a result is a fact of the part alone; the size of the whole is known if the note names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from perdure.context.tool_calls.shell import ShellCommand

Part = Literal["all", "first", "last", "some"]

# In the place of what a result leaves out.
GAP = "[…]"
_MAX_NOTES = 6
_NOTE_CHARS = 320
_FIRST_HITS, _LAST_HITS = 16, 8
# A note in the middle of a result has one of these, and one at either end may have one of the others.
_HINTS = ("runcated", "RUNCATED", "mitted", "left out", " characters …]")
_END_HINTS = ("lided", "ot shown", "howing ", "lipped", " more ", "[more: ", "[matches ", " characters; ")
_END_CHARS = 1_500
_UNIT = r"(lines?|characters?|chars?|bytes|[KMG]B|tokens?|matches|results|files|entries|rows|items)"
_NOTE = re.compile(
    r"^[ \t]*(?:"
    # A remark in brackets or behind an ellipsis, which marks what is missing.
    r"(?:[\[(<{…]|\.{2,}|-{2,})(?![^\n]{0,120}\bframes?\b)[^\n]{0,120}?"
    r"(?:truncated|TRUNCATED|omitted|left out|elided|not shown|clipped)\b[^\n]{0,160}|"
    r"(?:[Oo]utput|[Rr]esults?|[Rr]esponse|[Ff]ile|[Cc]ontent)[^\n]{0,30} truncated\b[^\n]{0,160}|"
    rf"[\[(<]?[Ss]howing [^\n]{{0,60}}?\bof (?:about )?[\d,]+[^\n]{{0,120}}|"
    rf"(?:[\[(]|\.\.\. ?|… ?|\[(?:…|\.\.\.) ?|\(\+ ?)\+?[\d,]+ (?:more|other|additional) {_UNIT}[^\n]{{0,80}}|"
    r"\[Showing results with pagination[^\n]*|"
    r"\[… [\d,]+ characters …\]|\[matches [\d,]+ to [\d,]+ of [^\n]*|\[more: continue with [^\n]*|"
    r"\[[\d,]+ of [\d,]+ characters; continue [^\n]*"
    r")[ \t]*"
)
_WHOLE = re.compile(rf"\bof (?:about |at least )?([\d,]+)(?: total)?(?: {_UNIT})?\b", re.I)
_LEFT_OUT = re.compile(rf"([\d,]+) (?:more |other |additional )?{_UNIT}\b")
_NOT_KEPT = re.compile(
    r"\s*[\[<(][^\n\]]{0,120}\b(?:cleared|evicted|elided|removed|dropped|pruned|trimmed|omitted|compacted|"
    r"no longer (?:kept|stored|available|in context))\b[^\n]{0,80}[\])>]\s*",
    re.I,
)
_END_OF_READ = re.compile(r"\n\[end of [^\n]*\]\s*\Z")
_PAGE_OF_LINES = re.compile(r"(?i)lines ([\d,]+)\s?(?:-|–|to)\s?([\d,]+) of ([\d,]+)")
_COUNT = re.compile(r"-n?(\d{1,6})|--lines=(\d{1,6})")


@dataclass(frozen=True, slots=True)
class OutputExtent:
    """The part of an output that a result shows, and the size of the whole as far as a note tells it."""

    part: Part = "all"
    # Lines of the whole output.
    lines: int | None = None
    # Its size in another unit, such as "345,678 characters" or "300 matches".
    size: str = ""

    @property
    def is_partial(self) -> bool:
        return self.part != "all"

    def describe(self, visible_lines: int) -> str:
        """Return the size of an output of which so many lines are shown."""
        count = f"{visible_lines:,} line{'' if visible_lines == 1 else 's'}"
        if self.part == "all":
            return count
        if self.lines is not None and self.lines >= visible_lines:
            return f"{self.lines:,} lines"
        if self.size:
            return self.size
        return f"{count} of the part shown" if self.part == "some" else f"{self.part} {count}"

    @property
    def limits(self) -> str:
        """The words after a count that was made in the part shown; "" if that is all of the output."""
        return "" if self.part == "all" else " in the part shown"

    @property
    def is_sized(self) -> bool:
        """Whether the size of the whole is known although a part is shown."""
        return self.lines is not None or bool(self.size)


WHOLE = OutputExtent()


def read_extent(notes: Sequence[str], visible_lines: int) -> OutputExtent:
    """Return how much of its output a result of so many lines shows, by the notes in it."""
    if not notes:
        return WHOLE
    lines: int | None = None
    size = ""
    left_out = 0
    for note in notes:
        if (page := _PAGE_OF_LINES.search(note)) is not None:
            if (_number(page[1]), _number(page[2])) == (1, _number(page[3])):
                return WHOLE
            lines = _number(page[3])
        elif (whole := _WHOLE.search(note)) is not None:
            unit = whole[2] or _unit_of(note)
            if unit.startswith("line"):
                lines = _number(whole[1])
            elif unit:
                size = f"{'at least ' if 'at least' in whole[0] else ''}{whole[1]} {_long_unit(unit)}"
        elif (omission := _LEFT_OUT.search(note)) is not None and omission[2].startswith("line"):
            left_out += _number(omission[1])
    if lines is None and left_out:
        lines = visible_lines - len(notes) + left_out
    return OutputExtent("some", lines, size)


def is_not_kept(text: str) -> bool:
    """Return whether a text is a mere note that the one in its place was removed from the conversation."""
    return len(text) <= _NOTE_CHARS and _NOT_KEPT.fullmatch(text) is not None


def find_notes(text: str) -> list[str]:
    """Return the notes that mark what a result leaves out, in order."""
    starts: dict[int, str] = {}
    for hint in _HINTS:
        if hint in text:
            _collect(starts, text, _hits(text, hint))
    head, tail = text[:_END_CHARS], text[-_END_CHARS:] if len(text) > _END_CHARS else ""
    for hint in _END_HINTS:
        if hint in head:
            _collect(starts, text, _hits(head, hint))
        if hint in tail:
            _collect(starts, text, (len(text) - len(tail) + n for n in _hits(tail, hint)))
    return [starts[n] for n in sorted(starts)][:_MAX_NOTES]


def _collect(starts: dict[int, str], text: str, positions: Iterator[int]) -> None:
    """Add the lines at some positions that are notes, by their offset."""
    for position in positions:
        start = text.rfind("\n", 0, position) + 1
        end = text.find("\n", position)
        line = text[start : end if end >= 0 else len(text)] if position - start <= _NOTE_CHARS else ""
        if line and len(line) <= _NOTE_CHARS and start not in starts and _NOTE.fullmatch(line) is not None:
            starts[start] = line


def _hits(text: str, hint: str) -> Iterator[int]:
    """Yield where a text has a hint: the first few places and the last few."""
    position = -1
    for _ in range(_FIRST_HITS):
        position = text.find(hint, position + 1)
        if position < 0:
            return
        yield position
    last = len(text)
    for _ in range(_LAST_HITS):
        last = text.rfind(hint, position + 1, last)
        if last < 0:
            return
        yield last


def without_notes(text: str) -> tuple[str, int]:
    """Replace the notes between lines by a gap, and remove the halves of lines beside a cut made by characters.

    Return the text, and the number of its gaps.
    """
    lines = text.strip("\n").split("\n")
    kept: list[str] = []
    gaps = 0
    is_torn = False
    for number, line in enumerate(lines):
        is_last = number + 1 == len(lines)
        if len(line) <= _NOTE_CHARS and _NOTE.fullmatch(line) is not None:
            omission = _LEFT_OUT.search(line)
            is_torn = omission is not None and omission[2][:4] in ("char", "byte", "toke")
            if is_torn and len(kept) > 2 and number + 2 < len(lines):
                kept.pop()
            if kept and not is_last and kept[-1] != GAP:
                kept.append(GAP)
                gaps += 1
        elif is_torn and not is_last:
            is_torn = False
        else:
            kept.append(line)
    return "\n".join(kept), gaps


def describe_read(content: str) -> str:
    """Return how many lines a read returned, or which of how many where a note tells."""
    if "[end of " in content[-400:]:
        content = content[:-400] + _END_OF_READ.sub("", content[-400:])
    notes = find_notes(content[-_NOTE_CHARS:])
    for note in notes:
        if (page := _PAGE_OF_LINES.search(note)) is not None:
            return f"lines {page[1]}-{page[2]} of {page[3]}"
    text = content.rstrip()
    for note in notes:
        text = text.removesuffix(note).rstrip()
    count = text.count("\n") + 1 if text else 0
    return f"{count:,} line{'' if count == 1 else 's'}{', not to the end' if notes else ''}"


def limited_by(commands: Sequence[ShellCommand], visible_lines: int) -> OutputExtent:
    """Return the part of an output that `head` or `tail` let through, if it is as long as they allow."""
    limits = [(c.program, n) for c in commands if c.program in ("head", "tail") and (n := _line_limit(c)) is not None]
    if not limits or visible_lines < min(n for _, n in limits):
        return WHOLE
    sources = [c for c in commands if not c.is_filter and c.kind != "other" and c.program not in ("head", "tail")]
    if len(limits) > 1 or len(sources) > 1:
        return OutputExtent("some")
    return OutputExtent("first" if limits[0][0] == "head" else "last")


def _line_limit(command: ShellCommand) -> int | None:
    words = command.words[1:]
    if any(w.startswith(("-c", "--bytes", "+", "-f", "-F")) for w in words):
        return None
    for number, word in enumerate(words):
        if (match := _COUNT.fullmatch(word)) is not None:
            return int(match[1] or match[2])
        if word in ("-n", "--lines"):
            following = words[number + 1 : number + 2]
            return int(following[0]) if following and following[0].isdigit() else None
    return 10


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def _unit_of(note: str) -> str:
    match = re.search(_UNIT, note)
    return match[0] if match is not None else ""


def _long_unit(unit: str) -> str:
    return {"char": "characters", "chars": "characters", "character": "characters"}.get(unit, unit)
