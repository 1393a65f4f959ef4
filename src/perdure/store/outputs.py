"""Tool outputs too large for the context: complete, paged and searchable until their conversation is deleted.

The text is in a blob store: an interface, and files next to the database. Blob paths consist of generated ids only, so
no text from a model can choose where a file is written.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perdure.core.errors import CorruptStore, NotFound, StoreError, StoreUnavailable
from perdure.core.files import PRIVATE_MODE, AtomicFile, sync_folder
from perdure.core.messages import clean
from perdure.core.ports import OutputSink, Page, StoredOutput
from perdure.core.visibility import User
from perdure.store.db.database import Row, Transaction, Value, insert, insert_numbered, text, to_int, to_text
from perdure.store.queries import ScopedState, StoreContext, conversation_id_of, get_conversation
from perdure.store.records import Conversation, Damage
from perdure.store.search.index import IndexedText, conversation_scope, index_text, role_scope, user_scope

_CHUNK_BYTES = 1 << 18
# Suffix of blobs that are still being written.
_PART = ".part"


class BlobWriter(Protocol):
    """Writes one blob, which becomes readable when it is finished."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> str:
        """Complete the blob durably and return its path."""
        ...

    def discard(self) -> None:
        """Remove everything written. Never raises."""
        ...


class BlobStore(Protocol):
    """Stores UTF-8 texts by path (port)."""

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
    """Blobs in a folder next to the database file, with owner-only permissions."""

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

    def sweep(self, deleted_ids: Iterable[str]) -> None:
        """Remove the blobs of deleted conversations, when the store is opened.

        A crash may have come between deleting the rows and the files.
        """
        for conversation_id in deleted_ids:
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


# Longer outputs are scanned by a search instead of indexed.
INDEXED_CHARS = 262_144
# Only generated ids may name a file, whatever an import contains.
_OUTPUT_ID = re.compile(r"o_[0-9a-z]{1,40}")
# State scope of replaced blobs that are still to be removed.
_ERASING = "erasing"
_COLUMNS = "id, conversation, tool_call, chars, sha256, place"


class OutputStore:
    """Stores tool outputs (the Outputs port): texts in the blob store, metadata in the database."""

    def __init__(self, context: StoreContext, blobs: BlobStore) -> None:
        self._context = context
        self.blobs = blobs

    def begin(self, conversation_id: str, tool_call_id: str) -> OutputSink:
        conversation = self._context.database.read(
            lambda tx: get_conversation(tx, conversation_id_of(tx, conversation_id))
        )
        output_id = self._context.ids.new("o_")
        writer = self.blobs.begin(conversation.id, output_id)
        return _Sink(self._context, self.blobs, writer, conversation, output_id, text(tool_call_id))

    def read(self, output_id: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        row = self._shared_row(output_id, conversation_id)
        output, start = self._output_of_row(row), max(0, offset)
        piece = "".join(_window(self.blobs.chunks(to_text(row[-1])), start, max(1, limit)))
        end = start + len(piece)
        return Page(output.address, piece, start, output.chars, end if piece and end < output.chars else None)

    def pieces(self, output_id: str, *, conversation_id: str) -> Iterator[str]:
        return self.blobs.chunks(to_text(self._shared_row(output_id, conversation_id)[-1]))

    def list(self, conversation_id: str) -> Sequence[StoredOutput]:
        def load(tx: Transaction) -> list[Row]:
            owner = conversation_id_of(tx, conversation_id)
            return tx.rows(f"SELECT {_COLUMNS} FROM output WHERE conversation = ? ORDER BY number", (owner,))

        return [self._output_of_row(row) for row in self._context.database.read(load)]

    def get(self, output_id: str) -> StoredOutput:
        """Return an output's metadata without an access check; compare its `conversation_id`. Raises NotFound."""
        return self._output_of_row(self._row(output_id))

    def whole(self, output_id: str) -> str:
        """Return the complete text without an access check, for export and scrub."""
        return "".join(self.blobs.chunks(to_text(self._row(output_id)[-1])))

    def restore(self, conversation: Conversation, output_id: str, tool_call_id: str, output: str) -> None:
        """Store an imported output under its id, or a new id if another conversation uses it; skip an existing one."""
        owner = self._context.database.read(
            lambda tx: tx.row("SELECT conversation FROM output WHERE id = ?", (text(output_id),))
        )
        if owner is not None and owner[0] == conversation.id:
            return
        is_free = owner is None and _OUTPUT_ID.fullmatch(output_id) is not None
        ident = output_id if is_free else self._context.ids.new("o_")
        writer = self.blobs.begin(conversation.id, ident)
        sink = _Sink(self._context, self.blobs, writer, conversation, ident, text(tool_call_id))
        sink.write(output)
        sink.close()

    def replace(self, output_id: str, new: str) -> None:
        """Replace the text of an output, for `scrub`.

        The new blob is written next to the old one and the row switches over, so that a crash leaves either one intact.
        """
        row = self._row(output_id)
        owner, path = row[1], row[-1]
        old = "".join(self.blobs.chunks(path))
        data = clean(new).encode()
        writer = self.blobs.begin(owner, _next_name(output_id, path))
        writer.write(data)
        new_path = writer.finish()

        def work(tx: Transaction) -> None:
            conversation = get_conversation(tx, owner)
            (number, was_indexed), *_ = tx.rows("SELECT number, is_indexed FROM output WHERE id = ?", (output_id,))
            is_indexed = int(len(new) <= INDEXED_CHARS)
            tx.run(
                "UPDATE output SET chars = ?, bytes = ?, sha256 = ?, place = ?, is_indexed = ? WHERE id = ?",
                (len(new), len(data), hashlib.sha256(data).hexdigest(), new_path, is_indexed, output_id),
            )
            if was_indexed:
                self._context.index.remove(tx, "output", [(number, output_tokens(old, conversation))])
            if is_indexed:
                tx.run_many(*self._context.index.insert_step("output", [(number, output_tokens(new, conversation))]))
            self._context.index.purge_removed(tx, "output")
            insert(tx, "state", {"scope": _ERASING, "key": path, "value": json.dumps(owner)})

        self._context.database.erase(work)
        self.finish_erasing()

    def finish_erasing(self) -> None:
        """Remove replaced blobs, including those a crash left: they contain what was scrubbed."""
        pending = ScopedState(self._context, _ERASING)
        for path in pending.list_keys():
            # A damaged entry must not keep the store from opening; `Verifier` reports it.
            with suppress(CorruptStore):
                self.blobs.remove(to_text(pending.get(path)), path)
                pending.set(path, None)

    def _row(self, output_id: str) -> Row:
        row = self._context.database.read(
            lambda tx: tx.row(f"SELECT {_COLUMNS} FROM output WHERE id = ?", (text(output_id),))
        )
        if row is None:
            raise NotFound(f"no output {output_id!r}")
        return row

    def _shared_row(self, output_id: str, conversation_id: str) -> Row:
        """Return an output of the conversation or of another one of the same user. Raises NotFound."""

        def load(tx: Transaction) -> Row | None:
            ident = conversation_id_of(tx, conversation_id)
            return tx.row(
                f"SELECT {_COLUMNS} FROM output WHERE id = ? AND EXISTS (SELECT 1 FROM conversation theirs"
                " JOIN conversation ours ON ours.user_key = theirs.user_key"
                " WHERE theirs.id = output.conversation AND ours.id = ?)",
                (text(output_id), ident),
            )

        row = self._context.database.read(load)
        if row is None:
            # The same message for a missing output and for another user's.
            raise NotFound(f"no output {output_id!r}")
        return row

    def _output_of_row(self, row: Row) -> StoredOutput:
        ident, conversation_id, tool_call, chars, sha256, path = row
        return StoredOutput(
            to_text(ident), to_text(conversation_id), to_text(tool_call), to_int(chars), to_text(sha256),
            self.blobs.display_path(to_text(path)),
        )  # fmt: skip

    def verify(self, conversation_id: str) -> Iterator[Damage]:
        """Compare the stored outputs of a conversation with their checksums."""
        sql = f"SELECT {_COLUMNS} FROM output WHERE conversation = ? ORDER BY number"
        for row in self._context.database.read(lambda tx: tx.rows(sql, (conversation_id,))):
            output, digest = self._output_of_row(row), hashlib.sha256()
            try:
                for chunk in self.blobs.chunks(to_text(row[-1])):
                    digest.update(chunk.encode())
            except StoreError as error:
                detail = str(error)
            else:
                detail = "" if digest.hexdigest() == output.sha256 else "its text differs from what was stored"
            if detail:
                yield Damage(conversation_id, None, "changed", table="output", row=output.id, detail=detail)


@dataclass
class _Sink:
    """Streams a tool output into a blob (the OutputSink port); row and index entry are written on close."""

    context: StoreContext
    blobs: BlobStore
    writer: BlobWriter
    conversation: Conversation
    output_id: str
    tool_call_id: str

    def __post_init__(self) -> None:
        self._chars = self._bytes = 0
        self._digest = hashlib.sha256()
        self._indexable: list[str] = []

    def write(self, text: str) -> None:
        piece = clean(text)
        data = piece.encode()
        self.writer.write(data)
        self._digest.update(data)
        self._chars += len(piece)
        self._bytes += len(data)
        if self._chars <= INDEXED_CHARS:
            self._indexable.append(piece)
        else:
            self._indexable.clear()

    def close(self) -> StoredOutput:
        path = self.writer.finish()
        try:
            self.context.database.write(lambda tx: self._record(tx, path))
        except StoreError:
            # Without its row the blob could never be read or deleted.
            self.writer.discard()
            raise
        sha256, display_path = self._digest.hexdigest(), self.blobs.display_path(path)
        return StoredOutput(self.output_id, self.conversation.id, self.tool_call_id, self._chars, sha256, display_path)

    def abort(self) -> None:
        self.writer.discard()

    def _record(self, tx: Transaction, path: str) -> None:
        is_indexed = self._chars <= INDEXED_CHARS
        values: dict[str, Value] = {
            "id": self.output_id,
            "conversation": self.conversation.id,
            "session": self.conversation.tip_session_id,
            "tool_call": self.tool_call_id,
            "chars": self._chars,
            "bytes": self._bytes,
            "sha256": self._digest.hexdigest(),
            "place": path,
            "is_indexed": int(is_indexed),
            "created_at": self.context.clock.now_ms(),
        }
        number = insert_numbered(tx, "output", values, number="number")
        if is_indexed:
            tokens = output_tokens("".join(self._indexable), self.conversation)
            tx.run_many(*self.context.index.insert_step("output", [(number, tokens)]))


def output_tokens(output: str, conversation: Conversation) -> IndexedText:
    scope = [conversation_scope(conversation.id), role_scope("tool")]
    if isinstance(conversation.user, User):
        scope.append(user_scope(conversation.user.key))
    return index_text(output, scope)


def _next_name(output_id: str, path: str) -> str:
    """Return the blob name of the next generation; deterministic, so that a retry overwrites leftovers."""
    generation = re.search(r"\.(\d+)(?:\.txt)?$", path)
    return f"{output_id}.{int(generation[1]) + 1 if generation else 1}"


def _window(chunks: Iterator[str], offset: int, limit: int) -> Iterator[str]:
    """Yield `limit` characters from `offset` without buffering the rest."""
    at = 0
    for chunk in chunks:
        start, end = max(0, offset - at), min(len(chunk), offset + limit - at)
        if start < end:
            yield chunk[start:end]
        at += len(chunk)
        if at >= offset + limit:
            return
