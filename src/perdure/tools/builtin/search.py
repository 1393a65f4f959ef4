"""`search_files`: search file contents or names, with pagination; uses ripgrep if installed, else Python.

The pattern comes from the model. ripgrep is linear for any pattern; Python's `re` can backtrack exponentially, so it
runs in a separate process with a deadline.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Literal

from perdure.core.errors import ToolError
from perdure.tools.builtin import search_script
from perdure.tools.builtin.isolated import IsolatedScript
from perdure.tools.builtin.search_script import LINE_CHARS, files, glob_matches, skipped_folders
from perdure.tools.credential_paths import CREDENTIAL_PATTERN
from perdure.tools.tool import Tool, ToolContext, tool_from_function
from perdure.tools.workspace import Workspace

_SCRIPT = Path(search_script.__file__)
_DEADLINE_S = 20.0
_NO_MATCHES = "No matches. (The search is case-sensitive; start the pattern with (?i) to ignore case.)"
# Beyond this many matches only a lower bound is reported.
_MAX_COUNTED = 10_000
# One argument of a command may have 128 KB; compiling a glob takes quadratic time.
_MAX_PATTERN_CHARS, _MAX_GLOB_CHARS = 20_000, 1_000
_MAX_STDERR_BYTES, _MAX_REASON_CHARS = 4_096, 300


class _InvalidPattern(Exception):
    """Raised when the pattern is not a valid regular expression."""


class _SearchTimeout(Exception):
    """Raised when the search exceeds its deadline."""


class FileSearch:
    """The `search_files` tool over a workspace."""

    def __init__(self, workspace: Workspace, *, ripgrep: str | None = None, deadline_s: float = _DEADLINE_S) -> None:
        self._workspace = workspace
        self._ripgrep = ripgrep
        self._deadline_s = deadline_s

    @classmethod
    def with_ripgrep_if_installed(cls, workspace: Workspace) -> FileSearch:
        return cls(workspace, ripgrep=shutil.which("rg"))

    def tool(self) -> Tool:
        return tool_from_function(
            self.search_files,
            name="search_files",
            toolset="files",
            is_read_only=True,
            timeout_s=60.0,
            read_path_parameter="path",
        )

    def search_files(
        self,
        context: ToolContext,
        pattern: Annotated[str, "a regular expression for content; a glob or a part of the name for names"],
        path: Annotated[str, "folder or file to search in"] = ".",
        kind: Annotated[Literal["content", "names"], "what to match"] = "content",
        glob: Annotated[str, "only files whose name fits, e.g. *.py"] = "",
        limit: Annotated[int, "most matches to show"] = 50,
        offset: Annotated[int, "matches to skip, for reading on"] = 0,
    ) -> str:
        """Finds text in files, or files by name. Says how many there are when not all are shown."""
        if not pattern:
            raise ToolError("the pattern is empty")
        longest = _MAX_GLOB_CHARS if kind == "names" else _MAX_PATTERN_CHARS
        if len(pattern) > longest or len(glob) > _MAX_GLOB_CHARS:
            raise ToolError(
                f"the pattern may have {longest:,} characters and the glob {_MAX_GLOB_CHARS:,}; search for a part of it"
            )
        start = self._workspace.resolve_existing(path)
        page = _MatchPage(max(0, offset), max(1, limit))
        if kind == "names":
            return page.report(self._by_name(pattern, start, glob=glob, context=context))
        by = self._by_ripgrep if self._ripgrep else self._by_python
        try:
            return page.report(by(pattern, start, glob=glob, context=context))
        except _InvalidPattern as why:
            # Most often a piece of code with a bracket in it: search for it literally.
            matches = page.report(by(_escape_literal(pattern), start, glob=glob, context=context))
            return f"[searched for the literal text: {why}]\n{matches}"

    def _by_name(self, pattern: str, start: Path, *, glob: str, context: ToolContext) -> Iterator[str]:
        for path in files(str(start), glob, _hidden_below(start)):
            if context.cancel.is_cancelled:
                return
            name = self._workspace.display_path(Path(path))
            if _name_matches(name.replace(os.sep, "/"), pattern):
                yield name

    def _by_python(self, pattern: str, start: Path, *, glob: str, context: ToolContext) -> Iterator[str]:
        hidden = _hidden_below(start)
        job = {"pattern": pattern, "start": str(start), "glob": glob, "hidden": hidden.pattern if hidden else ""}
        with IsolatedScript(_SCRIPT, deadline_s=self._deadline_s, cancel=context.cancel) as script:
            for raw in script.stream_lines(job):
                if not raw.endswith(b"\n"):  # truncated when the process was stopped
                    break
                match = json.loads(raw)
                if isinstance(match, dict):
                    raise _InvalidPattern(f"not a regular expression, {match['error']}")
                path, number, line = match
                yield f"{self._workspace.display_path(Path(path))}:{number}:{line}"
            if script.is_timed_out:
                raise _SearchTimeout(
                    f"stopped after {self._deadline_s:g} s: nested repeats such as (a+)+ can take forever; "
                    "use a simpler pattern, or narrow the path"
                )

    def _by_ripgrep(self, pattern: str, start: Path, *, glob: str, context: ToolContext) -> Iterator[str]:
        command = [str(self._ripgrep), "--line-number", "--no-heading", "--with-filename", "--null", "--color=never"]
        command += ["--sort=path", f"--max-columns={LINE_CHARS}", "--max-columns-preview", "--hidden"]
        # Unreadable folders are not errors.
        command += ["--no-messages"]
        command += [x for name in skipped_folders() for x in ("--glob", f"!**/{name}/**")]
        command += ["--glob", glob] if glob else []
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [*command, "--regexp", pattern, "--", str(start)],
                # Globs with a folder are relative to the working directory.
                cwd=start if start.is_dir() else start.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # To a file: ripgrep quotes an invalid pattern, which may be larger than a pipe holds.
                stderr=errors,
                text=True,
                errors="replace",
            )
            unregister = context.cancel.on_cancel(process.kill)
            root = f"{self._workspace.root.resolve()}{os.sep}"
            try:
                assert process.stdout is not None
                hidden = _hidden_below(start)
                for line in process.stdout:
                    path, _, match = line.rstrip("\n").partition("\0")
                    if hidden is None or not _is_below_hidden(path, start, hidden):
                        yield f"{path.removeprefix(root)}:{match}"
                if not context.cancel.is_cancelled:
                    _check_ripgrep(process.wait(), errors)
            finally:
                unregister()
                process.kill()
                process.communicate()


def _check_ripgrep(status: int, errors: IO[bytes]) -> None:
    """Raise _InvalidPattern or ToolError for a search that failed; its messages may be of any length."""
    if status < 0:
        raise ToolError(f"the search failed: ripgrep ended by signal {-status}; narrow the pattern or the path")
    size = errors.seek(0, os.SEEK_END)
    errors.seek(0)
    first = errors.read(_MAX_STDERR_BYTES).decode("utf-8", "replace").strip()
    if status != 2 or not first:
        return
    if "regex parse error" in first:
        errors.seek(max(0, size - _MAX_REASON_CHARS))
        last = errors.read().decode("utf-8", "replace").strip().splitlines()[-1]
        raise _InvalidPattern(f"not a regular expression, {last.removeprefix('error: ')}")
    raise ToolError(f"the search failed: {first[:_MAX_REASON_CHARS]}")


def _hidden_below(start: Path) -> re.Pattern[str] | None:
    """Return the pattern of credential paths to skip; None for a search that starts at one, which was approved."""
    return None if CREDENTIAL_PATTERN.search(start.as_posix()) else CREDENTIAL_PATTERN


def _is_below_hidden(path: str, start: Path, hidden: re.Pattern[str]) -> bool:
    """Whether the file, or a folder between it and the start of the search, is on a hidden path."""
    file = Path(path)
    folders = (f for f in (file, *file.parents) if f != start and f.is_relative_to(start))
    return any(hidden.search(f.as_posix()) for f in folders)


def _escape_literal(text: str) -> str:
    """Escape a text for a literal match, with escapes that both engines accept."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text)


@dataclass(frozen=True, slots=True)
class _MatchPage:
    """The range of matches to show."""

    offset: int
    limit: int

    def report(self, matches: Iterator[str]) -> str:
        """Format the matches of this page, with the next offset if there are more."""
        page: list[str] = []
        total, most = 0, max(_MAX_COUNTED, self.offset + self.limit + 1)
        stopped = ""
        try:
            for line in matches:
                total += 1
                if self.offset < total <= self.offset + self.limit:
                    page.append(line)
                if total >= most:
                    break
        except _SearchTimeout as why:
            stopped = f"\n[{why}]"
        if not total:
            return stopped.strip() or _NO_MATCHES
        at_least = "at least " if total >= most or stopped else ""
        if not page:
            return f"There are {at_least}{total:,} matches; offset {self.offset:,} is past the last one.{stopped}"
        last = self.offset + len(page)
        if self.offset == 0 and last == total:
            return "\n".join(page) + stopped
        more = f"continue with offset={last}, or narrow the pattern or the path" if last < total else "that is all"
        return "\n".join(page) + f"\n[matches {self.offset + 1:,} to {last:,} of {at_least}{total:,}; {more}]{stopped}"


def _name_matches(path: str, pattern: str) -> bool:
    return glob_matches(path, pattern) or pattern.lower() in path.rpartition("/")[2].lower()
