"""Atomic file replacement: write a temporary file in the same folder, sync it, rename it onto the target.

Readers see the old content or the new, never a part of either, and a crash leaves the old file intact. All but
`discard` raise OSError; callers translate it into their own error.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

PRIVATE_MODE = 0o600


class AtomicFile:
    """A file under a temporary name until `commit` renames it onto `target`.

    As a context manager it commits when the block succeeds and discards when the block raises.
    """

    def __init__(self, target: Path, *, mode: int, is_durable: bool = True, temporary: Path | None = None) -> None:
        """Open a temporary file next to `target`.

        `temporary` sets its name, for callers that clean up leftovers by name.
        """
        self.target = target
        self._mode = mode
        self._is_durable = is_durable
        if temporary is None:
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.")
            self.temporary = Path(name)
        else:
            handle = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, PRIVATE_MODE)
            self.temporary = temporary
        self._file: BinaryIO = os.fdopen(handle, "wb")

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def commit(self) -> None:
        """Rename the file onto its target; durable when this returns, unless `is_durable` is False."""
        self._file.flush()
        if self._is_durable:
            os.fsync(self._file.fileno())
        self._file.close()
        self.temporary.chmod(self._mode)
        self.temporary.replace(self.target)
        if self._is_durable:
            sync_folder(self.target.parent)

    def discard(self) -> None:
        """Close and remove the temporary file; does nothing after `commit`. Ignores OSError."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.temporary.unlink()

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.discard()


def replace_file(target: Path, content: bytes, *, mode: int, is_durable: bool = True) -> None:
    """Replace the content of `target`, or create it, in one step."""
    with AtomicFile(target, mode=mode, is_durable=is_durable) as file:
        file.write(content)


def mode_of(target: Path, *, default: int | None = None) -> int:
    """Return the permissions of an existing file; for a new one `default`, or what the umask allows."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    return default if default is not None else 0o666 & ~_umask()


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename in it survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network filesystems do not sync folders
            raise
    finally:
        os.close(handle)


def _umask() -> int:
    """Read the process's umask from /proc, because os.umask() can only read it by setting it for all threads."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def private_opener(path: str, flags: int) -> int:
    """Open a file that only its owner can access: `open(path, "w", opener=private_opener)`.

    Tightens an existing one.
    """
    handle = os.open(path, flags, PRIVATE_MODE)
    with suppress(OSError, AttributeError):  # not ours to change; no such call on Windows
        os.fchmod(handle, PRIVATE_MODE)
    return handle
