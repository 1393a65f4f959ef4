"""`search_files`: text in files, or file names, capped and counted; ripgrep where it is installed, else Python."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from perdure.core.errors import ToolError
from perdure.tools.tool import Tool, ToolContext, tool_from_function
from perdure.tools.workspace import Workspace

_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".tox"})
_LINE_CHARS = 300
_MAX_FILE_BYTES = 20_000_000
# Beyond this many matches the count is a floor: nobody reads on, so nobody needs the exact figure.
_COUNTED = 10_000


class _NoPattern(Exception):
    """The pattern is no regular expression."""


class FileSearch:
    """Searches a workspace."""

    def __init__(self, workspace: Workspace, *, ripgrep: str | None = None) -> None:
        self._workspace = workspace
        self._ripgrep = ripgrep

    @classmethod
    def with_ripgrep_if_installed(cls, workspace: Workspace) -> FileSearch:
        return cls(workspace, ripgrep=shutil.which("rg"))

    def tool(self) -> Tool:
        return tool_from_function(
            self.search_files, name="search_files", toolset="files", is_read_only=True, timeout_s=60.0
        )

    def search_files(
        self,
        context: ToolContext,
        pattern: Annotated[str, "a regular expression for content; a glob or a part of the name for names"],
        path: Annotated[str, "folder or file to search in"] = ".",
        kind: Annotated[Literal["content", "names"], "what to match"] = "content",
        glob: Annotated[str, "only files whose name fits, e.g. *.py"] = "",
        limit: Annotated[int, "most matches to show"] = 50,
    ) -> str:
        """Finds text in files, or files by name. Says how many there are when not all are shown."""
        if not pattern:
            raise ToolError("the pattern is empty")
        start = self._workspace.existing(path)
        limit = max(1, limit)
        if kind == "names":
            return _report(self._by_name(pattern, start, glob=glob), limit)
        by = self._by_ripgrep if self._ripgrep else self._by_python
        try:
            return _report(by(pattern, start, glob=glob, context=context), limit)
        except _NoPattern as why:
            # Most often a piece of code with a bracket in it: looked for as it stands, it is what was meant.
            literal = _report(by(_literal(pattern), start, glob=glob, context=context), limit)
            return f"[searched for the text as it stands: {why}]\n{literal}"

    def _by_name(self, pattern: str, start: Path, *, glob: str) -> Iterator[str]:
        for p in _files(start, glob):
            shown = self._workspace.shown(p)
            if _name_fits(shown.replace(os.sep, "/"), pattern):
                yield shown

    def _by_python(self, pattern: str, start: Path, *, glob: str, context: ToolContext) -> Iterator[str]:
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise _NoPattern(f"not a regular expression, {error}") from None
        for path in _files(start, glob):
            if context.cancel.is_cancelled:
                return
            shown = self._workspace.shown(path)
            for number, line in _text_lines(path):
                if wanted.search(line):
                    yield f"{shown}:{number}:{_cut(line)}"

    def _by_ripgrep(self, pattern: str, start: Path, *, glob: str, context: ToolContext) -> Iterator[str]:
        command = [str(self._ripgrep), "--line-number", "--no-heading", "--with-filename", "--color=never"]
        command += ["--sort=path", f"--max-columns={_LINE_CHARS}", "--max-columns-preview", "--hidden"]
        command += [x for name in sorted(_SKIPPED) for x in ("--glob", f"!**/{name}/**")]
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


def _report(found: Iterator[str], limit: int) -> str:
    shown: list[str] = []
    total = 0
    for line in found:
        total += 1
        if len(shown) < limit:
            shown.append(line)
        if total >= _COUNTED:
            break
    if not total:
        return "No matches. (Upper and lower case differ; (?i) in front of a pattern ignores that.)"
    if total <= limit:
        return "\n".join(shown)
    at_least = "at least " if total >= _COUNTED else ""
    return "\n".join(shown) + f"\n[{limit} of {at_least}{total:,} matches shown; narrow the pattern or the path]"


def _files(start: Path, glob: str) -> Iterator[Path]:
    if start.is_file():
        yield start
        return
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED)
        for name in sorted(names):
            path = Path(folder) / name
            if not glob or _glob_fits(path.relative_to(start).as_posix(), glob):
                yield path


def _name_fits(path: str, pattern: str) -> bool:
    return _glob_fits(path, pattern) or pattern.lower() in path.rpartition("/")[2].lower()


def _glob_fits(path: str, glob: str) -> bool:
    """A glob with a / is about the whole path, one without about the name; `**/` stands for any folders, or none."""
    if "/" not in glob:
        return fnmatch.fnmatch(path.rpartition("/")[2], glob)
    glob = glob.removeprefix("./").removeprefix("/")
    return fnmatch.fnmatch(path, glob.replace("**/", "*")) or fnmatch.fnmatch(path, glob)


def _text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text file; binary, huge and unreadable ones have none."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            return
        with path.open("rb") as file:
            if b"\0" in file.read(8_192):
                return
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                yield number, line.rstrip("\n")
    except OSError:
        return


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]} [… {len(line) - _LINE_CHARS:,} more characters]"
