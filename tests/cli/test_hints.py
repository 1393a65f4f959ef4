"""Hints that name a command of ours name one that works in the shell they are read in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.main import COMMANDS
from perdure.cli.style import runnable
from support.forked import run_forked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("run `perdure login openai`, or", "run `.venv/bin/perdure login openai`, or"),
        ("Go on with it:     perdure chat --resume c_1", "Go on with it:     .venv/bin/perdure chat --resume c_1"),
        ("perdure: no such host", "perdure: no such host"),
        ("in ~/.perdure config", "in ~/.perdure config"),
        ("Perdure keeps; perdure keeps", "Perdure keeps; perdure keeps"),
        ("/opt/perdure chat", "/opt/perdure chat"),
    ],
)
def test_only_commands_of_ours_are_rewritten(text: str, shown: str) -> None:
    assert runnable(text, ".venv/bin/perdure") == shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_one_of_ours(name: str) -> None:
    assert runnable(f"`perdure {name} x`", "here/perdure") == f"`here/perdure {name} x`"


@pytest.mark.parametrize("program", ["perdure", "PERDURE_HOME=/a perdure", "py -m perdure", "bin/perdure"])
def test_a_command_is_named_once_however_often_it_passes(program: str) -> None:
    once = runnable("call `perdure config list`, perdure chat", program)
    assert once == f"call `{program} config list`, {program} chat"
    assert runnable(once, program) == once


def environ_of(folder: Path, path: str) -> dict[str, str]:
    return {**os.environ, "PATH": path, "PERDURE_HOME": str(folder / "home")}


def run(folder: Path, *command: str, path: str) -> str:
    done = run_forked(command, cwd=folder, env=environ_of(folder, path), timeout=60)
    return done.stdout + done.stderr


def test_a_hint_names_the_program_as_it_can_be_called_here(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "perdure"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom perdure.cli.main import main\nmain()\n", encoding="utf-8")
    script.chmod(0o755)
    usual = "/usr/bin:/bin"
    wrong = ("login", "--remove", "openai")
    # Once as a shell starts it, and then forked.
    started = subprocess.run(
        ["bin/perdure", *wrong],
        cwd=tmp_path,
        env=environ_of(tmp_path, usual),
        capture_output=True,
        text=True,
        check=False,
    )
    # The home folder may have been named for this call alone.
    here = f"`PERDURE_HOME={tmp_path / 'home'} "
    assert f"{here}bin/perdure login --list`" in started.stderr
    assert f"{here}perdure login --list`" in run(tmp_path, "bin/perdure", *wrong, path=f"{script.parent}:{usual}")
    for arguments, hint in (
        (("login", "--nosuch"), "Try 'bin/perdure login --help' for help."),
        (("sessions", "list"), f"{here}bin/perdure chat` begins one"),
        (("usage",), f"{here}bin/perdure chat` begins one"),
        (("schedule", "list"), f"{here}bin/perdure schedule add"),
        (("--continue", "-q", "hello"), f"{here}bin/perdure chat`"),
    ):
        assert hint in run(tmp_path, "bin/perdure", *arguments, path=usual), arguments
    assert "-m perdure login --list`" in run(tmp_path, "-m", "perdure", *wrong, path=usual)
