"""Where the text of tool outputs lies: a port, and files beside the database.

A name on the blobs is made of our own ids alone, so nothing a model invents can place a file elsewhere.
"""

from __future__ import annotations

import codecs
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from perdure.core.errors import NotFound, StoreUnavailable
from perdure.core.files import PRIVATE_MODE, AtomicFile, sync_folder

_CHUNK_BYTES = 1 << 18
# How the name of a text ends while it is being written.
_PART = ".part"


class BlobWriter(Protocol):
    """One text being written."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> str:
        """The place to find it again; complete and durable when this returns."""
        ...

    def discard(self) -> None:
        """Leaves nothing behind."""
        ...


class BlobStore(Protocol):
    """Texts by place, as UTF-8."""

    def begin(self, conversation_id: str, name: str) -> BlobWriter: ...

    def chunks(self, place: str) -> Iterator[str]:
        """The whole text in pieces. Raises NotFound."""
        ...

    def remove(self, conversation_id: str, place: str | None = None) -> None:
        """One text of a conversation, or everything of it."""
        ...

    def shown(self, place: str) -> str:
        """The place as a person or a tool may open it."""
        ...

    def copy_to(self, beside: Path) -> None:
        """All of it, next to a backup of the database."""
        ...


class FileBlobStore:
    """A folder beside the database file, readable by its owner alone."""

    def __init__(self, database: Path) -> None:
        self._folder = outputs_folder(database)

    def begin(self, conversation_id: str, name: str) -> BlobWriter:
        with _translate_errors(self._folder):
            folder = self._folder / conversation_id
            # One by one: a parent made along the way would not get the mode.
            self._folder.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            return _FileWriter(folder / f"{name}.txt", self._folder)

    def chunks(self, place: str) -> Iterator[str]:
        path = self._folder / place
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            with path.open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    yield decoder.decode(data)
        except FileNotFoundError:
            raise NotFound(f"the output's file is gone: {path}") from None
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be read: {error.strerror}") from error

    def remove(self, conversation_id: str, place: str | None = None) -> None:
        if place is None:
            shutil.rmtree(self._folder / conversation_id, ignore_errors=True)
            return
        with _translate_errors(self._folder / place):
            (self._folder / place).unlink(missing_ok=True)

    def sweep(self, deleted: Iterable[str]) -> None:
        """Removes what a crash left of conversations that were deleted."""
        for conversation_id in deleted:
            if (self._folder / conversation_id).is_dir():
                self.remove(conversation_id)

    def shown(self, place: str) -> str:
        return str(self._folder / place)

    def copy_to(self, beside: Path) -> None:
        """Outputs that are still being written, or that vanish meanwhile, are not part of the copy."""
        if not self._folder.is_dir():
            return
        target = outputs_folder(beside)
        with _translate_errors(beside):
            target.mkdir(mode=0o700)
            for folder in self._folder.iterdir():
                copied = target / folder.name
                copied.mkdir(mode=0o700)
                for path in _finished_in(folder):
                    _copy_if_there(path, copied / path.name)
                sync_folder(copied)
            sync_folder(target)


class _FileWriter:
    """A blob under a temporary name until it is complete and synced."""

    def __init__(self, path: Path, root: Path) -> None:
        self._root = root
        self._file = AtomicFile(path, mode=PRIVATE_MODE, temporary=path.with_suffix(_PART))

    def write(self, data: bytes) -> None:
        with _translate_errors(self._file.temporary):
            self._file.write(data)

    def finish(self) -> str:
        with _translate_errors(self._file.temporary):
            self._file.commit()
        return str(self._file.target.relative_to(self._root))

    def discard(self) -> None:
        self._file.discard()
        with suppress(OSError):
            self._file.target.unlink()


def outputs_folder(database: Path) -> Path:
    return database.with_name(f"{database.name}.outputs")


def _finished_in(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from (path for path in folder.iterdir() if path.suffix != _PART)


def _copy_if_there(path: Path, target: Path) -> None:
    try:
        source = path.open("rb")
    except FileNotFoundError:  # its conversation was deleted meanwhile
        return
    with source, os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        shutil.copyfileobj(source, file, _CHUNK_BYTES)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror or error}") from error
