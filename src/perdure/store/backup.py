"""Backups: written under temporary names, synced, and given their real names only when everything is there.

The database is copied before the outputs, so that every output it refers to is there to be copied. It is also renamed
last: a file under the backup's name is a whole backup, outputs included.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from perdure.core.errors import StoreUnavailable
from perdure.core.files import sync_folder
from perdure.store.blobs import BlobStore, outputs_folder
from perdure.store.db.database import Database


def write_backup(database: Database, blobs: BlobStore, target: Path) -> None:
    """A whole copy at `target`, and its outputs beside it. What an attempt that was cut off left there is removed."""
    if target.exists():
        raise StoreUnavailable(f"{target} already exists; name a new file for the backup")
    part = target.with_name(f"{target.name}.part")
    outputs, part_outputs = outputs_folder(target), outputs_folder(part)
    # As long as the database has its temporary name, a folder under the real one is what a cut-off attempt left.
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
        why = error.strerror or str(error)
        raise StoreUnavailable(f"the backup {target} cannot be written: {why}; there is no backup yet") from error


def remove_database(path: Path) -> None:
    """A database file that is not in use, if there is one.

    Its journal goes first: beside another file of the same name it would be taken for that one's, and applied to it.
    """
    for suffix in ("-journal", "-wal", "-shm", ""):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
