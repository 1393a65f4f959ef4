"""`read_file`, `write_file` and `patch`."""

from __future__ import annotations

import codecs
import contextlib
import difflib
import heapq
import mimetypes
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perdure.core.display import edit_lines, shift_hunk
from perdure.core.errors import NotFound, ToolError
from perdure.core.messages import clean
from perdure.core.ports import Outputs
from perdure.tools.tool import Tool, ToolContext, ToolReply, tool_from_function
from perdure.tools.workspace import MAX_COMPARED_BYTES, Workspace, redacted_diff, replace_file, write_diff

_QUOTES = str.maketrans("‘’‚‛“”„‟–—\u00a0", "''''\"\"\"\"-- ")
# No hint is computed for longer files: it would cost more than reading them again.
_HINT_LINES = 20_000
_HINT_CHARS = 2_000_000
# Lines are compared up to this length; only those that share most character pairs are compared in full.
_LINE_CHARS = 300
_CANDIDATES = 20
_MIN_SIMILARITY = 0.6


@dataclass(frozen=True, slots=True)
class Match:
    """A match of a patch's old text; `indents` has the indentation of each line in the file and in the request."""

    start: int
    end: int
    is_exact: bool = True
    indents: tuple[tuple[str, str], ...] = ()

    def reindent(self, new: str) -> str:
        """Return the replacement text with the file's indentation where that of the request differs.

        The first line is adjusted separately: often only its indentation is missing.
        """
        if self.is_exact or all(there == sent for there, sent in self.indents):
            return new
        first, rest = self.indents[0], Counter(self.indents[1:] or self.indents).most_common(1)[0][0]
        lines, is_first = [], True
        for line in new.split("\n"):
            if line.strip():
                lines.append(_reindent_line(line, *(first if is_first else rest)))
                is_first = False
            else:
                lines.append(line)
        return "\n".join(lines)


def find_matches(text: str, old: str) -> list[Match]:
    """Return every match of `old`, non-overlapping: exact ones, else those that differ least."""
    exact, at = [], text.find(old)
    while at >= 0:
        exact.append(Match(at, at + len(old)))
        at = text.find(old, at + len(old))
    if exact:
        return exact
    for normalize in (str.rstrip, _normalize_line):
        if matches := _match_lines(text, old, normalize):
            return matches
    return []


def closest_lines(text: str, old: str) -> tuple[int, str] | None:
    """Return the line number and text most similar to `old`, or None."""
    lines, target = text.split("\n"), old.strip("\n").split("\n")
    if len(lines) > _HINT_LINES or len(text) > _HINT_CHARS:
        return None
    first = max(target, key=lambda line: len(line.strip()))
    k = target.index(first)
    nearest = _most_similar(first, lines)
    if nearest is None:
        return None
    start = max(0, lines.index(nearest) - k)
    return start + 1, "\n".join(lines[start : start + len(target)])


def _most_similar(target: str, lines: list[str]) -> str | None:
    """Return the most similar line, or None below the threshold."""
    size, pairs = len(target), _pairs(target)
    # The lengths alone bound how similar two lines can be.
    possible = (n for n in dict.fromkeys(lines) if 2 * min(len(n), size) >= _MIN_SIMILARITY * (len(n) + size))
    shared = ((2 * len(pairs & (own := _pairs(n))) / (len(pairs) + len(own) or 1), n) for n in possible)
    candidates = heapq.nlargest(_CANDIDATES, shared, key=lambda pair: pair[0])
    matcher = difflib.SequenceMatcher(b=target[:_LINE_CHARS])
    best, best_ratio = None, _MIN_SIMILARITY
    for _, line in candidates:
        matcher.set_seq1(line[:_LINE_CHARS])
        if (ratio := matcher.ratio()) >= best_ratio and (best is None or ratio > best_ratio):
            best, best_ratio = line, ratio
    return best


def _pairs(line: str) -> set[str]:
    line = line[:_LINE_CHARS]
    return {line[i : i + 2] for i in range(len(line) - 1)}


def _match_lines(text: str, old: str, normalize: Callable[[str], str]) -> list[Match]:
    """Return the matches of whole lines after both sides have been normalized."""
    old_lines = old.strip("\n").split("\n")
    target = [normalize(line) for line in old_lines]
    if not any(target):
        return []
    lines = text.split("\n")
    normalized = [normalize(line) for line in lines]
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    matches = []
    for i in _positions(normalized, target):
        last = i + len(target) - 1
        end = starts[last] + len(lines[last]) + (old.endswith("\n") and last + 1 < len(lines))
        start = starts[i] - (old.startswith("\n") and i > 0)
        indents = [(_indent(lines[i + k]), _indent(w)) for k, w in enumerate(old_lines) if w.strip()]
        matches.append(Match(start, end, False, tuple(indents)))
    return matches


def _positions(lines: list[str], target: list[str]) -> Iterator[int]:
    """Yield the non-overlapping positions of `target` in `lines`, by Knuth–Morris–Pratt search over lines."""
    # For each line: the length of the longest proper prefix of `target` that is also a suffix up to there.
    borders, length = [0] * len(target), 0
    for i in range(1, len(target)):
        while length and target[i] != target[length]:
            length = borders[length - 1]
        length += target[i] == target[length]
        borders[i] = length
    length = 0
    for i, line in enumerate(lines):
        while length and line != target[length]:
            length = borders[length - 1]
        length += line == target[length]
        if length == len(target):
            yield i - length + 1
            length = 0


def _normalize_line(line: str) -> str:
    return " ".join(line.translate(_QUOTES).split()) if line.strip() else ""


def _reindent_line(line: str, there: str, sent: str) -> str:
    """Replace the indentation `sent` of a line by `there`; other lines keep their relative indentation."""
    if line.startswith(sent):
        return there + line.removeprefix(sent)
    missing = len(sent) - len(_indent(line))
    return there[: max(0, len(there) - missing)] + line.lstrip()


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


_CHUNK = 1 << 16
_MAX_LISTED = 200


class FileReader:
    """The `read_file` tool: files of a workspace, and stored outputs by address; without a workspace only outputs."""

    def __init__(
        self,
        workspace: Workspace | None,
        *,
        outputs: Outputs | None = None,
        page_chars: int = 50_000,
    ) -> None:
        self._workspace = workspace
        self._outputs = outputs
        self._page_chars = page_chars

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
                raise ToolError("no files are available; only output:<id> can be read")
            resolved = self._workspace.resolve_existing(path)
            if resolved.is_dir():
                return ToolReply(_listing(resolved, self._workspace.display_path(resolved)))
            name, pieces = self._workspace.display_path(resolved), _file_pieces(resolved)
        page_chars = min(self._page_chars, context.max_result_chars)
        page = _PageBuffer(page_chars, offset=offset, limit=limit, column=column)
        try:
            for line in _lines(pieces, keep_from=offset, max_chars=page_chars + column):
                if not page.append(*line):
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
    """Collect numbered lines until the page is full."""

    def __init__(self, max_chars: int, *, offset: int, limit: int, column: int) -> None:
        self._remaining_chars = max_chars
        self._offset, self._limit, self._column = offset, limit, column
        self._lines: list[str] = []
        self._last = 0
        self._continuation: str | None = None

    def append(self, number: int, line: str, length: int) -> bool:
        """Append a line of `length` characters, or its prefix; return False once the page is full."""
        self._last = number
        if number < self._offset:
            return True
        if len(self._lines) >= self._limit or (self._lines and len(line) + 8 > self._remaining_chars):
            self._continuation = f"offset={number}"
            self._last = number - 1
            return False
        start = self._column - 1 if number == self._offset else 0
        piece = line[start : start + self._remaining_chars]
        self._lines.append(f"{number:>6}|{piece}")
        self._remaining_chars -= len(piece) + 8
        if start + len(piece) < length:
            self._continuation = f"offset={number}, column={start + len(piece) + 1}"
            return False
        return True

    def text(self, name: str) -> str:
        if not self._lines:
            if self._last == 0:
                return f"{name} is empty"
            raise ToolError(f"{name} has {self._last:,} lines; offset {self._offset:,} is past its end")
        more = f"\n[more: continue with {self._continuation}]" if self._continuation else f"\n[end of {name}]"
        return "\n".join(self._lines) + more

    def source(self, name: str) -> str:
        return f"{name} (lines {self._offset}-{max(self._last, self._offset)})"


def _lines(pieces: Iterator[str], *, keep_from: int, max_chars: int) -> Iterator[tuple[int, str, int]]:
    """Yield (number, text, full length) of each line; at most `max_chars` of a line are held in memory."""
    number, line_parts, length = 1, [""], 0
    buffered = 0
    for piece in pieces:
        parts = piece.split("\n")
        for i, part in enumerate(parts):
            if i:
                yield number, "".join(line_parts).removesuffix("\r"), length
                number, line_parts, length, buffered = number + 1, [], 0, 0
            length += len(part)
            if number >= keep_from and buffered < max_chars:
                line_parts.append(part[: max_chars - buffered])
                buffered += len(line_parts[-1])
    if length:
        yield number, "".join(line_parts), length


def _file_pieces(path: Path) -> Iterator[str]:
    """Yield the text of a file in chunks. Raises ToolError for a binary file."""
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
            f"{path} is a binary file ({kind}, {path.stat().st_size:,} bytes); use the terminal to inspect it"
        )
    return "utf-8-sig" if start.startswith(codecs.BOM_UTF8) else "utf-8"


def _listing(folder: Path, name: str) -> str:
    entries = sorted(folder.iterdir(), key=lambda p: (not p.is_dir(), p.name))
    lines = [f"{p.name}/" if p.is_dir() else f"{p.name} ({_size(p)})" for p in entries[:_MAX_LISTED]]
    more = f"\n[… {len(entries) - _MAX_LISTED:,} more]" if len(entries) > _MAX_LISTED else ""
    return f"{name}/ has {len(entries):,} entries:\n" + "\n".join(lines) + more


def _size(path: Path) -> str:
    try:
        return f"{path.stat().st_size:,} bytes"
    except OSError:
        return "unreadable"


_DIFF_LINES = 60
# difflib is quadratic where many lines are similar, and ndiff cubic.
_COMPARED_LINES = 300
_CLOSE_LINES = 40
_CLOSE_CHARS = 8_000


class _PathLocks:
    """One lock per file: the calls of a message run concurrently, and two edits of a file must both survive."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[Path, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def hold(self, path: Path) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(path, (threading.Lock(), 0))
            self._locks[path] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks[path]
                if users == 1:
                    del self._locks[path]
                else:
                    self._locks[path] = (lock, users - 1)


# Of the whole process: delegated agents work in the same folder.
_PATH_LOCKS = _PathLocks()


class FileEditor:
    """The `write_file` and `patch` tools over a workspace."""

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
    ) -> ToolReply:
        """Writes a whole file, replacing what was there."""
        target = self._workspace.resolve(path)
        existed = target.exists()
        if target.is_dir():
            raise ToolError(f"{path} is a folder")
        with _PATH_LOCKS.hold(target):
            diff = write_diff(target, content) if existed else ()
            replace_file(target, content.encode("utf-8", "replace"))
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        done = "Replaced" if existed else "Created"
        text = f"{done} {self._workspace.display_path(target)}: {lines:,} {'line' if lines == 1 else 'lines'}"
        return ToolReply(clean(text), diff=diff)

    def patch(
        self,
        path: Annotated[str, "the file to change"],
        old: Annotated[str, "the text to replace, with enough around it to be the only one"],
        new: Annotated[str, "the text to replace it with"],
        replace_all: Annotated[bool, "replace every occurrence instead of exactly one"] = False,
    ) -> str:
        """Replaces a piece of a file. Small differences in white space and quotes are forgiven."""
        target = self._workspace.resolve_existing(path)
        if not old:
            raise ToolError("`old` is empty; use write_file to create a file")
        if old == new:
            raise ToolError("`old` and `new` are the same, so nothing would change")
        with _PATH_LOCKS.hold(target):
            return self._patch(target, old, new, replace_all)

    def _patch(self, target: Path, old: str, new: str, replace_all: bool) -> str:
        text, newline = _read_text(target)
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        matches = find_matches(text, old)
        name = self._workspace.display_path(target)
        if not matches:
            raise ToolError(_no_match_message(name, text, old))
        if len(matches) > 1 and not replace_all:
            line_numbers = ", ".join(str(text.count("\n", 0, m.start) + 1) for m in matches[:10])
            raise ToolError(
                f"`old` occurs {len(matches)} times in {name} (lines {line_numbers}); add lines around it so that it "
                "is the only one, or set replace_all"
            )
        changed = _apply(text, matches, new)
        replace_file(target, changed.replace("\n", newline).encode("utf-8", "surrogateescape"))
        how = "" if matches[0].is_exact else " (matched despite differences in white space or quotes)"
        return f"Patched {name}{how}:\n{_diff(text, changed)}"


def patch_diff(target: Path, old: str, new: str, *, replace_all: bool = False) -> tuple[str, ...]:
    """Return what a patch would change, with the line numbers of the file as it is now; empty for a file not compared.

    Where it would fail, the first line in `@@` says why, before the lines of the call. Blocks. Secrets that the file
    holds are redacted.
    """
    try:
        if target.stat().st_size > MAX_COMPARED_BYTES:
            return ()
        text, _ = _read_text(target)
    except FileNotFoundError:
        return _failing_patch("there is no such file", old, new)
    except (OSError, ToolError):
        return ()
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    matches = find_matches(text, old) if old else []
    if not matches:
        return _failing_patch("the text to replace is not in the file", old, new)
    if len(matches) > 1 and not replace_all:
        return _failing_patch(f"the text to replace is in the file {len(matches)} times", old, new)
    return redacted_diff(text, _apply(text, matches, new))


def _failing_patch(why: str, old: str, new: str) -> tuple[str, ...]:
    return (f"@@ this will fail: {why} @@", *edit_lines("patch", {"old": old, "new": new}))


def _apply(text: str, matches: list[Match], new: str) -> str:
    out, at = [], 0
    for m in matches:
        out += [text[at : m.start], m.reindent(new)]
        at = m.end
    return "".join(out) + text[at:]


def _no_match_message(name: str, text: str, old: str) -> str:
    nearest = closest_lines(text, old)
    if nearest is None:
        return f"`old` does not occur in {name}, nor anything similar; read the file again before you patch it"
    line, similar = nearest
    sent, there = old.splitlines()[:_COMPARED_LINES], similar.splitlines()[:_COMPARED_LINES]
    if len(sent) <= _CLOSE_LINES and len(old) + len(similar) <= _CLOSE_CHARS:
        compared = list(difflib.ndiff(sent, there))
    else:
        compared = list(difflib.unified_diff(sent, there, lineterm="", n=1))[2:]
    diff = "\n".join(compared[:_DIFF_LINES])
    legend = "(- what you sent, + what is there)"
    return f"`old` does not occur in {name}. The nearest match is at line {line} {legend}:\n{diff}"


def _diff(before: str, after: str) -> str:
    """Return a unified diff with one line of context, truncated after the first changes."""
    old, new = before.splitlines(), after.splitlines()
    prefix = 0
    for line, other in zip(old, new, strict=False):
        if line != other:
            break
        prefix += 1
    suffix = 0
    for line, other in zip(reversed(old[prefix:]), reversed(new[prefix:]), strict=False):
        if line != other:
            break
        suffix += 1
    prefix, suffix = max(0, prefix - 1), max(0, suffix - 1)
    # difflib is quadratic in the number of lines between the first change and the last.
    is_truncated = max(len(old), len(new)) - prefix - suffix > _COMPARED_LINES
    changed, to = (part[prefix : len(part) - suffix][:_COMPARED_LINES] for part in (old, new))
    lines = [shift_hunk(line, prefix) for line in difflib.unified_diff(changed, to, lineterm="", n=1)][2:]
    if is_truncated:
        return "\n".join(lines[:_DIFF_LINES]) + "\n[… more changes further down]"
    more = f"\n[… {len(lines) - _DIFF_LINES} more lines of the diff]" if len(lines) > _DIFF_LINES else ""
    return "\n".join(lines[:_DIFF_LINES]) + more


def _read_text(path: Path) -> tuple[str, str]:
    """Read a text with `\\n` newlines, and the newline of the file; invalid UTF-8 round-trips via surrogateescape."""
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
