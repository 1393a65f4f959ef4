"""`write_file` and `patch`: files are changed whole or not at all, and a patch that does not apply says why."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated

from perdure.core.errors import ToolError
from perdure.tools.atomic import replace_file
from perdure.tools.builtin.matching import Match, closest, find_matches
from perdure.tools.tool import Tool, tool_from_function
from perdure.tools.workspace import Workspace

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
