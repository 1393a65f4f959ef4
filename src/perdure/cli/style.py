"""Format plain text for a terminal: colours, escaped control characters, wrapping, tables."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perdure.core.display import strip_controls

_LEAST_WIDTH = 20
# A line of a diff is broken at a blank only where that costs no more than this many columns.
_BREAK_WITHIN = 16
# Before a row that continues a line of a diff: a sign there would make it a line of its own.
CONTINUED = " ↳ "
_BAR = re.compile(r"[█░│▏▎▍▌▋▊▉]{9,}")
_LEAST_BAR = 6
_BETWEEN = " · "
# A part shorter than that is left out rather than shortened.
_LEAST_CUT = 12
# A name of up to three words, a gap, and text without another gap.
_TWO_COLUMNS = re.compile(r"(?:/\S.{0,30}?|[ →]{0,3}\S{1,16}(?: \S{1,10}){0,2})\s{2,}(?=\S)(?!.*\S {3,}\S)")
_GAP = re.compile(r"(?<=\S) {3,}(?=\S)")
# The blanks before a word, and the word; text between backticks is one.
_WORD = re.compile(r"(\s*)((?:`[^`]*`|\S)+)")
# A command of ours in a hint: the program and one of its commands.
_OWN_COMMAND = re.compile(
    r"(?<![\w./~-])perdure(?= (?:chat|demo|sessions|usage|insights|doctor|login|config|approvals|permissions|plugins"
    r"|models|simulate|serve|gateway|completion|schedule|acp|logout|replay)\b)"
)
# Where the text of a line in two columns begins: after the last gap near its start.
_COLUMN = re.compile(r"^(?=.{0,20}\s{2,}\S|\s+\S)(?:.{0,16}\s{2,}|\s+)(?=\S)")


def safe(text: str) -> str:
    """Strip control characters from foreign text; keeps tabs and newlines."""
    return strip_controls(text)


def wrap_lines(lines: Iterable[str], width: int) -> Iterator[str]:
    """Foreign lines wrapped between words, with their blanks as they are."""
    for line in lines:
        yield from _wrap_line(line, max(_LEAST_WIDTH, width))


def _wrap_line(line: str, width: int) -> Iterable[str]:
    if not line.isascii():
        return _wrap_columns(line, width)
    rows = textwrap.wrap(line, width, expand_tabs=False, replace_whitespace=False, break_on_hyphens=False)
    return rows or [""]


def _wrap_columns(line: str, width: int, *, indent: str = "", within: int | None = None) -> Iterator[str]:
    """Yield the rows of a line, all but the first after `indent`; wide characters take two columns.

    A row ends between words, `within` so many columns of its end.
    """
    start, before = 0, ""
    while True:
        stop, used, blank = start, len(before), -1
        while stop < len(line) and used + _columns(line[stop]) <= width:
            used += _columns(line[stop])
            blank = stop if line[stop] == " " else blank
            stop += 1
        is_in_word = stop < len(line) and line[stop] != " "
        is_near = within is None or stop - blank <= within
        stop = blank if is_in_word and blank > start and is_near else max(stop, start + 1)
        yield before + line[start:stop].rstrip(" ")
        start, before = stop + len(line[stop:]) - len(line[stop:].lstrip(" ")), indent
        if start >= len(line):
            return


def fit_lines(lines: Iterable[str], width: int, *, keeps_blanks: bool = False) -> Iterator[str]:
    """Wrap lines between words with a hanging indent; in lists of two columns the second keeps its own.

    `keeps_blanks` is for foreign text, in which several blanks are not the gap between columns.
    """
    width = max(_LEAST_WIDTH, width)
    for line in lines:
        if column_count(line) <= width:
            yield line
            continue
        columns = _TWO_COLUMNS.match(line)
        # An address that is wider than the second column is rather copied whole from a row of its own.
        if columns and width - columns.end() >= max(_LEAST_WIDTH, _longest_word(line[columns.end() :])):
            # A list of names and what they are: the second column stays one.
            yield from wrap_words(line[columns.end() :], width, first=columns[0], rest=" " * columns.end())
            continue
        # What is set out in columns gives up its blanks before it is wrapped.
        if not keeps_blanks:
            line = _GAP.sub("  ", _with_shorter_bar(line, len(line) - width))
        if column_count(line) <= width:
            yield line
            continue
        column = _COLUMN.match(line)
        indent = " " * min(column.end() if column else 0, width // 3)
        yield from wrap_words(line, width, rest=indent)


def _longest_word(text: str) -> int:
    """Return the columns of the longest word that cannot be broken."""
    return max((len(word) for word in text.split() if word.isascii()), default=0)


def wrap_words(text: str, width: int, *, first: str = "", rest: str = "") -> Iterator[str]:
    """Wrap a line between words, with an indent for its first row and one for the others.

    A command in backticks stays in one row where it fits one. A word longer than a row is left whole and begins at its
    left edge, so that an address can be copied; only text in a script without blanks is broken between its characters.
    """
    row, room = first, width - column_count(first)
    is_empty = True
    for gap, word in _words(text, width - len(rest)):
        needed = column_count(gap) + column_count(word)
        if not is_empty and needed > room:
            yield row.rstrip()
            needed = column_count(word)
            # Behind an indent the terminal would break an address that fits a row of its own.
            row = rest if needed <= width - len(rest) else ""
            room, gap, is_empty = width - len(row), "", True
        row, room, is_empty = row + gap + word, room - needed, False
    yield row.rstrip()


def _words(text: str, width: int) -> Iterator[tuple[str, str]]:
    """Yield the pieces a line may be broken between, each with the blanks before it."""
    for match in _WORD.finditer(text):
        gap, word = match.groups()
        if column_count(word) <= width:
            yield gap, word
            continue
        for n, piece in enumerate(word.split(" ")):  # a command in backticks that is wider than a row
            space = " " if n else gap
            if column_count(piece) == len(piece):
                yield space, piece
            else:
                yield from ((space if i == 0 else "", character) for i, character in enumerate(piece))


def column_count(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def break_command(pieces: Iterable[str], width: int) -> Iterator[str]:
    """Yield a command in lines that a shell joins again, broken between its pieces: a terminal would break words."""
    lines = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + 1 + len(piece) > width:
            lines.append("")
        lines[-1] += f" {piece}" if lines[-1] else piece
    yield from (f"  {line} \\" for line in lines[:-1])
    yield f"  {lines[-1]}"


@cache
def program_name() -> str:
    """Return how this program can be called again from the same shell: `perdure` only where that finds this one."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return f"{shlex.quote(_near(Path(sys.executable)))} -m perdure"
    if script.stem != "perdure":  # embedded in another program
        return "perdure"
    on_path = shutil.which("perdure")
    if on_path is not None and Path(on_path).resolve() == script.resolve():
        return "perdure"
    return shlex.quote(_near(script)) if script.exists() else "perdure"


def runnable(text: str, program: str | None = None) -> str:
    """Return a text of our own with its `perdure …` commands as they can be typed here. Not for foreign text.

    One that has been through here already stays as it is.
    """
    call = program or program_call()
    before = call.removesuffix("perdure")

    def name_program(match: re.Match[str]) -> str:
        return match[0] if before and text.endswith(before, 0, match.start()) else call

    return _OWN_COMMAND.sub(name_program, text)


def program_call() -> str:
    """Return how this program is called again for the same home folder, which may have been named for one call only."""
    from perdure.config.env import own_variables  # not before the prompt is drawn

    home = own_variables().get("PERDURE_HOME")
    return f"PERDURE_HOME={shlex.quote(home)} {program_name()}" if home is not None else program_name()


def _near(path: Path) -> str:
    """Return a path as one would type it: relative to the working folder where it is below it."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def cut_row(text: str, width: int) -> str:
    """Return one row no wider than `width` columns, with "…" where something is left out."""
    if len(text) <= width // 2:
        return text
    used = 0
    for n, character in enumerate(text):
        used += _columns(character)
        if used > width or (used == width and n + 1 < len(text)):
            return f"{text[:n]}…"
    return text


def _columns(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten_row(text: str, width: int) -> str:
    """Return a text in one row, without line breaks, and with "…" where its end is left out."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: max(0, width - 1)]}…"


def fit_parts(line: str, width: int, *, essential: int) -> str:
    """Fit a line of parts between “·”, most important first, into a row: parts at its end are left out.

    Before that, the bar gives way to the first `essential` parts. Only a long part after those is shortened, between
    its words.
    """
    line = " ".join(line.split())
    if len(line) <= width:
        return line
    parts = line.split(_BETWEEN)
    start = _BETWEEN.join(parts[:essential])
    if len(start) > width:
        shorter = _with_shorter_bar(start, len(start) - width)
        start = shorter if len(shorter) <= width else _BAR.sub("", start, count=1)
    parts = [" ".join(part.split()) for part in (*start.split(_BETWEEN), *parts[essential:])]
    row = cut_row(parts[0], width)
    for n, part in enumerate(parts[1:], 1):
        longer = f"{row}{_BETWEEN}{part}"
        if len(longer) > width:
            room = width - len(row) - len(_BETWEEN)
            cut = _BETWEEN.join(parts[n:])[: max(0, room - 1)].rpartition(" ")[0]
            is_last = n >= essential and len(part) > _LEAST_CUT
            return f"{row}{_BETWEEN}{cut}…" if is_last and len(cut) >= _LEAST_CUT else row
        row = longer
    return row


def _with_shorter_bar(line: str, excess: int) -> str:
    """Return a line whose bar gives way to the words and figures around it, evenly along its length."""

    def shorten_bar(match: re.Match[str]) -> str:
        cells = match[0]
        size = max(_LEAST_BAR, len(cells) - excess)
        mark = cells.find("│")
        plain = cells.replace("│", "█" if cells[:mark].endswith("█") else "░")
        sampled = [plain[i * len(cells) // size] for i in range(size)]
        if mark >= 0:  # one mark, also where it falls between two cells
            sampled[mark * size // len(cells)] = "│"
        return "".join(sampled)

    return _BAR.sub(shorten_bar, line, count=1)


@dataclass(frozen=True, slots=True)
class Style:
    """Styler of terminal text; without colours it returns the text unchanged."""

    is_color: bool

    def dim(self, text: str) -> str:
        return self._in("2", text)

    def bold(self, text: str) -> str:
        return self._in("1", text)

    def good(self, text: str) -> str:
        return self._in("32", text)

    def bad(self, text: str) -> str:
        return self._in("31", text)

    def warn(self, text: str) -> str:
        return self._in("33", text)

    def key(self, text: str) -> str:
        return self._in("36", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_color and text else text


def diff_colour(line: str, ink: Style) -> Callable[[str], str]:
    """Return the style of a diff line: added, removed or unchanged."""
    return {"+": ink.good, "-": ink.bad, "@": ink.dim}.get(line[:1], str)


def paint_diff(lines: Iterable[str], width: int, ink: Style) -> Iterator[str]:
    """Yield the rows of a diff in its colours; a row that continues the line above it is marked as such."""
    for line in lines:
        colour = diff_colour(line, ink)
        rows = _wrap_columns(line, max(_LEAST_WIDTH, width), indent=CONTINUED, within=_BREAK_WITHIN)
        yield from map(colour, rows)
