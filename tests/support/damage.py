"""Damage databases in every way a disk can, and run the commands that must cope with it."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from perdure.store import open_store
from perdure.store.records import CallRecord, StoredEvent
from support.store import compacted, conversation
from support.terminal import Run, perdure

DEADLINE_S = 20
# Columns that a key, a checksum or the log itself verifies.
VERIFIED = {
    "message": ("conversation", "seq", "session", "kind", "body", "encoding", "key", "chained"),
    "conversation": ("tip", "fork_seq", "last_seq", "last_key", "kind"),
    "session": ("conversation", "parent", "began_by", "provider", "model", "system_prompt", "first_seq", "last_seq"),
    "span": ("session", "lo", "hi"),
    "handoff": ("seq", "covers", "replaced"),
}
# What a value may become, as a function of what it was.
REPLACEMENTS: dict[str, Any] = {
    "null": lambda value: None,
    "text": lambda value: "damaged",
    "text of the same bytes": lambda value: value.decode("latin-1") if isinstance(value, bytes) else "7",
    "blob": lambda value: b"\xff\x00\xfe",
    "float": lambda value: 1.5,
    "negative": lambda value: -1,
    "zero": lambda value: 0,
    "next": lambda value: value + 1 if isinstance(value, int) else "",
    "huge": lambda value: 2**63 - 1,
    "far": lambda value: value + 2**32 if isinstance(value, int) else 2**32,
    "flipped": lambda value: _flip(value),
    "invalid text": lambda value: b"\xc3(".decode("latin-1"),
}


def _flip(value: object) -> object:
    if isinstance(value, bytes) and value:
        at = len(value) // 2
        return value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :]
    if isinstance(value, str) and value:
        at = len(value) // 2
        return value[:at] + chr(ord(value[at]) ^ 4) + value[at + 1 :]
    return value ^ 4 if isinstance(value, int) else value


@dataclass(frozen=True)
class Template:
    """A healthy database and the ids of its conversations."""

    home: Path
    ids: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.home / "perdure.db"

    def copy(self, home: Path) -> Path:
        """Copy it to an empty home and return the copy's path."""
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.home, home)
        return home / "perdure.db"


def build_template(home: Path) -> Template:
    """A store with everything in it: compactions, an undo, a branch, a delegated run, calls, events, an output."""
    home.mkdir(parents=True)
    with open_store(home / "perdure.db") as store:
        session = conversation(store, exchanges=6)
        store.append(session, [{"role": "user", "content": "a long question " * 60}])
        branch = store.conversations.branch(session, at_seq=10)
        store.append(branch.id, ["in the branch"])
        compacted(store, session)
        store.append(session, ["after the compaction", {"role": "assistant", "content": "Yes."}])
        compacted(store, session)
        store.undo(session)
        store.append(session, ["after the undo", {"role": "assistant", "content": "Done."}])
        delegate = store.conversations.delegate(session, system_prompt="Search.")
        store.append(delegate.id, ["a delegated task"])
        tip = store.get_compression_tip(session)
        store.ledger.record_call(CallRecord(tip, composition={"system": 3}, cost_usd=0.5))
        store.ledger.record_event(StoredEvent(tip, "turn_failed", {"reason": "no answer"}))
        sink = store.outputs.begin(tip, "call_1")
        sink.write("a listing\n" * 50)
        sink.close()
        other = conversation(store, exchanges=2)
        store.scrub(other, lambda text: text.replace("question 1", "[REDACTED]"))
        with store.leases.hold(tip, "test"):
            pass
        ids = tuple(store.conversations.get(i).id for i in (session, branch.id, delegate.id, other))
    return Template(home, ids)


def change_value(path: Path, table: str, rowid: int, column: str, replacement: str) -> bool:
    """Replace one value behind the store's back; False where that changes nothing."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA foreign_keys = OFF")
        schema = connection.execute("SELECT rowid, type, name, sql FROM sqlite_master").fetchall()
        for _, kind, name, _ in schema:
            if kind == "trigger":
                connection.execute(f"DROP TRIGGER {name}")
        # Constraints do not stop a disk either.
        (sql,) = next((s,) for _, kind, name, s in schema if kind == "table" and name == table)
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        _set_schema(connection, table, sql.replace(" NOT NULL", ""), version + 1)
        (before,) = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        after = REPLACEMENTS[replacement](before)
        try:
            if replacement == "invalid text":
                update = f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE rowid = ?"
                connection.execute(update, (b"\xc3(", rowid))
            else:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (after, rowid))
        except (sqlite3.IntegrityError, OverflowError):  # a primary key or a unique value
            return False
        (stored,) = connection.execute(
            f"SELECT CAST({column} AS BLOB) FROM {table} WHERE rowid = ?", (rowid,)
        ).fetchone()
        (kind,) = connection.execute(f"SELECT typeof({column}) FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        _set_schema(connection, table, sql, version + 2)
        for _, kind_of_row, _, trigger in schema:
            if kind_of_row == "trigger":
                connection.execute(trigger)
        connection.commit()
    except TypeError:  # the row has no such rowid
        return False
    finally:
        connection.close()
    names = {bytes: "blob", str: "text", int: "integer", float: "real", type(None): "null"}
    raw = before if isinstance(before, bytes) else None if before is None else str(before).encode()
    return names[type(before)] != kind or raw != stored


def _set_schema(connection: sqlite3.Connection, table: str, sql: str, version: int) -> None:
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (sql, table))
    connection.execute(f"PRAGMA schema_version = {version}")
    connection.execute("PRAGMA writable_schema = OFF")


def values_of(path: Path) -> list[tuple[str, int, str]]:
    """Return (table, rowid, column) of every value of a database."""
    connection = sqlite3.connect(path)
    try:
        tables = [
            name
            for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            if "_index" not in name and not name.startswith("sqlite_") and sql
        ]
        return [
            (table, rowid, column)
            for table in tables
            for (rowid,) in connection.execute(f"SELECT rowid FROM {table} ORDER BY rowid").fetchall()
            for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()
        ]
    finally:
        connection.close()


def flip_bytes(path: Path, chance: random.Random, *, count: int = 1) -> list[int]:
    """Change bytes of the file at random places; return the places."""
    data = bytearray(path.read_bytes())
    places = [chance.randrange(len(data)) for _ in range(count)]
    for at in places:
        data[at] = chance.choice((data[at] ^ (1 << chance.randrange(8)), chance.randrange(256)))
    path.write_bytes(data)
    return places


def verified_content(path: Path) -> object:
    """Return everything that is verified, or None where the file cannot be read to its end."""
    connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
    connection.text_factory = bytes
    try:
        return [
            sorted(map(repr, connection.execute(f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED").fetchall()))
            for table, columns in VERIFIED.items()
        ]
    except (sqlite3.Error, UnicodeDecodeError):  # of an error message
        return None
    finally:
        connection.close()


class DeadlineExceeded(BaseException):
    """Raised where a command did not end in time; not an Exception, so that nothing handles it."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    def expire(number: int, frame: FrameType | None) -> None:
        raise DeadlineExceeded

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_commands(home: Path, ids: tuple[str, ...], base_url: str) -> dict[str, Run]:
    """Run every command that reads a store; raises what a command did not handle."""
    done: dict[str, Run] = {}
    commands = {
        "list": ("sessions", "list"),
        "search": ("sessions", "search", "question"),
        "verify": ("sessions", "verify"),
        "doctor": ("doctor", "--offline"),
    }
    for ident in ids:
        commands[f"show {ident}"] = ("sessions", "show", ident)
        commands[f"view {ident}"] = ("sessions", "show", "--view", ident)
        commands[f"export {ident}"] = ("sessions", "export", ident)
    model = (f"model.base_url={base_url}", "model.provider=custom", "model.name=m-1")
    flags = tuple(part for setting in model for part in ("--set", setting))
    commands["usage"] = ("usage", ids[0])
    commands["resume"] = (*flags, "chat", "--resume", ids[0], "-q", "and now?")
    for name, arguments in commands.items():
        try:
            with deadline(DEADLINE_S):
                done[name] = perdure(home, *arguments, OPENAI_API_KEY="k")
        except BaseException as error:
            error.add_note(f"by `perdure {' '.join(arguments)}`")
            raise
    return done
