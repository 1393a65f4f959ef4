"""The docs that are written from code: whole, and told when stale."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.cli.reference import BLOCKS, commands_page, main, settings_tables, tool_arguments
from perdure.config import keys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for block in BLOCKS:
        (tmp_path / block.page).write_text(f"# Before\n\n{block.begin}\nold\n{block.end}\n\nAfter.\n")
    return tmp_path


def test_every_key_is_in_the_table_with_default_range_and_meaning() -> None:
    tables = settings_tables()
    for key in keys.all_keys().values():
        assert f"| `{key.name}` | `{keys.format_value(key.default)}` | {key.allowed} | {key.description} |" in tables


def test_every_command_is_on_the_page() -> None:
    page = commands_page()
    for path in ("perdure", "perdure config", "perdure config set", "perdure plugins use"):
        assert f"\n## {path}\n" in page


def test_every_tool_of_the_docs_has_its_arguments_there() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \| \w+ \| ", page.partition("## What is built in")[2], re.MULTILINE))
    rows = tool_arguments()
    assert listed == set(re.findall(r"^\| `(\w+)` \| `", rows, re.MULTILINE))
    assert "| `read_file` | `path` | string | required |" in rows
    assert 'one of "pending"' in rows


def test_it_writes_once_and_then_finds_nothing_stale(folder: Path) -> None:
    stale = CliRunner().invoke(main, ["--check", str(folder)])
    assert stale.exit_code == 1
    assert stale.output.count("is stale") == len(BLOCKS) + 1
    assert "old" in (folder / "configuration.md").read_text()
    assert CliRunner().invoke(main, [str(folder)]).exit_code == 0
    for block in BLOCKS:
        text = (folder / block.page).read_text()
        assert text.startswith("# Before\n")
        assert text.endswith("\n\nAfter.\n")
        assert "\nold\n" not in text
    assert CliRunner().invoke(main, ["--check", str(folder)]).exit_code == 0


def test_lost_marks_are_told(folder: Path) -> None:
    (folder / "configuration.md").write_text("no marks")
    run = CliRunner().invoke(main, [str(folder)])
    assert run.exit_code == 1
    assert "has lost its marks" in run.output
