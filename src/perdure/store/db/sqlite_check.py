"""Find damage that SQLite itself does not notice when it reads: indexes, references, and the types of values."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator

from perdure.store.db.database import DatabaseCheck

# Problems listed of each kind; one damaged page may cause thousands.
_MAX_LISTED = 100
# Instructions of SQLite's virtual machine between two looks at the clock.
_STEPS = 10_000
_TYPES = {"INTEGER": ("integer",), "TEXT": ("text",), "BLOB": ("blob",), "REAL": ("real", "integer")}
_ADVICE = {"index": "rebuild the indexes with `sqlite3 FILE REINDEX`", "other": "restore it from a backup"}


def check_database(connection: sqlite3.Connection, *, timeout_s: float | None) -> DatabaseCheck:
    """Check the whole file for at most `timeout_s`. Never raises for a damaged file."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    connection.set_progress_handler(lambda: deadline is not None and time.monotonic() > deadline, _STEPS)
    problems: list[str] = []
    is_complete = True
    try:
        for find in (_broken_pages, _broken_references, _wrong_types):
            try:
                problems += find(connection)
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
                    raise
                is_complete = False
                break
    except (sqlite3.Error, UnicodeDecodeError) as error:
        problems.append(f"the database cannot be read to its end ({error}); {_ADVICE['other']}")
    finally:
        connection.set_progress_handler(None, 0)
    return DatabaseCheck(tuple(problems), is_complete)


def _broken_pages(connection: sqlite3.Connection) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA integrity_check({_MAX_LISTED})"):
        text = " ".join(str(line).split())
        if text != "ok":
            yield f"{text}; {_ADVICE['index' if 'index' in text else 'other']}"


def _broken_references(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute("PRAGMA foreign_key_check").fetchmany(_MAX_LISTED)
    for table, rowid, parent, _ in rows:
        yield f"table {table}, row {rowid}: it refers to a {parent} that does not exist; {_ADVICE['other']}"


def _wrong_types(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the values that do not have the type of their column, and texts that are not UTF-8."""
    connection.create_function("is_utf8", 1, _is_utf8, deterministic=True)
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        " AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%\\_index\\_%' ESCAPE '\\'"
    ).fetchall()
    for (table,) in tables:
        columns = {
            name: _problem_sql(name, declared, bool(required or key))
            for _, name, declared, required, _, key in connection.execute(f'PRAGMA table_info("{table}")').fetchall()
            if declared.upper() in _TYPES
        }
        if not columns:
            continue
        problem = " || ".join(columns.values())
        sql = f"SELECT rowid, {problem} AS problem FROM \"{table}\" WHERE problem <> '' LIMIT {_MAX_LISTED}"
        for rowid, problems in connection.execute(sql):
            yield f"table {table}, row {rowid}: {problems.removesuffix(', ')}; {_ADVICE['other']}"


def _problem_sql(column: str, declared: str, is_required: bool) -> str:
    """Return an SQL expression that describes what is wrong with a value; empty for a correct one."""
    allowed = _TYPES[declared.upper()]
    types = ", ".join(f"'{name}'" for name in (*allowed, *(() if is_required else ("null",))))
    message = f"'{column} is ' || typeof({column}) || ' instead of {allowed[0]}, '"
    wrong = f"WHEN typeof({column}) NOT IN ({types}) THEN {message}"
    invalid = (
        f" WHEN typeof({column}) = 'text' AND NOT is_utf8(CAST({column} AS BLOB)) THEN '{column} is not valid text, '"
    )
    return f"CASE {wrong}{invalid} ELSE '' END"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
