"""Search files for a regular expression, in a separate process (see `isolated`): standard library only.

The request is one line of JSON: pattern, start, glob. The response is a JSON line per match, [path, line number, line],
or {"error": reason} for an invalid pattern.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Iterator

_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".tox"})
# Credential folders and files: skipped by a search from above; a search that starts inside needs approval.
_SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".kube"})
_SECRET_FILES = frozenset({".netrc", ".pgpass", ".git-credentials", ".vault-token"})
LINE_CHARS = 300
_MAX_FILE_BYTES = 20_000_000
_MAX_MEMORY_BYTES = 1 << 30


def skipped_folders() -> list[str]:
    """Return the names of folders that are not searched, sorted."""
    return sorted(_SKIPPED | _SECRET_FOLDERS)


def skipped_files() -> list[str]:
    """Return the names of credential files, sorted."""
    return sorted(_SECRET_FILES)


def files(start: str, glob: str) -> Iterator[str]:
    """Yield the files below a folder in order, or `start` itself if it is a file."""
    if os.path.isfile(start):
        yield start
        return
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and f not in _SECRET_FOLDERS)
        for name in sorted(n for n in names if n not in _SECRET_FILES):
            path = os.path.join(folder, name)
            if not glob or glob_matches(os.path.relpath(path, start).replace(os.sep, "/"), glob):
                yield path


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
    for path in files(job["start"], job["glob"]):
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
