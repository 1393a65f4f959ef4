"""Blob storage for tool outputs in PostgreSQL: chunks in rows, streamed with constant memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from perdure.core.errors import NotFound, StoreError
from perdure.store.db.database import Database, Row, Transaction, Value, insert, insert_numbered
from perdure.store.encoding import pack, unpack
from perdure.store.outputs import BlobWriter

_CHUNK_BYTES = 1 << 20


class PostgresBlobStore:
    """Stores blobs as rows of text chunks; writing to an existing path makes a new version, and the newest is read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, conversation_id: str, name: str) -> BlobWriter:
        values = {"output": name, "conversation": conversation_id}
        number = self._database.write(lambda tx: insert_numbered(tx, "output_text", values, number="number"))
        return _RowWriter(self._database, name, number)

    def chunks(self, path: str) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")()
        number, count = self._text(path)
        for ordinal in range(count):
            row = self._chunk(number, ordinal)
            if row is None:
                raise NotFound(f"the text of output {path} was replaced while it was read; read it again")
            yield decoder.decode(unpack(*row))

    def remove(self, conversation_id: str, path: str | None = None) -> None:
        sql = "DELETE FROM output_text WHERE conversation = ?"
        if path is None:
            self._database.write(lambda tx: tx.run(sql, (conversation_id,)))
        else:
            self._database.erase(lambda tx: tx.run(f"{sql} AND output = ?", (conversation_id, path)))

    def display_path(self, path: str) -> str:
        return f"output:{path.partition('.')[0]}"

    def copy_to(self, beside: Path) -> None:
        """Do nothing: the rows are part of every copy of the database."""

    def _text(self, path: str) -> tuple[int, int]:
        row = self._database.read(
            lambda tx: tx.row(
                "SELECT number, chunks FROM output_text WHERE output = ? AND chunks IS NOT NULL"
                " ORDER BY number DESC LIMIT 1",
                (path,),
            )
        )
        if row is None:
            raise NotFound(f"the text of output {path} is missing")
        return int(row[0]), int(row[1])

    def _chunk(self, number: int, ordinal: int) -> Row | None:
        return self._database.read(
            lambda tx: tx.row(
                "SELECT data, encoding FROM output_chunk WHERE text_number = ? AND ordinal = ?", (number, ordinal)
            )
        )


class _RowWriter:
    """Writes chunks as they fill up; the blob becomes visible to readers when `finish` sets the chunk count."""

    def __init__(self, database: Database, name: str, number: int) -> None:
        self._database = database
        self._name = name
        self._number = number
        self._count = 0
        self._pending = bytearray()

    def write(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= _CHUNK_BYTES:
            self._flush(bytes(self._pending[:_CHUNK_BYTES]))
            del self._pending[:_CHUNK_BYTES]

    def finish(self) -> str:
        if self._pending:
            self._flush(bytes(self._pending))
            self._pending.clear()

        def complete(tx: Transaction) -> None:
            tx.run("UPDATE output_text SET chunks = ? WHERE number = ?", (self._count, self._number))
            tx.run("DELETE FROM output_text WHERE output = ? AND number < ?", (self._name, self._number))

        self._database.write(complete)
        return self._name

    def discard(self) -> None:
        # A leftover is deleted with its conversation.
        with suppress(StoreError):
            self._database.write(lambda tx: tx.run("DELETE FROM output_text WHERE number = ?", (self._number,)))

    def _flush(self, data: bytes) -> None:
        stored, encoding = pack(data)
        values: dict[str, Value] = {
            "text_number": self._number,
            "ordinal": self._count,
            "data": stored,
            "encoding": encoding,
        }
        self._database.write(lambda tx: insert(tx, "output_chunk", values))
        self._count += 1
