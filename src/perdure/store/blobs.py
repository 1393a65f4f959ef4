"""Blob storage for tool outputs: interface and filesystem backend.

Blob paths consist of generated ids only, so no text from a model can choose where a file is written.
"""

from __future__ import annotations

import codecs
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from perdure.core.errors import CorruptStore, NotFound, StoreUnavailable
from perdure.core.files import PRIVATE_MODE, AtomicFile, sync_folder

_CHUNK_BYTES = 1 << 18
# Suffix of blobs that are still being written.
_PART = ".part"


class BlobWriter(Protocol):
    """An open blob."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> str:
        """Return the blob's path; complete and durable when this returns."""
        ...

    def discard(self) -> None:
        """Remove everything written. Never raises."""
        ...


class BlobStore(Protocol):
    """UTF-8 texts by path."""

    def begin(self, conversation_id: str, name: str) -> BlobWriter: ...

    def chunks(self, path: str) -> Iterator[str]:
        """Stream the text. Raises NotFound."""
        ...

    def remove(self, conversation_id: str, path: str | None = None) -> None:
        """Remove one blob of a conversation, or all of them."""
        ...

    def display_path(self, path: str) -> str:
        """Return the path or address under which users and tools can open the blob."""
        ...

    def copy_to(self, beside: Path) -> None:
        """Copy all blobs next to a backup of the database."""
        ...


class FileBlobStore:
    """Blobs in a folder beside the database file, with owner-only permissions."""

    def __init__(self, database: Path) -> None:
        self._folder = outputs_folder(database)

    def begin(self, conversation_id: str, name: str) -> BlobWriter:
        with _translate_errors(self._folder):
            folder = self._folder / conversation_id
            # One by one, because mkdir(parents=True) ignores the mode for parents.
            self._folder.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            return _FileWriter(folder / f"{name}.txt", self._folder)

    def chunks(self, path: str) -> Iterator[str]:
        file_path = self._path_of(path)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            with file_path.open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    yield decoder.decode(data)
        except FileNotFoundError:
            raise NotFound(f"the output's file is missing: {file_path}") from None
        except UnicodeDecodeError as error:
            raise CorruptStore(f"{file_path} is damaged ({error}); restore it from a backup") from error
        except OSError as error:
            raise StoreUnavailable(f"{file_path} cannot be read: {error.strerror}") from error

    def _path_of(self, path: str) -> Path:
        """Return the file of a stored path. Raises CorruptStore for one that leads out of the folder."""
        if "\0" in path or ".." in Path(path).parts or Path(path).is_absolute():
            raise CorruptStore(f"the output's file name is damaged in the database: {path!r}; restore a backup")
        return self._folder / path

    def remove(self, conversation_id: str, path: str | None = None) -> None:
        if not conversation_id or "\0" in conversation_id or Path(conversation_id).name != conversation_id:
            raise CorruptStore(f"the name of an outputs folder is damaged in the database: {conversation_id!r}")
        if path is None:
            shutil.rmtree(self._folder / conversation_id, ignore_errors=True)
            return
        file_path = self._path_of(path)
        with _translate_errors(file_path):
            file_path.unlink(missing_ok=True)

    def sweep(self, deleted: Iterable[str]) -> None:
        """Remove blobs of deleted conversations that a crash left behind."""
        for conversation_id in deleted:
            # A damaged id must not keep the store from opening.
            with suppress(CorruptStore, ValueError):
                if (self._folder / conversation_id).is_dir():
                    self.remove(conversation_id)

    def display_path(self, path: str) -> str:
        return str(self._folder / path)

    def copy_to(self, beside: Path) -> None:
        """Copy finished outputs; those still being written or deleted in the meantime are skipped."""
        if not self._folder.is_dir():
            return
        target = outputs_folder(beside)
        with _translate_errors(beside):
            target.mkdir(mode=0o700)
            for folder in self._folder.iterdir():
                copied = target / folder.name
                copied.mkdir(mode=0o700)
                for path in _finished_blobs(folder):
                    _copy_if_exists(path, copied / path.name)
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


def _finished_blobs(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from (path for path in folder.iterdir() if path.suffix != _PART)


def _copy_if_exists(path: Path, target: Path) -> None:
    try:
        source = path.open("rb")
    except FileNotFoundError:  # deleted with its conversation in the meantime
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
