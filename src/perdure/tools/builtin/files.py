"""`read_file`, `write_file` and `patch`."""

from __future__ import annotations

import codecs
import difflib
import heapq
import mimetypes
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perdure.core.errors import NotFound, ToolError
from perdure.core.ports import Outputs
from perdure.tools.tool import Tool, ToolContext, ToolReply, tool_from_function
from perdure.tools.workspace import Workspace, replace_file

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


_CHUNK = 1 << 16
_LISTED = 200


class FileReader:
    """Reads files of a workspace, and outputs by their address; without a workspace, outputs alone."""

    def __init__(
        self,
        workspace: Workspace | None,
        *,
        outputs: Outputs | None = None,
        page_chars: int = 50_000,
        max_chars: Callable[[], int] | None = None,
    ) -> None:
        self._workspace = workspace
        self._outputs = outputs
        self._page_chars = page_chars
        # What the present window allows one result.
        self._max_chars = max_chars

    def tool(self) -> Tool:
        return tool_from_function(
            self.read_file,
            name="read_file",
            toolset="files",
            is_read_only=True,
            max_result_chars=0,
            read_path_parameter="path",
        )

    def read_file(
        self,
        context: ToolContext,
        path: Annotated[str, "a file, a folder, or output:<id> for a stored tool output"],
        offset: Annotated[int, "first line to show, counted from 1"] = 1,
        limit: Annotated[int, "most lines to show"] = 500,
        column: Annotated[int, "first character of that first line, for very long lines"] = 1,
    ) -> ToolReply:
        """Reads a text file with line numbers, a page at a time. Also lists a folder."""
        offset, limit, column = max(1, offset), max(1, limit), max(1, column)
        if path.startswith("output:"):
            name, pieces = path, self._output_pieces(path.removeprefix("output:"), context)
        else:
            if self._workspace is None:
                raise ToolError("there are no files here; only output:<id> can be read")
            found = self._workspace.existing(path)
            if found.is_dir():
                return ToolReply(_listing(found, self._workspace.shown(found)))
            name, pieces = self._workspace.shown(found), _file_pieces(found)
        page_chars = self._page_chars if self._max_chars is None else min(self._page_chars, self._max_chars())
        page = _PageBuffer(page_chars, offset=offset, limit=limit, column=column)
        try:
            for line in _lines(pieces, keep_from=offset, max_chars=page_chars + column):
                if not page.take(*line):
                    break
        except OSError as error:
            raise ToolError(f"{name} cannot be read: {error.strerror}") from None
        return ToolReply(page.text(name), source=page.source(name))

    def _output_pieces(self, output_id: str, context: ToolContext) -> Iterator[str]:
        if self._outputs is None:
            raise ToolError("no outputs are stored here")
        try:
            yield from self._outputs.pieces(output_id, conversation_id=context.conversation_id)
        except NotFound as error:
            raise ToolError(str(error)) from None


class _PageBuffer:
    """Gathers numbered lines until the page is full."""

    def __init__(self, max_chars: int, *, offset: int, limit: int, column: int) -> None:
        self._room = max_chars
        self._offset, self._limit, self._column = offset, limit, column
        self._shown: list[str] = []
        self._last = 0
        self._next: str | None = None

    def take(self, number: int, line: str, length: int) -> bool:
        """Adds a line; False once the page is full. `line` may be only the beginning of one of `length` characters."""
        self._last = number
        if number < self._offset:
            return True
        if len(self._shown) >= self._limit or (self._shown and len(line) + 8 > self._room):
            self._next = f"offset={number}"
            self._last = number - 1
            return False
        start = self._column - 1 if number == self._offset else 0
        piece = line[start : start + self._room]
        self._shown.append(f"{number:>6}|{piece}")
        self._room -= len(piece) + 8
        if start + len(piece) < length:
            self._next = f"offset={number}, column={start + len(piece) + 1}"
            return False
        return True

    def text(self, name: str) -> str:
        if not self._shown:
            if self._last == 0:
                return f"{name} is empty"
            raise ToolError(f"{name} has {self._last:,} lines; offset {self._offset:,} is behind its end")
        more = f"\n[more: read on with {self._next}]" if self._next else f"\n[end of {name}]"
        return "\n".join(self._shown) + more

    def source(self, name: str) -> str:
        return f"{name} (lines {self._offset}-{max(self._last, self._offset)})"


def _lines(pieces: Iterator[str], *, keep_from: int, max_chars: int) -> Iterator[tuple[int, str, int]]:
    """(number, text, true length) of each line; of one longer than `max_chars` only its beginning is held in memory."""
    number, kept, length = 1, [""], 0
    held = 0
    for piece in pieces:
        parts = piece.split("\n")
        for i, part in enumerate(parts):
            if i:
                yield number, "".join(kept).removesuffix("\r"), length
                number, kept, length, held = number + 1, [], 0, 0
            length += len(part)
            if number >= keep_from and held < max_chars:
                kept.append(part[: max_chars - held])
                held += len(kept[-1])
    if length:
        yield number, "".join(kept), length


def _file_pieces(path: Path) -> Iterator[str]:
    """The text of a file in pieces. Raises ToolError for what is no text."""
    if not path.is_file():
        raise ToolError(f"{path} is neither a file nor a folder")
    with path.open("rb") as file:
        start = file.read(_CHUNK)
        encoding = _encoding(path, start)
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(start)
        while chunk := file.read(_CHUNK):
            yield decoder.decode(chunk)
        yield decoder.decode(b"", True)


def _encoding(path: Path, start: bytes) -> str:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start:
        kind = mimetypes.guess_type(path.name)[0] or "unknown type"
        raise ToolError(
            f"{path} is a binary file ({kind}, {path.stat().st_size:,} bytes); use the terminal to look at it"
        )
    return "utf-8-sig" if start.startswith(codecs.BOM_UTF8) else "utf-8"


def _listing(folder: Path, name: str) -> str:
    entries = sorted(folder.iterdir(), key=lambda p: (not p.is_dir(), p.name))
    lines = [f"{p.name}/" if p.is_dir() else f"{p.name} ({_size(p)})" for p in entries[:_LISTED]]
    more = f"\n[… {len(entries) - _LISTED:,} more]" if len(entries) > _LISTED else ""
    return f"{name}/ has {len(entries):,} entries:\n" + "\n".join(lines) + more


def _size(path: Path) -> str:
    try:
        return f"{path.stat().st_size:,} bytes"
    except OSError:
        return "unreadable"


_DIFF_LINES = 60
# difflib takes quadratic time where many lines are alike, and cubic time to mark what differs within lines.
_COMPARED_LINES = 300
_CLOSE_LINES = 40
_CLOSE_CHARS = 8_000
_HUNK = re.compile(r"([-+])(\d+)")


class FileEditor:
    """Changes files of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def tools(self) -> list[Tool]:
        return [
            tool_from_function(self.write_file, name="write_file", toolset="files", written_path_parameter="path"),
            tool_from_function(self.patch, name="patch", toolset="files", written_path_parameter="path"),
        ]

    def write_file(
        self,
        path: Annotated[str, "the file to write; missing folders are made"],
        content: Annotated[str, "its whole new content"],
    ) -> str:
        """Writes a whole file, replacing what was there."""
        target = self._workspace.resolve(path)
        existed = target.exists()
        if target.is_dir():
            raise ToolError(f"{path} is a folder")
        replace_file(target, content.encode("utf-8", "replace"))
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        done = "Replaced" if existed else "Created"
        return f"{done} {self._workspace.shown(target)}: {lines:,} {'line' if lines == 1 else 'lines'}"

    def patch(
        self,
        path: Annotated[str, "the file to change"],
        old: Annotated[str, "the text to replace, with enough around it to be the only one"],
        new: Annotated[str, "what stands there afterwards"],
        replace_all: Annotated[bool, "replace every occurrence instead of exactly one"] = False,
    ) -> str:
        """Replaces a piece of a file. Small differences in white space and quotes are forgiven."""
        target = self._workspace.existing(path)
        if not old:
            raise ToolError("`old` is empty; use write_file to create a file")
        if old == new:
            raise ToolError("`old` and `new` are the same, so nothing would change")
        text, newline = _read(target)
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        matches = find_matches(text, old)
        shown = self._workspace.shown(target)
        if not matches:
            raise ToolError(_why_not(shown, text, old))
        if len(matches) > 1 and not replace_all:
            places = ", ".join(str(text.count("\n", 0, m.start) + 1) for m in matches[:10])
            raise ToolError(
                f"`old` stands {len(matches)} times in {shown} (lines {places}); add lines around it so that it is the "
                "only one, or set replace_all"
            )
        changed = _applied(text, matches, new)
        replace_file(target, changed.replace("\n", newline).encode("utf-8", "surrogateescape"))
        how = "" if matches[0].is_exact else " (matched despite differences in white space or quotes)"
        return f"Patched {shown}{how}:\n{_diff(text, changed)}"


def _applied(text: str, matches: list[Match], new: str) -> str:
    out, at = [], 0
    for m in matches:
        out += [text[at : m.start], m.fitted(new)]
        at = m.end
    return "".join(out) + text[at:]


def _why_not(shown: str, text: str, old: str) -> str:
    near = closest(text, old)
    if near is None:
        return f"`old` does not stand in {shown}, nor anything like it; read the file again before you patch it"
    line, found = near
    sent, there = old.splitlines()[:_COMPARED_LINES], found.splitlines()[:_COMPARED_LINES]
    if len(sent) <= _CLOSE_LINES and len(old) + len(found) <= _CLOSE_CHARS:
        compared = list(difflib.ndiff(sent, there))
    else:
        compared = list(difflib.unified_diff(sent, there, lineterm="", n=1))[2:]
    diff = "\n".join(compared[:_DIFF_LINES])
    return f"`old` does not stand in {shown}. The nearest is at line {line} (- what you sent, + what is there):\n{diff}"


def _diff(before: str, after: str) -> str:
    """What changed, with a line around it; only the first changes of many."""
    old, new = before.splitlines(), after.splitlines()
    first = 0
    for same, other in zip(old, new, strict=False):
        if same != other:
            break
        first += 1
    behind = 0
    for same, other in zip(reversed(old[first:]), reversed(new[first:]), strict=False):
        if same != other:
            break
        behind += 1
    first, behind = max(0, first - 1), max(0, behind - 1)
    # Comparing takes time by the square of the lines between the first change and the last.
    is_cut = max(len(old), len(new)) - first - behind > _COMPARED_LINES
    changed, to = (part[first : len(part) - behind][:_COMPARED_LINES] for part in (old, new))
    lines = [_from_line(line, first) for line in difflib.unified_diff(changed, to, lineterm="", n=1)][2:]
    if is_cut:
        return "\n".join(lines[:_DIFF_LINES]) + "\n[… more changes further down]"
    more = f"\n[… {len(lines) - _DIFF_LINES} more lines of the diff]" if len(lines) > _DIFF_LINES else ""
    return "\n".join(lines[:_DIFF_LINES]) + more


def _from_line(line: str, first: int) -> str:
    """A line of a diff of pieces that begin behind line `first`, with the line numbers of the whole."""
    if not line.startswith("@@ "):
        return line
    return _HUNK.sub(lambda m: f"{m[1]}{int(m[2]) + first}", line)


def _read(path: Path) -> tuple[str, str]:
    """The text with plain newlines, and the newline the file uses. Bytes that are no UTF-8 come back as they were."""
    if path.is_dir():
        raise ToolError(f"{path} is a folder")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}") from None
    if b"\0" in raw[:8_192]:
        raise ToolError(f"{path} is a binary file; patch changes text only")
    newline = "\r\n" if b"\r\n" in raw else "\n"
    return raw.decode("utf-8", "surrogateescape").replace("\r\n", "\n"), newline
