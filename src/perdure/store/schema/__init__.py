"""Numbered migrations: `NNNN_tables.sql` for both databases, then `NNNN_<dialect>.sql`; applied ones are never edited.

A database is migrated when it is opened. One written by a newer version is rejected unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from perdure.core.errors import NewerSchema
from perdure.store.db.database import Dialect, Transaction

_RECORD = """CREATE TABLE IF NOT EXISTS migration (
  version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at {int} NOT NULL)"""


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered migration with its SQL statements."""

    version: int
    name: str
    statements: tuple[str, ...]


def load_migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Load all migrations for a dialect, in order."""
    return _load(dialect.name)


@cache
def _load(dialect_name: str) -> tuple[Migration, ...]:
    folder = files(__package__)
    numbers = sorted({f.name.split("_")[0] for f in folder.iterdir() if f.name.endswith(".sql")})
    steps = []
    for number in numbers:
        names = (f"{number}_tables.sql", f"{number}_{dialect_name}.sql")
        texts = [(folder / name).read_text("utf-8") for name in names if (folder / name).is_file()]
        steps.append(Migration(int(number), f"{number}_tables", tuple(s for t in texts for s in _statements(t))))
    return tuple(steps)


def applied_version(tx: Transaction, *, has_record: bool) -> int:
    """Return the version of the newest applied migration, or 0."""
    row = tx.row("SELECT MAX(version) FROM migration") if has_record else None
    return (row[0] or 0) if row else 0


def check_version(version: int, migrations: Sequence[Migration], *, where: str) -> None:
    newest = migrations[-1].version
    if version > newest:
        raise NewerSchema(
            f"{where} was written by a newer Perdure (schema {version}; this one supports {newest}); upgrade Perdure"
        )


def apply(tx: Transaction, migrations: Sequence[Migration], dialect: Dialect, *, now_ms: int) -> None:
    """Apply and record missing migrations in one transaction, so that a crash leaves the old schema intact."""
    tx.run(_RECORD.format_map(dialect.types))
    current = applied_version(tx, has_record=True)
    for step in migrations:
        if step.version > current:
            for statement in step.statements:
                tx.run(_for_dialect(statement, dialect))
            tx.run("INSERT INTO migration VALUES (?, ?, ?)", (step.version, step.name, now_ms))


def _statements(text: str) -> Iterator[str]:
    """Split SQL into statements at blank lines, without comments."""
    for paragraph in text.split("\n\n"):
        lines = [line for line in paragraph.splitlines() if not line.startswith("--")]
        if any(line.strip() for line in lines):
            yield "\n".join(lines)


def _for_dialect(statement: str, dialect: Dialect) -> str:
    for name, sql_type in dialect.types.items():
        statement = statement.replace("{" + name + "}", sql_type)
    return statement
