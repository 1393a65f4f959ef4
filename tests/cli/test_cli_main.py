"""The `perdure` command itself: help, version, exit codes, and errors as plain lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from perdure import __version__
from perdure.cli.main import CHAT_OPTIONS, COMMANDS, cli
from support.terminal import perdure, perdure_in_terminal, perdure_process


def every_command() -> list[click.Context]:
    found, waiting = [], [click.Context(cli, info_name="perdure", **cli.context_settings)]
    while waiting:
        ctx = waiting.pop()
        found.append(ctx)
        if isinstance(ctx.command, click.Group):
            for name in ctx.command.list_commands(ctx):
                command = ctx.command.get_command(ctx, name)
                assert command is not None
                waiting.append(click.Context(command, info_name=name, parent=ctx))
    return found


def test_called_bare_it_helps_and_makes_nothing(tmp_path: Path) -> None:
    bare, asked = perdure_process(tmp_path / "h"), perdure_process(tmp_path / "h", "--help")
    assert (bare.status, asked.status) == (0, 0)
    assert bare.out == asked.out
    assert all(name in bare.out for name in COMMANDS)
    assert not (tmp_path / "h").exists()


def test_an_error_is_one_plain_line_in_a_real_process_too(tmp_path: Path) -> None:
    run = perdure_process(tmp_path, "config", "get", "model.nme")
    assert (run.status, run.out) == (1, "")
    assert run.err.startswith("perdure: unknown setting 'model.nme' (did you mean 'model.name'?)")
    assert len(run.err.splitlines()) == 1


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m perdure config list | head -n 1"
    run = subprocess.run(
        ["bash", "-c", command],
        env={"PERDURE_HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_version(tmp_path: Path) -> None:
    assert perdure(tmp_path, "--version").out == f"perdure {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["confg"],
        ["config", "lst"],
        ["config", "set", "model.name"],
        ["--set", "nonsense", "config", "list"],
        ["--nope"],
    ],
)
def test_called_wrongly_it_says_so_and_ends_with_2(arguments: list[str], tmp_path: Path) -> None:
    run = perdure(tmp_path, *arguments)
    assert run.status == 2
    assert "Error:" in run.err
    assert "Traceback" not in run.err


def test_options_of_the_chat_need_no_chat_before_them(tmp_path: Path) -> None:
    chat = COMMANDS["chat"].load()
    own = {option for parameter in chat.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert own == CHAT_OPTIONS
    for arguments in (["--continue"], ["-c", "-q", "hello"], ["--set", "model.name=m-1", "--continue"], ["-cm", "m-1"]):
        run = perdure(tmp_path, *arguments)
        assert (run.status, "there is no conversation to go on with yet" in run.err) == (2, True), run.err
    assert "No such option" in perdure(tmp_path, "--contnue").err


def test_words_behind_chat_are_told_where_they_go(tmp_path: Path) -> None:
    run = perdure(tmp_path, "chat", "hello")
    assert (run.status, run.out) == (2, "")
    assert "A question goes behind -q, in quotes." in run.err


@pytest.mark.parametrize(
    ("arguments", "last_words"),
    [(["login", "nonsense"], "minimax, litellm."), (["config", "set", "model.api_key", "x"], "goes before it")],
)
def test_a_long_error_is_wrapped_between_words_in_a_terminal(
    tmp_path: Path, arguments: list[str], last_words: str
) -> None:
    lines = perdure_in_terminal(tmp_path, *arguments, typed="", prompt="never").out.rstrip().split("\n")
    assert len(lines) > 1
    # The home folder of a test is wider than a row, and stays whole.
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)
    assert last_words in " ".join(lines[-2:])
    assert perdure_process(tmp_path, *arguments).err.rstrip().split("\n")[-1].endswith(last_words), "in a pipe as it is"


def test_a_mistyped_command_gets_the_one_that_was_meant(tmp_path: Path) -> None:
    assert "No such command 'confg'. Did you mean 'config'?" in perdure(tmp_path, "confg").err
    assert "No such command 'lst'. Did you mean 'list'?" in perdure(tmp_path, "config", "lst").err


@pytest.mark.parametrize("ctx", every_command(), ids=lambda ctx: ctx.command_path)
def test_every_command_explains_itself_with_examples(ctx: click.Context) -> None:
    text = ctx.get_help()
    assert "Examples:" in text, ctx.command_path
    assert "..." not in re.sub(r"\[ARGS\]\.\.\.|\w+\]?\.\.\.", "", text.splitlines()[0])
    for line in text.splitlines():
        assert len(line) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_commands_own(name: str) -> None:
    command = COMMANDS[name].load()
    assert command.get_short_help_str(limit=200) == COMMANDS[name].summary
