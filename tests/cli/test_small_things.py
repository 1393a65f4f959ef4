"""Small things a first day meets: exit codes, hints, lists, placeholders."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner, Result

from perdure import open_store
from perdure.agent.context_usage import ContextUsage
from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.chat.controller import ChatController, describe_mode
from perdure.cli.chat.input import Pastes
from perdure.cli.chat.stored_messages import replay_text
from perdure.cli.chat.tool_output import output_lines
from perdure.cli.main import cli
from perdure.cli.style import Style
from perdure.commands.format import gauge_line
from perdure.commands.search import hit_lines
from perdure.config.edit import without
from perdure.config.settings import PermissionMode
from perdure.core.errors import ToolError
from perdure.core.events import ToolFinished, ToolOutput
from perdure.core.messages import Message, ToolCall, assistant, user
from perdure.core.ports import SearchHit
from perdure.testing.simulator import Simulator
from perdure.tools.permissions import MODES
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
            chat.see("Branched from here", "/~128,000")
    assert stat.S_IMODE((home / "history").stat().st_mode) == 0o600


def test_one_of_a_thing_is_not_called_many(home: Path) -> None:
    from perdure.cli.chat.tool_output import shorten_preview

    assert Pastes().fold("line\n" * 200) == "[pasted #1: 200 lines]"
    output = ToolOutput(ToolCall("c", "terminal"), "a\nb\n", "b\nc\nd\n", 4)
    assert "  … 1 more line" in list(shorten_preview(output, most=3, width=60, ink=Style(False)))
    with open_store(home.parent / "s.db") as store:
        session = store.create()
        store.append(session.id, [assistant("one")])
        store.append(session.id, [message for n in range(6) for message in (user(f"q{n}"), assistant(f"a{n}"))])
        text = replay_text(store, session.id, width=80, ink=Style(False))
    assert text.startswith("… 1 earlier message: /expand m:1 opens it\n")


def test_the_hint_about_a_key_is_shown_only_where_there_is_a_prompt() -> None:
    call = ToolCall("c", "terminal")
    result = Message("tool", "\n".join(map(str, range(40))), tool_call_id="c", kind="tool")
    event = ToolFinished(call, result, 0.1)
    options: dict[str, Any] = {"most": 6, "width": 80, "ink": Style(False)}
    assert any("34 more lines; Ctrl-O" in line for line in output_lines(event, **options))
    assert any(line.endswith("34 more lines") for line in output_lines(event, **options, can_unfold=False))


def test_help_names_keys_and_marks_and_context_the_rules(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("permissions:\n  deny: ['terminal(git push *)']\n")
    with Simulator(script=["Hello."]) as sim:
        surface = ChatCommandContext({"model.base_url": sim.base_url, "model.name": "m-1"})
        commands = ChatController(surface, print).commands
        shown = commands.dispatch(surface, "/help")
        assert shown is not None
        assert all(mark in shown.text for mark in ("@path", "!command", "Ctrl-O", "Shift-Tab"))
        context = commands.dispatch(surface, "/context")
        assert context is not None
        assert "permissions  deny terminal(git push *)" in context.text
        surface.agent.chat("hello")
        conversation = surface.store.conversations.get(surface.session_id or "").id
        fresh = commands.dispatch(surface, "/new")
        assert fresh is not None
        assert fresh.text.endswith(f"/resume {conversation}")
        surface.close()
        surface.store.close()


def test_a_window_that_nobody_stated_is_shown_as_assumed() -> None:
    usage = ContextUsage("m", 1_000, 128_000, 64_000, is_assumed=True)
    assert "1,000 of ~128,000 (assumed) tokens" in gauge_line(usage)


def test_a_hit_without_a_marked_word_says_why_it_is_listed() -> None:
    hit = SearchHit("c_1", "s_1", "s_1", "m:2", "user", 0, "the harbour")
    assert hit_lines([hit])[1:] == ["    (no title)", "    the harbour  [similar in meaning]"]
    elsewhere = replace(hit, matched=("port",))
    assert hit_lines([elsewhere])[-1].endswith("the harbour  [port in another part of it]")
    marked = replace(hit, snippet="the «port»", marks=((4, 8),))
    assert hit_lines([marked])[-1].endswith("the «port»")


@pytest.mark.parametrize("group", ["config", "sessions", "permissions", "approvals", "schedule"])
def test_a_group_without_a_command_shows_its_help_and_no_error(group: str) -> None:
    result = CliRunner().invoke(cli, [group])
    assert result.output.startswith(f"Usage: cli {group} ")
    assert "Commands:" in result.output
    assert "Error:" not in result.output
    assert result.output.count("Usage:") == 1


def test_what_make_run_prints_fits_a_narrow_terminal() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    target = makefile.partition("$(VENV)/.user:")[2].partition("@touch")[0].replace("$(VENV)", ".venv")
    lines = re.findall(r'@echo "(.*)"$', target.replace("$(BIN)", ".venv/bin"), re.MULTILINE)
    assert len(lines) > 4
    assert [line for line in lines if len(line) > 60 and "$(CURDIR)" not in line] == []


@pytest.mark.parametrize("mode", MODES)
def test_the_meaning_of_a_mode_fits_the_row_of_a_narrow_terminal(mode: PermissionMode) -> None:
    assert len(describe_mode(mode)) <= 59
