"""The docs that are written from code: whole, and told when stale."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.cli.reference import BEGIN, END, commands_page, main, settings_tables
from perdure.config import keys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "configuration.md").write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    return tmp_path


def test_every_key_is_in_the_table_with_default_range_and_meaning() -> None:
    tables = settings_tables()
    for key in keys.all_keys().values():
        assert f"| `{key.name}` | `{keys.format_value(key.default)}` | {key.allowed} | {key.description} |" in tables


def test_every_command_is_on_the_page() -> None:
    page = commands_page()
    for path in ("perdure", "perdure config", "perdure config set", "perdure plugins use"):
        assert f"\n## {path}\n" in page


def test_it_writes_once_and_then_finds_nothing_stale(folder: Path) -> None:
    stale = CliRunner().invoke(main, ["--check", str(folder)])
    assert stale.exit_code == 1
    assert stale.output.count("is stale") == 2
    assert "old" in (folder / "configuration.md").read_text()
    assert CliRunner().invoke(main, [str(folder)]).exit_code == 0
    text = (folder / "configuration.md").read_text()
    assert text.startswith("# Before\n")
    assert text.endswith("\n\nAfter.\n")
    assert "\nold\n" not in text
    assert CliRunner().invoke(main, ["--check", str(folder)]).exit_code == 0


def test_lost_marks_are_told(folder: Path) -> None:
    (folder / "configuration.md").write_text("no marks")
    run = CliRunner().invoke(main, [str(folder)])
    assert run.exit_code == 1
    assert "has lost its marks" in run.output
