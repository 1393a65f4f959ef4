"""Searches files for a regular expression, run as a process of its own (see `isolated`): standard library only.

Input is one line of JSON: pattern, start, glob. Output is a JSON line for each match: [path, line number, line], or
{"error": why} for a pattern that is not a regular expression.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Iterator

_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".tox"})
# Where credentials live. A search from above passes them by; one that starts inside is asked about.
_SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".kube"})
_SECRET_FILES = frozenset({".netrc", ".pgpass", ".git-credentials", ".vault-token"})
LINE_CHARS = 300
_MAX_FILE_BYTES = 20_000_000
_MAX_MEMORY_BYTES = 1 << 30


def skipped_folders() -> list[str]:
    """Folders nobody wants to search, in order."""
    return sorted(_SKIPPED | _SECRET_FOLDERS)


def skipped_files() -> list[str]:
    """Files that hold credentials, in order."""
    return sorted(_SECRET_FILES)


def files(start: str, glob: str) -> Iterator[str]:
    """The files of a folder in order, or the one file that `start` is."""
    if os.path.isfile(start):
        yield start
        return
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and f not in _SECRET_FOLDERS)
        for name in sorted(n for n in names if n not in _SECRET_FILES):
            path = os.path.join(folder, name)
            if not glob or glob_fits(os.path.relpath(path, start).replace(os.sep, "/"), glob):
                yield path


def glob_fits(path: str, glob: str) -> bool:
    """A glob with a / is about the whole path, one without about the name; `**/` stands for any folders, or none."""
    if "/" not in glob:
        return fnmatch.fnmatch(path.rpartition("/")[2], glob)
    glob = glob.removeprefix("./").removeprefix("/")
    return fnmatch.fnmatch(path, glob.replace("**/", "*")) or fnmatch.fnmatch(path, glob)


def text_lines(path: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text file; binary, huge and unreadable ones have none."""
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
    for path in files(job["start"], job["glob"]):
        # Like ripgrep: a link met on the way may lead anywhere, to a key as well.
        if path != job["start"] and os.path.islink(path):
            continue
        for number, line in text_lines(path):
            if pattern.search(line):
                write(json.dumps([path, number, cut_line(line)]) + "\n")
        # What was found before a line that takes forever is worth having.
        sys.stdout.flush()


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    except (ImportError, OSError, ValueError):  # not on Windows; or a lower limit is set already
        return


if __name__ == "__main__":
    main()
