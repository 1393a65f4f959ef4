"""Search files for a regular expression, in a separate process (see `isolated`): standard library only.

The request is one line of JSON: pattern, start, glob, and `hidden`, a pattern of paths to skip. The response is a JSON
line per match, [path, line number, line], or {"error": reason} for an invalid pattern.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Iterator

_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".tox"})
LINE_CHARS = 300
_MAX_FILE_BYTES = 20_000_000
_MAX_MEMORY_BYTES = 1 << 30


def skipped_folders() -> list[str]:
    """Return the names of folders that are not searched, sorted."""
    return sorted(_SKIPPED)


def files(start: str, glob: str, hidden: re.Pattern[str] | None = None) -> Iterator[str]:
    """Yield the files below a folder in order, or `start` itself if it is a file; not those on `hidden` paths."""
    if os.path.isfile(start):
        yield start
        return
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and not _is_hidden(folder, f, hidden))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if glob and not glob_matches(os.path.relpath(path, start).replace(os.sep, "/"), glob):
                continue
            if not _is_hidden(folder, name, hidden):
                yield path


def _is_hidden(folder: str, name: str, hidden: re.Pattern[str] | None) -> bool:
    return hidden is not None and hidden.search(f"{folder.replace(os.sep, '/').rstrip('/')}/{name}") is not None


def glob_matches(path: str, glob: str) -> bool:
    """Match globs with a / against the whole path, others against the name; `**/` matches any folders, or none."""
    if "/" not in glob:
        return fnmatch.fnmatch(path.rpartition("/")[2], glob)
    glob = glob.removeprefix("./").removeprefix("/")
    return fnmatch.fnmatch(path, glob.replace("**/", "*")) or fnmatch.fnmatch(path, glob)


def text_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file; nothing for binary, huge and unreadable ones."""
    try:
        if os.stat(path).st_size > _MAX_FILE_BYTES or not os.path.isfile(path):
            return
        with open(path, "rb") as file:
            if b"\0" in file.read(8_192):
                return
        with open(path, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                yield number, line.rstrip("\n")
    except OSError:
        return


def cut_line(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} [… {len(line) - LINE_CHARS:,} more characters]"


def main() -> None:
    _limit_memory()
    job = json.loads(sys.stdin.buffer.readline())
    write = sys.stdout.write
    try:
        pattern = re.compile(job["pattern"])
    except (re.error, RecursionError, OverflowError) as error:
        write(json.dumps({"error": str(error)}) + "\n")
        return
    hidden = re.compile(job["hidden"]) if job.get("hidden") else None
    for path in files(job["start"], job["glob"], hidden):
        # Like ripgrep, do not follow links: they may lead to a credential.
        if path != job["start"] and os.path.islink(path):
            continue
        for number, line in text_lines(path):
            if pattern.search(line):
                write(json.dumps([path, number, cut_line(line)]) + "\n")
        # Matches before a line that takes forever are still reported.
        sys.stdout.flush()


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    except (ImportError, OSError, ValueError):  # not on Windows; or a lower limit is set already
        return


if __name__ == "__main__":
    main()
