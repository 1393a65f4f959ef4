"""A file under a backup's name is a whole backup, whenever the attempt is cut off and whatever is written meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.core.errors import StoreUnavailable
from perdure.store import SessionStore, open_store

BACK_UP = """
    import sys
    from perdure.store import open_store
    open_store(sys.argv[1]).backup(sys.argv[2])
"""


def keep_outputs(store: SessionStore, conversation_id: str, count: int) -> list[str]:
    ids = []
    for n in range(count):
        sink = store.outputs.begin(conversation_id, f"call_{n}")
        sink.write(f"output {n} " + os.urandom(20_000).hex())
        ids.append(sink.close().id)
    return ids


def missing_outputs(path: Path, ids: list[str]) -> int:
    with open_store(path) as store:
        return sum(not store.outputs.whole(i).startswith("output ") for i in ids)


def backup_files(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir() if p.name.startswith("copy.db")}


STEPS: dict[str, Callable[[Path], bool]] = {
    "while the database is copied": lambda folder: (folder / "copy.db.part").exists(),
    "while the outputs are copied": lambda folder: any((folder / "copy.db.part.outputs").glob("*/*")),
    "as soon as it has its name": lambda folder: (folder / "copy.db").exists(),
}


@pytest.mark.spec("I8")
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_backup_is_complete_or_absent_and_the_next_one_works(tmp_path: Path, step: str) -> None:
    with open_store(tmp_path / "sessions.db") as store:
        session = store.create()
        ids = keep_outputs(store, session.conversation_id, 60)
    command = [sys.executable, "-c", textwrap.dedent(BACK_UP), str(tmp_path / "sessions.db"), str(tmp_path / "copy.db")]
    with subprocess.Popen(command) as process:
        while not STEPS[step](tmp_path) and process.poll() is None:
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
    if not (tmp_path / "copy.db").exists():
        with open_store(tmp_path / "sessions.db") as store:
            store.backup(tmp_path / "copy.db")
    assert missing_outputs(tmp_path / "copy.db", ids) == 0
    assert backup_files(tmp_path) == {"copy.db", "copy.db.outputs"}


def test_leftovers_of_an_interrupted_backup_are_replaced_and_its_journal_is_not_applied(tmp_path: Path) -> None:
    with open_store(tmp_path / "sessions.db") as store:
        session = store.create()
        ids = keep_outputs(store, session.conversation_id, 2)
        for name in ("copy.db.part", "copy.db.part-journal"):
            (tmp_path / name).write_bytes(os.urandom(9_000))
        for name in ("copy.db.outputs", "copy.db.part.outputs"):
            (tmp_path / name / "c_old").mkdir(parents=True)
        store.backup(tmp_path / "copy.db")
    assert missing_outputs(tmp_path / "copy.db", ids) == 0
    assert backup_files(tmp_path) == {"copy.db", "copy.db.outputs"}
    assert not (tmp_path / "copy.db.outputs" / "c_old").exists()


def test_an_unrelated_outputs_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "copy.db.outputs" / "c_theirs").mkdir(parents=True)
    with open_store(tmp_path / "sessions.db") as store:
        keep_outputs(store, store.create().conversation_id, 1)
        with pytest.raises(StoreUnavailable, match=r"copy\.db\.outputs already exists"):
            store.backup(tmp_path / "copy.db")
    assert (tmp_path / "copy.db.outputs" / "c_theirs").exists()
    assert not (tmp_path / "copy.db").exists()


def test_backups_work_while_outputs_are_written_and_deleted(tmp_path: Path) -> None:
    with open_store(tmp_path / "sessions.db") as store:
        stays = store.create()
        ids = keep_outputs(store, stays.conversation_id, 3)
        is_over = threading.Event()

        def write_and_delete() -> None:
            while not is_over.is_set():
                goes = store.create()
                for n in range(20):
                    sink = store.outputs.begin(goes.conversation_id, f"call_{n}")
                    sink.write("some words " * 200)
                    sink.close()
                store.delete(goes.id)

        writers = [threading.Thread(target=write_and_delete) for _ in range(3)]
        for writer in writers:
            writer.start()
        try:
            for n in range(40):
                store.backup(tmp_path / f"copy-{n}.db")
        finally:
            is_over.set()
            for writer in writers:
                writer.join()
    assert missing_outputs(tmp_path / "copy-39.db", ids) == 0
    assert not list(tmp_path.glob("copy-*.outputs/*/*.part"))
