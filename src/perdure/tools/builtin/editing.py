"""`write_file` and `patch`: files are changed whole or not at all, and a patch that does not apply says why."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

from perdure.core.errors import ToolError
from perdure.tools.atomic import replace_file
from perdure.tools.builtin.matching import Match, closest, find_matches
from perdure.tools.tool import Tool, tool_from_function
from perdure.tools.workspace import Workspace

_DIFF_LINES = 60


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
    diff = "\n".join(list(difflib.ndiff(old.splitlines(), found.splitlines()))[:_DIFF_LINES])
    return f"`old` does not stand in {shown}. The nearest is at line {line} (- what you sent, + what is there):\n{diff}"


def _diff(before: str, after: str) -> str:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
    more = f"\n[… {len(lines) - _DIFF_LINES} more lines of the diff]" if len(lines) > _DIFF_LINES else ""
    return "\n".join(lines[:_DIFF_LINES]) + more


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
