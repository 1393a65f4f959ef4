"""Copies of a workspace's files from before a shell command, for those that it deletes or overwrites.

Which files a command will change is not known beforehand, so the files that were changed most recently are copied into
memory, as many as fit: in a repository those are the ones that no commit has yet. What a command did not touch is not
copied again, and only what it did change is stored.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import StoreError
from perdure.core.ports import Checkpoints

_log = logging.getLogger(__name__)
MAX_COPIED_BYTES = 32_000_000
_MAX_FILE_BYTES = 8_000_000
_MAX_FILES = 20_000
_MAX_SCAN_S = 0.5
# The most files stored for one command: a checkout of another branch changes thousands.
_MAX_STORED = 500
# Folders that a program fills again, and those of version control, which have their own history.
_SKIPPED_FOLDERS = frozenset(
    [
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        "__pycache__",
        ".venv",
        "venv",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
        ".gradle",
    ]
)


@dataclass(frozen=True, slots=True)
class _FileVersion:
    """The modification time, size and inode of a file, which change whenever its content does."""

    mtime_ns: int
    size: int
    inode: int


class WorkspaceCopies:
    """Keeps copies of a folder's newest files in memory, at most `max_bytes`. Thread-safe; blocks."""

    def __init__(self, root: Path, *, max_bytes: int = MAX_COPIED_BYTES) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._copies: dict[str, tuple[_FileVersion, bytes]] = {}

    def refresh(self) -> dict[str, tuple[_FileVersion, bytes]]:
        """Copy the files that changed since the last call; return all copies by path."""
        with self._lock:
            copies: dict[str, tuple[_FileVersion, bytes]] = {}
            room = self._max_bytes
            for path, version in sorted(self.scan(), key=lambda file: -file[1].mtime_ns):
                if version.size > min(room, _MAX_FILE_BYTES):
                    continue
                previous = self._copies.get(path)
                content = previous[1] if previous is not None and previous[0] == version else _read(path, version.size)
                if content is not None:
                    copies[path] = (version, content)
                    room -= len(content)
            self._copies = copies
            return copies

    def scan(self) -> Iterator[tuple[str, _FileVersion]]:
        """Yield the regular files of the folder, the outer ones first; a very large folder is cut off."""
        folders, count, deadline_s = deque([str(self._root)]), 0, time.monotonic() + _MAX_SCAN_S
        while folders and count < _MAX_FILES and time.monotonic() < deadline_s:
            try:
                entries = list(os.scandir(folders.popleft()))
            except OSError:
                continue
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED_FOLDERS:
                            folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        count += 1
                        yield entry.path, _version(entry.stat(follow_symlinks=False))
                except OSError:  # deleted meanwhile
                    continue


class WorkspacePool:
    """The copies of each workspace, shared by the agents that work in it. Thread-safe."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._copies: dict[Path, WorkspaceCopies] = {}

    def copies_of(self, root: Path) -> WorkspaceCopies | None:
        """Return the copies of a folder; None for the user's home and above it.

        Other programs write there all the time, and what they write is not a change of the command.
        """
        if self._home.is_relative_to(root):
            return None
        with self._lock:
            return self._copies.setdefault(root, WorkspaceCopies(root))


class CommandSnapshot:
    """The files of a workspace before a command; `record` stores those that it has deleted or changed."""

    def __init__(self, checkpoints: Checkpoints, conversation_id: str, copies: WorkspaceCopies) -> None:
        self._checkpoints = checkpoints
        self._conversation_id = conversation_id
        self._before = copies.refresh()

    def record(self) -> None:
        """Store the old content of files that the command changed or deleted.

        Never raises: a result does not depend on it.
        """
        stored = 0
        for path, (version, before) in self._before.items():
            after = _after(path, version, before)
            if after == before:
                continue
            try:
                self._checkpoints.save(self._conversation_id, path, before=before, after=after)
            except StoreError as error:
                _log.warning("the copy of %s could not be stored: %s", path, error)
                return
            stored += 1
            if stored >= _MAX_STORED:
                _log.warning("a command changed more than %d files; no more copies are stored", _MAX_STORED)
                return


def _after(path: str, version: _FileVersion, before: bytes) -> bytes | None:
    """Return a file's content after the command: `before` if unchanged, None if it is gone."""
    try:
        present = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(present.st_mode):
        return None
    return before if _version(present) == version else _read(path, present.st_size)


def _version(status: os.stat_result) -> _FileVersion:
    return _FileVersion(status.st_mtime_ns, status.st_size, status.st_ino)


def _read(path: str, size: int) -> bytes | None:
    """Return the content of a regular file, never through a link; None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            return file.read(max(size, 1) + 1)[: _MAX_FILE_BYTES + 1]
    except OSError:
        return None
