"""Copy a file before a tool changes it, and restore files to how they were."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import NotFound, StoreError, ToolError
from perdure.core.ports import Checkpoints, FileChange
from perdure.tools.workspace import replace_file

_log = logging.getLogger(__name__)
# Larger files are not read for a copy.
_MAX_BYTES = 64_000_000


class FileSnapshot:
    """The content of a file before a call changes it; `record` stores the change if there was one."""

    def __init__(self, checkpoints: Checkpoints, conversation_id: str, path: Path) -> None:
        self._checkpoints = checkpoints
        self._conversation_id = conversation_id
        self._path = path
        self._before = _content_of(path)

    def record(self) -> None:
        """Store the change. Never raises: a tool's result does not depend on its copy."""
        after = _content_of(self._path)
        if after == self._before:
            return
        try:
            self._checkpoints.save(self._conversation_id, str(self._path), before=self._before, after=after)
        except StoreError as error:
            _log.warning("the copy of %s could not be stored: %s", self._path, error)


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Outcome of a restore for each file, by path."""

    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    # Changed since by something else, and left alone.
    changed_since: tuple[str, ...] = ()
    # A path and why it could not be put back.
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.restored or self.deleted or self.changed_since or self.failed)


def restore_files(
    changes: Sequence[FileChange], content: Callable[[FileChange], bytes], *, overwrites: bool = False
) -> RestoreResult:
    """Restore the files in `changes` (oldest first) to their state before the first change.

    A file that something else has changed since is left alone unless `overwrites`.
    """
    restored, deleted, failed = [], [], []
    changed_since = () if overwrites else find_conflicts(changes, content)
    for path, change in _first_changes(changes).items():
        if path in changed_since or _is_as_before(_content_of(Path(path)), change, content):
            continue
        try:
            if change.existed:
                replace_file(Path(path), content(change))
                restored.append(path)
            else:
                Path(path).unlink(missing_ok=True)
                deleted.append(path)
        except (NotFound, ToolError) as error:
            failed.append((path, str(error)))
        except OSError as error:
            failed.append((path, error.strerror or str(error)))
    return RestoreResult(tuple(restored), tuple(deleted), changed_since, tuple(failed))


def find_conflicts(changes: Sequence[FileChange], content: Callable[[FileChange], bytes]) -> tuple[str, ...]:
    """Return the files that something else has changed since, so that a restore would lose those changes."""
    last = {c.path: c for c in changes}
    conflicts = []
    for path, change in _first_changes(changes).items():
        present = _content_of(Path(path))
        if _digest(present) != last[path].after_digest and not _is_as_before(present, change, content):
            conflicts.append(path)
    return tuple(conflicts)


def unrestored_paths(changes: Sequence[FileChange], content: Callable[[FileChange], bytes]) -> tuple[str, ...]:
    """Return the files that are not as they were before the first change."""
    return tuple(
        path
        for path, change in _first_changes(changes).items()
        if not _is_as_before(_content_of(Path(path)), change, content)
    )


def _first_changes(changes: Sequence[FileChange]) -> dict[str, FileChange]:
    return {c.path: c for c in reversed(changes)}


def _is_as_before(present: bytes | None, change: FileChange, content: Callable[[FileChange], bytes]) -> bool:
    if not change.existed or present is None:
        return not change.existed and present is None
    try:
        return content(change) == present
    except NotFound:
        return False


def _content_of(path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist or cannot be copied."""
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size <= _MAX_BYTES else None
    except OSError:
        return None


def _digest(content: bytes | None) -> str | None:
    return hashlib.sha256(content).hexdigest() if content is not None else None
