"""Small things a first day meets: exit codes, hints, lists, placeholders."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner, Result

from perdure.cli.chat.input import Pastes
from perdure.cli.main import cli
from perdure.config.edit import without
from perdure.core.errors import ToolError
from perdure.testing.simulator import Simulator
from perdure.tools.tool import tool_from_function
from support.typed import chatting


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def test_a_wrong_setting_on_the_command_line_is_a_wrong_call(home: Path) -> None:
    assert run("--set", "model.temperature=9", "config", "list").exit_code == 2
    assert run("--set", "no.such=9", "config", "list").exit_code == 2
    home.mkdir()
    (home / "config.yaml").write_text("model:\n  temperature: 9\n")
    assert run("config", "list").exit_code == 1


def test_a_key_is_no_setting_and_the_hint_says_where_it_goes(home: Path) -> None:
    assert "perdure login PROVIDER" in run("config", "set", "model.api_key", "x").output


def test_version_and_help_are_options(home: Path) -> None:
    assert "Did you mean '--version'?" in run("version").output


def test_lists_and_imports_say_what_there_was(home: Path, tmp_path: Path) -> None:
    assert "no conversations of 'nonsense'" in run("sessions", "list", "--source", "nonsense").output
    (tmp_path / "m.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    any_id = run("sessions", "import", str(tmp_path / "m.json")).output.split()[0]
    exported = tmp_path / "t.jsonl"
    run("sessions", "export", any_id, "-o", str(exported))
    assert "it was there already" in run("sessions", "import", str(exported)).output
    assert "it was there already" not in run("sessions", "import", "--copy", str(exported)).output
    (tmp_path / "e.json").write_text("[]")
    empty = run("sessions", "import", str(tmp_path / "e.json"))
    assert (empty.exit_code, "holds no messages" in empty.output) == (1, True)


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ("compression:\n  threshold: 0.6\n", ("compression", "threshold"), ""),
        ("a: 1\ncompression:\n  threshold: 0.6\nb: 2\n", ("compression", "threshold"), "a: 1\nb: 2\n"),
        ("compression:\n  threshold: 0.6\n  # mine\n", ("compression", "threshold"), "compression:\n  # mine\n"),
        ("c:\n  x: 1\n  y: 2\n", ("c", "x"), "c:\n  y: 2\n"),
        ("c:\n  d:\n    x: 1\n", ("c", "d", "x"), ""),
        ("c:\n  d:\n    x: 1\n  y: 2\n", ("c", "d", "x"), "c:\n  y: 2\n"),
    ],
)
def test_an_emptied_section_goes_with_its_last_entry(before: str, path: tuple[str, ...], after: str) -> None:
    assert without(before, path) == after


def test_allowed_values_keep_their_letters_in_an_error() -> None:
    def convert(units: Literal["C", "F"]) -> str:
        """Convert."""
        return units

    tool = tool_from_function(convert)
    assert tool.arguments is not None
    with pytest.raises(ToolError, match="input should be 'C' or 'F'"):
        tool.arguments.validate("convert", {"units": "K"})


def test_a_placeholder_is_removed_as_a_whole_and_a_lost_one_is_known() -> None:
    pastes = Pastes()
    mark = pastes.fold("line\n" * 50)
    assert pastes.mark_before(f"see {mark}") == mark
    assert pastes.mark_before(f"see {mark} ") == ""
    assert pastes.mark_before("see [pasted #9: 5 lines]") == ""
    assert pastes.missing_mark(f"{mark} and [pasted #9: 5 lines]") == "[pasted #9: 5 lines]"
    assert pastes.missing_mark(mark) == ""


def test_words_behind_a_command_that_takes_none_are_named(home: Path) -> None:
    with Simulator(script=["Fine."]) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        with chatting(home, flags) as chat:
            chat.see("m-1")
            chat.type("/new words\r")
            chat.see("/new takes nothing behind it")
            chat.type("/stop\r")
            chat.see("Nothing is going on.")
            chat.type("hello\r")
            chat.see("Fine.")
            chat.type("/branch\r")
            chat.see("Branched from here", "/128,000")
    assert stat.S_IMODE((home / "history").stat().st_mode) == 0o600
