"""Atomic replacement: the old content or the new, never a part, and no temporary file left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.core.files import AtomicFile, mode_of, replace_file


def test_a_replaced_file_has_the_new_content_and_mode(tmp_path: Path) -> None:
    target = tmp_path / "file"
    replace_file(target, b"old", mode=0o644)
    replace_file(target, b"new", mode=0o600, is_durable=False)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [target]


def test_a_block_that_raises_leaves_the_old_content_and_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def write_half() -> None:
        with AtomicFile(target, mode=0o600) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_commit_that_fails_raises_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(folder, b"x", mode=0o600)
    assert list(tmp_path.iterdir()) == [folder]


def test_an_existing_file_keeps_its_mode_and_a_new_one_gets_the_default(tmp_path: Path) -> None:
    target = tmp_path / "file"
    assert mode_of(target, default=0o640) == 0o640
    assert mode_of(target) & ~0o666 == 0
    target.touch()
    target.chmod(0o755)
    assert mode_of(target, default=0o640) == 0o755


def test_a_leftover_under_a_fixed_temporary_name_is_overwritten(tmp_path: Path) -> None:
    target, part = tmp_path / "blob.txt", tmp_path / "blob.part"
    part.write_bytes(b"a longer leftover of a crash")
    with AtomicFile(target, mode=0o600, temporary=part) as file:
        file.write(b"whole")
    assert target.read_bytes() == b"whole"
    assert not part.exists()
