"""`search_files`: text in files, or file names, a page at a time; ripgrep where it is installed, else Python.

The pattern is the model's. ripgrep takes linear time for any; Python's `re` may take for ever, so it runs in a process
of its own, which is killed with the call or after its deadline.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from perdure.core.errors import ToolError
from perdure.tools.builtin import search_script
from perdure.tools.builtin.isolated import IsolatedScript
from perdure.tools.builtin.search_script import LINE_CHARS, files, glob_fits, skipped_files, skipped_folders
from perdure.tools.tool import Tool, ToolContext, tool_from_function
from perdure.tools.workspace import Workspace

_SCRIPT = Path(search_script.__file__)
_DEADLINE_S = 20.0
_NO_MATCHES = "No matches. (Upper and lower case differ; (?i) in front of a pattern ignores that.)"
# Beyond this many matches the count is a floor: nobody reads on, so nobody needs the exact figure.
_COUNTED = 10_000


class _NoPattern(Exception):
    """The pattern is no regular expression."""


class _TooSlow(Exception):
    """The search did not end in time."""


class FileSearch:
    """Searches a workspace."""

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
        start = self._workspace.existing(path)
        page = _Page(max(0, offset), max(1, limit))
        if kind == "names":
            return page.report(self._by_name(pattern, start, glob=glob, context=context))
        by = self._by_ripgrep if self._ripgrep else self._by_python
        try:
            return page.report(by(pattern, start, glob=glob, context=context))
        except _NoPattern as why:
            # Most often a piece of code with a bracket in it: looked for as it stands, it is what was meant.
            literal = page.report(by(_literal(pattern), start, glob=glob, context=context))
            return f"[searched for the text as it stands: {why}]\n{literal}"

    def _by_name(self, pattern: str, start: Path, *, glob: str, context: ToolContext) -> Iterator[str]:
        for path in files(str(start), glob):
            if context.cancel.is_cancelled:
                return
            shown = self._workspace.shown(Path(path))
            if _name_fits(shown.replace(os.sep, "/"), pattern):
                yield shown

    def _by_python(self, pattern: str, start: Path, *, glob: str, context: ToolContext) -> Iterator[str]:
        job = {"pattern": pattern, "start": str(start), "glob": glob}
        with IsolatedScript(_SCRIPT, deadline_s=self._deadline_s, cancel=context.cancel) as script:
            for said in script.lines(job):
                if not said.endswith(b"\n"):  # cut off by its end
                    break
                match = json.loads(said)
                if isinstance(match, dict):
                    raise _NoPattern(f"not a regular expression, {match['error']}")
                path, number, line = match
                yield f"{self._workspace.shown(Path(path))}:{number}:{line}"
            if script.is_late:
                raise _TooSlow(
                    f"stopped after {self._deadline_s:g} s: nested repeats such as (a+)+ can take for ever; "
                    "use a simpler pattern, or narrow the path"
                )

    def _by_ripgrep(self, pattern: str, start: Path, *, glob: str, context: ToolContext) -> Iterator[str]:
        command = [str(self._ripgrep), "--line-number", "--no-heading", "--with-filename", "--color=never"]
        command += ["--sort=path", f"--max-columns={LINE_CHARS}", "--max-columns-preview", "--hidden"]
        # Folders it may not read would fill the pipe of its errors, which is read last.
        command += ["--no-messages"]
        command += [x for name in skipped_folders() for x in ("--glob", f"!**/{name}/**")]
        command += [x for name in skipped_files() for x in ("--glob", f"!**/{name}")]
        command += ["--glob", glob] if glob else []
        process = subprocess.Popen(
            [*command, "--regexp", pattern, "--", str(start)],
            # A glob with a folder in it is read from here.
            cwd=start if start.is_dir() else start.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        forget = context.cancel.on_cancel(process.kill)
        root = f"{self._workspace.root.resolve()}{os.sep}"
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stdout:
                yield line.rstrip("\n").removeprefix(root)
            if process.wait() == 2 and (said := process.stderr.read().strip()):
                if "regex parse error" in said:
                    raise _NoPattern(f"not a regular expression, {said.splitlines()[-1].removeprefix('error: ')}")
                raise ToolError(f"the search failed: {said[:300]}")
        finally:
            forget()
            process.kill()
            process.communicate()


def _literal(text: str) -> str:
    """A pattern for the text as it stands; only what both engines take as special is escaped."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text)


@dataclass(frozen=True, slots=True)
class _Page:
    """Which of the matches to show."""

    offset: int
    limit: int

    def report(self, matches: Iterator[str]) -> str:
        """The matches of this page, and how to read on where there are more."""
        shown: list[str] = []
        total, most = 0, max(_COUNTED, self.offset + self.limit + 1)
        stopped = ""
        try:
            for line in matches:
                total += 1
                if self.offset < total <= self.offset + self.limit:
                    shown.append(line)
                if total >= most:
                    break
        except _TooSlow as why:
            stopped = f"\n[{why}]"
        if not total:
            return (
                stopped.strip() or "No matches. (Upper and lower case differ; (?i) in front of a pattern ignores that.)"
            )
        at_least = "at least " if total >= most or stopped else ""
        if not shown:
            return f"There are {at_least}{total:,} matches; offset {self.offset:,} is behind the last one.{stopped}"
        last = self.offset + len(shown)
        if self.offset == 0 and last == total:
            return "\n".join(shown) + stopped
        on = f"read on with offset={last}, or narrow the pattern or the path" if last < total else "that is all"
        return "\n".join(shown) + f"\n[matches {self.offset + 1:,} to {last:,} of {at_least}{total:,}; {on}]{stopped}"


def _name_fits(path: str, pattern: str) -> bool:
    return glob_fits(path, pattern) or pattern.lower() in path.rpartition("/")[2].lower()
