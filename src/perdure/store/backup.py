"""Online backups: copy database and outputs under temporary names, sync them, then rename.

The database is copied before the outputs, so every output it references still exists when the outputs are copied. It is
renamed last: a file under the backup's name is a complete backup, outputs included.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from perdure.core.errors import StoreUnavailable
from perdure.core.files import sync_folder
from perdure.store.db.database import Database
from perdure.store.outputs import BlobStore, outputs_folder


def write_backup(database: Database, blobs: BlobStore, target: Path) -> None:
    """Write a complete backup to `target` with its outputs next to it, removing leftovers of an interrupted backup.

    Raises StoreUnavailable.
    """
    if target.exists():
        raise StoreUnavailable(f"{target} already exists; name a new file for the backup")
    part = target.with_name(f"{target.name}.part")
    outputs, part_outputs = outputs_folder(target), outputs_folder(part)
    # While the database has its temporary name, an outputs folder under the final name is a leftover.
    if outputs.exists() and not part.exists():
        raise StoreUnavailable(f"{outputs} already exists; name a new file for the backup, or move that folder away")
    try:
        for leftover in (outputs, part_outputs):
            if leftover.exists():
                shutil.rmtree(leftover)
        remove_database(part)
        database.backup(part)
        blobs.copy_to(part)
        if part_outputs.exists():
            part_outputs.rename(outputs)
        part.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreUnavailable(f"the backup {target} cannot be written: {reason}; no backup was made") from error


def remove_database(path: Path) -> None:
    """Remove a database file that is not in use, if it exists.

    Journal and WAL go first: SQLite would apply them to the next database file of that name.
    """
    for suffix in ("-journal", "-wal", "-shm", ""):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
