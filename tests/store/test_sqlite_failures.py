"""What can go wrong with a file: each time a plain message, and the data untouched."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.errors import CorruptStore, NewerSchema, StoreError, StoreUnavailable
from perdure.core.messages import user
from perdure.core.ports import OutputSink
from perdure.store import SessionStore, open_store, schema
from perdure.store.db.sqlite import DIALECT, open_sqlite
from perdure.store.schema import Migration
from support.store import conversation, exchange


def snapshot(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), path.stat().st_mtime_ns


def filled(path: Path) -> str:
    with open_store(path) as store:
        return conversation(store)


@pytest.mark.parametrize(
    "content", [b"this is not a database at all, " * 300, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 8000]
)
def test_a_file_that_is_not_a_database_is_rejected_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(content)
    before = snapshot(path)
    with pytest.raises(CorruptStore, match=r"notes\.db"):
        open_store(path)
    assert snapshot(path) == before


def test_a_damaged_database_is_rejected_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    session = filled(path)
    data = bytearray(path.read_bytes())
    page = int.from_bytes(data[16:18], "big")
    data[page:] = os.urandom(len(data) - page)
    path.write_bytes(data)
    before = snapshot(path)
    with pytest.raises(CorruptStore, match="Restore a backup"):
        open_store(path).history(session)
    assert snapshot(path) == before


def test_a_database_of_another_program_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    before = snapshot(path)
    with pytest.raises(StoreUnavailable, match="another program"):
        open_store(path)
    assert snapshot(path) == before


def test_a_newer_schema_is_rejected_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO migration VALUES (99, 'from the future', 0)")
    connection.close()
    before = snapshot(path)[0]
    with pytest.raises(NewerSchema, match=r"schema 99.*upgrade"):
        open_store(path)
    assert path.read_bytes() == before


def test_an_older_schema_is_migrated_after_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    session = filled(path)
    released = schema.load_migrations(DIALECT)
    newest = released[-1].version
    mood = Migration(newest + 1, "mood", ("ALTER TABLE conversation ADD COLUMN mood TEXT",))
    database = open_sqlite(path, clock=SystemClock(), migrations=(*released, mood))
    recorded = database.read(lambda tx: tx.rows("SELECT version, name FROM migration ORDER BY version"))
    assert recorded[-1] == (newest + 1, "mood")
    assert database.read(lambda tx: tx.rows("SELECT mood FROM conversation")) == [(None,)]
    database.close()
    copy = tmp_path / f"sessions.db.schema-{newest}.bak"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with open_store(copy) as old:
        assert len(old.history(session).entries) == 20
    with pytest.raises(NewerSchema):
        open_store(path)


def test_a_failed_migration_leaves_the_old_schema_intact(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    session = filled(path)
    released = schema.load_migrations(DIALECT)
    statements = ("ALTER TABLE conversation ADD COLUMN mood TEXT", "THIS IS NO SQL")
    broken = Migration(released[-1].version + 1, "broken", statements)
    with pytest.raises(StoreError):
        open_sqlite(path, clock=SystemClock(), migrations=(*released, broken))
    with open_store(path) as store:
        assert len(store.history(session).entries) == 20


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ("mysql://localhost/x", "mysql"),
        ("http://example.com/a.db", "http"),
        (":memory:", "memory"),
        ("", "empty"),
        ("{tmp}", "folder"),
        ("{tmp}/file/inside.db", "folder"),
        ("/proc/nowhere/sessions.db", "cannot be created"),
        ("a\0b", "NUL"),
    ],
)
def test_an_invalid_path_raises_a_clear_error(tmp_path: Path, where: str, word: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable, match=word):
        open_store(where.replace("{tmp}", str(tmp_path)))


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# Permissions do not bind root, so its rights go once everything needed has been imported.
TRY_TO_OPEN = """
    import os, sys
    from perdure.core.errors import StoreError
    from perdure.store import open_store
    open_store(sys.argv[2]).close()
    if os.geteuid() == 0:
        os.seteuid(65_534)
    try:
        open_store(sys.argv[1]).create()
    except StoreError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_missing_permission_raises_a_clear_error(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "sessions.db"
    filled(path)
    for folder in [tmp_path, *tmp_path.parents[:2]]:
        folder.chmod(0o755)
    path.chmod(mode)
    before = snapshot(path)
    done = run(TRY_TO_OPEN, str(path), str(tmp_path / "first.db"))
    assert done.stderr == ""
    assert done.stdout.startswith("StoreUnavailable")
    assert str(path) in done.stdout
    assert snapshot(path) == before


def test_a_new_file_has_owner_only_permissions(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "sessions.db"
    with open_store(path) as store:
        sink = store.outputs.begin(store.create().id, "call_1")
        sink.write("secret")
        location = Path(sink.close().location)
        files = [p for p in path.parent.rglob("*") if p.is_file()]
        assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}
        assert {stat.S_IMODE(p.stat().st_mode) for p in (location.parent, location.parent.parent, path.parent)} == {
            0o700
        }


FILL_THE_DISK = """
    import resource, sys
    from perdure.core.errors import StoreUnavailable
    from perdure.core.messages import user
    from perdure.store import open_store
    store = open_store(sys.argv[1])
    session = store.create()
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
    acknowledged = 0
    import random, string
    noise = "".join(random.Random(7).choices(string.ascii_letters, k=60_000))
    try:
        while True:
            store.append(session.id, user(f"{acknowledged} {noise}"))
            acknowledged += 1
    except StoreUnavailable as error:
        print("told", error)
    assert len(store.history(session.id).entries) == acknowledged, "reading goes on"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.append(session.id, user("room again"))
    print("kept", session.id, acknowledged + 1)
"""


@pytest.mark.spec("I1")
def test_a_full_disk_fails_cleanly_and_works_again_with_free_space(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    done = run(FILL_THE_DISK, str(path))
    assert done.stderr == ""
    error_line, stored = done.stdout.splitlines()
    assert "disk" in error_line
    _, session, count = stored.split()
    assert int(count) > 5
    with open_store(path) as store:
        assert [e.seq for e in store.history(session).entries] == list(range(1, int(count) + 1))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def append_until_full(store: SessionStore, session_id: str) -> Iterator[str]:
    while True:
        yield store.append(session_id, user(os.urandom(20_000).hex())).session_id


def write_until_full(sink: OutputSink) -> None:
    for _ in range(100):
        sink.write("x" * 100_000)


@pytest.mark.spec("I1")
def test_a_small_disk_that_fills_up_loses_nothing(small_disk: Path) -> None:
    path = small_disk / "sessions.db"
    acknowledged: list[str] = []
    with open_store(path) as store:
        session = store.create()
        with pytest.raises(StoreUnavailable, match="disk"):
            acknowledged.extend(append_until_full(store, session.id))
        stored = len(store.history(session.id).entries)
        assert stored > 10
        sink = store.outputs.begin(session.id, "call_1")
        with pytest.raises(StoreUnavailable, match="No space"):
            write_until_full(sink)
        sink.abort()
        assert store.outputs.list(session.id) == []
    remount(small_disk, "size=30m")
    with open_store(path) as store:
        store.append(session.id, exchange(1))
        assert [e.seq for e in store.history(session.id).entries] == list(range(1, stored + 5))


def test_a_read_only_disk_can_be_read_but_not_written(small_disk: Path) -> None:
    path = small_disk / "sessions.db"
    session = filled(path)
    remount(small_disk, "ro")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"read-only|cannot be opened"), open_store(path) as store:
        store.append(session, user("x"))
    assert path.read_bytes() == before
    remount(small_disk, "rw")
    with open_store(path) as store:
        assert len(store.history(session).entries) == 20


def test_a_backup_is_complete_and_never_overwrites(tmp_path: Path) -> None:
    with open_store(tmp_path / "sessions.db") as store:
        session = conversation(store)
        sink = store.outputs.begin(session, "call_1")
        sink.write("kept")
        output = sink.close()
        store.backup(tmp_path / "copy.db")
        with pytest.raises(StoreUnavailable, match="already exists"):
            store.backup(tmp_path / "copy.db")
        with pytest.raises(StoreUnavailable):
            store.backup(tmp_path / "no" / "such" / "copy.db")
        store.append(session, user("later"))
    with open_store(tmp_path / "copy.db") as copy:
        assert len(copy.history(session).entries) == 20
        assert copy.outputs.read(output.id, conversation_id=session).text == "kept"
        assert (tmp_path / "copy.db.outputs") in Path(copy.outputs.get(output.id).location).parents


@pytest.mark.spec("E9")
@pytest.mark.parametrize("deed", ["scrub", "delete"])
def test_deleted_and_scrubbed_text_is_left_in_no_file(tmp_path: Path, deed: str) -> None:
    secret = "QZXJ7731VERYSECRET"
    with open_store(tmp_path / "sessions.db") as store:
        session = store.create(system_prompt=f"prompt {secret}", title=secret)
        # Short enough to be stored uncompressed, so that it would be seen.
        store.append(session.id, [user(f"key {secret} {n}") for n in range(60)])
        sink = store.outputs.begin(session.id, "call_1")
        sink.write(f"out {secret}")
        sink.close()
        other = conversation(store)
        if deed == "scrub":
            store.scrub(session.id, lambda text: text.replace(secret, "[REDACTED]"))
            assert len(store.history(session.id).entries) == 60
        else:
            store.delete(session.id)
        matches = [p for p in tmp_path.rglob("*") if p.is_file() and secret.lower().encode() in p.read_bytes().lower()]
        assert matches == []
        assert len(store.history(other).entries) == 20


@pytest.mark.spec("I6")
def test_a_search_works_when_an_output_file_is_missing(tmp_path: Path) -> None:
    with open_store(tmp_path / "sessions.db") as store:
        session = conversation(store)
        for call, text in (("a", "lost small word"), ("b", "lost large word " * 20_000)):
            sink = store.outputs.begin(session, call)
            sink.write(text)
            Path(sink.close().location).unlink()
        store.append(session, user("a lost word"))
        assert [h.address for h in store.search("lost word")] == ["m:21"]
        with pytest.raises(StoreError, match="missing"):
            store.outputs.read(store.outputs.list(session)[0].id, conversation_id=session)
        assert store.delete(session).outputs == 2


def test_leftover_outputs_of_a_deleted_conversation_are_removed_on_open(tmp_path: Path) -> None:
    with open_store(tmp_path / "sessions.db") as store:
        deleted, stored = store.create(), store.create()
        paths = []
        for session in (deleted, stored):
            sink = store.outputs.begin(session.id, "call_1")
            sink.write("text")
            paths.append(Path(sink.close().location))
        store.delete(deleted.id)
        # As if the process had died between the commit and this.
        paths[0].parent.mkdir()
        paths[0].write_text("text")
    with open_store(tmp_path / "sessions.db"):
        assert not paths[0].parent.exists()
        assert paths[1].read_text() == "text"


def remove_all(path: Path) -> None:
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        file.unlink()


MISHAPS = {
    "deleted": remove_all,
    "moved": lambda path: path.rename(path.with_name("moved.db")),
    "folder gone": lambda path: shutil.rmtree(path.parent),
    "replaced": lambda path: (remove_all(path), filled(path)),
    "emptied": lambda path: path.write_bytes(b""),
    "wal deleted": lambda path: path.with_name(f"{path.name}-wal").unlink(),
}


@pytest.mark.parametrize("mishap", MISHAPS)
def test_no_write_is_acknowledged_after_the_file_was_moved(tmp_path: Path, mishap: str) -> None:
    path = tmp_path / "data" / "sessions.db"
    with open_store(path) as store:
        session = conversation(store)
        MISHAPS[mishap](path)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"sessions\.db was deleted, moved or replaced.*was not stored"):
                store.append(session, user("is this kept?"))
        assert len(store.history(session).entries) == 20, "what this process stored before can still be read"
        store.backup(tmp_path / "rescued.db")
    with open_store(tmp_path / "rescued.db") as rescued:
        assert len(rescued.history(session).entries) == 20


def test_a_file_that_is_moved_back_can_be_written_again(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with open_store(path) as store:
        session = conversation(store)
        path.rename(tmp_path / "moved.db")
        with pytest.raises(StoreUnavailable, match="Put the file back"):
            store.append(session, user("too early"))
        (tmp_path / "moved.db").rename(path)
        store.append(session, user("kept"))
    with open_store(path) as store:
        assert [e.message.text for e in store.history(session).entries][-1] == "kept"


def test_changing_the_working_directory_keeps_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("sessions.db") as store:
        session = conversation(store)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.append(session, user("kept"))
        sink = store.outputs.begin(store.conversations.get(session).id, "call")
        sink.write("kept beside it")
        sink.close()
    assert not any((tmp_path / "elsewhere").iterdir())


WITHOUT_DESCRIPTORS = """
    import os, resource, sys
    from perdure.core.errors import StoreError
    from perdure.store import open_store
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    handles = []
    try:
        while True:
            handles.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for spare in range(10):
        try:
            with open_store(f"{sys.argv[1]}/{spare}.db") as store:
                print("stored", store.append(store.create().id, "kept").added)
        except StoreError as error:
            print(type(error).__name__, error)
        os.close(handles.pop())
"""


def test_running_out_of_descriptors_raises_instead_of_reading_stale_data(tmp_path: Path) -> None:
    ran = run(WITHOUT_DESCRIPTORS, str(tmp_path))
    lines = ran.stdout.splitlines()
    assert len(lines) == 10, ran.stderr
    assert lines[-1] == "stored 1"
    refused = [line for line in lines if line != "stored 1"]
    assert refused == lines[: len(refused)]
    assert all("too many files open" in line and "ulimit -n" in line for line in refused), refused
    for spare in range(10):
        open_store(tmp_path / f"{spare}.db").close()
