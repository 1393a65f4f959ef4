"""Copies of a workspace before a command: which files, how many, and what is read again."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.tools.workspace_copies import WorkspaceCopies, WorkspacePool


def test_the_newest_files_are_copied_as_far_as_there_is_room(tmp_path: Path) -> None:
    for n, name in enumerate(("old", "middle", "new")):
        (tmp_path / name).write_bytes(bytes([n]) * 400)
        os.utime(tmp_path / name, (1_000 + n, 1_000 + n))
    copies = WorkspaceCopies(tmp_path, max_bytes=1_000).refresh()
    assert {Path(path).name for path in copies} == {"new", "middle"}


def test_links_caches_and_version_control_are_left_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    root = tmp_path / "work"
    for folder in (".git", "node_modules/p", "src"):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_text("x")
    (root / "link").symlink_to(outside)
    (root / "linked").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    assert [path for path, _ in WorkspaceCopies(root).scan()] == [str(root / "src" / "file")]


def test_a_file_that_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    copies = WorkspaceCopies(tmp_path)
    (before,) = copies.refresh().values()
    (again,) = copies.refresh().values()
    assert again[1] is before[1]
    (tmp_path / "a").write_text("three")
    (changed,) = copies.refresh().values()
    assert changed[1] == b"three"


def test_the_agents_of_a_folder_share_its_copies(tmp_path: Path) -> None:
    pool = WorkspacePool(tmp_path / "home")
    first = pool.copies_of(tmp_path / "home" / "project")
    assert first is not None
    assert pool.copies_of(tmp_path / "home" / "project") is first
    assert pool.copies_of(tmp_path / "home" / "other") is not first


def test_a_home_folder_is_not_copied_where_other_programs_write(tmp_path: Path) -> None:
    pool = WorkspacePool(tmp_path / "home")
    assert pool.copies_of(tmp_path / "home") is None
    assert pool.copies_of(tmp_path) is None
