"""What plain commands print, in terminals of several widths and to a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import output
from perdure.cli.style import column_count, wrap_words
from perdure.core.messages import assistant, user
from perdure.store.store import open_store
from support.forked import fork
from support.terminal import perdure

WIDTHS = [40, 60, 80, 120]
COMMANDS = [
    *(("--help",), ("chat", "--help"), ("login", "--help"), ("sessions", "import", "--help"), ("gateway", "--help")),
    *(("sessions", "list"), ("sessions", "search", "sprockets"), ("config", "list", "compression")),
    *(("login", "--list"), ("approvals", "list"), ("plugins", "list"), ("permissions", "show"), ("usage",)),
    *(("doctor", "--offline"), ("models", "list"), ("schedule", "list"), ("gateway", "token", "list")),
    *(("sessoins",), ("--contineu",), ("config", "set", "compression.treshold", "1"), ("sessions", "show", "c_none")),
    *(("chat", "--mode", "everything"), ("login", "antropic"), ("config", "set", "compression.threshold", "7")),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    titles = ("why the connection to the database is refused by the second machine", "東京の天気を毎日" * 6)
    with open_store(home / "perdure.db") as store:
        for title in titles:
            talk = store.create(source="terminal", title=title)
            asked = f"where are the sprockets of {title}, and who has moved them there since the last stocktaking?"
            store.append(talk.id, [user(asked), assistant("Behind the cogs, on shelf 42 of the second hall.")])
    return home


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_word_is_broken_at_the_edge_of_a_terminal(
    home: Path, command: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = perdure(home, *command)
    monkeypatch.setattr(output, "_columns_of", lambda stream: width)
    shown = perdure(home, *command)
    assert shown.status == plain.status
    rows = f"{shown.out}\n{shown.err}".split("\n")
    # A word that is wider than the terminal stays whole, so that it can be copied: it has its row to itself.
    too_wide = [row for row in rows if column_count(row) > width and len(row.split()) > 1]
    assert [row for row in too_wide if column_count(max(row.split(), key=len)) <= width] == []
    assert _letters(shown.out) == _letters(plain.out)
    assert _letters(shown.err) == _letters(plain.err)
    assert _words(shown.out) == _words(plain.out)


def _words(text: str) -> set[str]:
    """Text in a script without blanks may be broken anywhere."""
    return {word for word in text.split() if word.isascii() and word != "\\"}


def _letters(text: str) -> str:
    return "".join(text.split()).replace("\\", "")


def test_a_pipe_gets_a_row_for_a_conversation_and_json_is_never_wrapped(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(perdure(home, "sessions", "list").out.splitlines()) == 2
    monkeypatch.setattr(output, "_columns_of", lambda stream: 60)
    for command in (("sessions", "list", "--json"), ("sessions", "search", "sprockets", "--json")):
        assert all(json.loads(line) for line in perdure(home, *command).out.splitlines())


@pytest.mark.parametrize("width", WIDTHS)
def test_a_hint_has_its_command_whole_in_one_row(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_columns_of", lambda stream: width)
    output.echo_hint("Searched 4 messages: connection (2), refused. Open one:", "perdure sessions show ADDRESS")
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].endswith("perdure sessions show ADDRESS")
    assert all(len(row) <= width for row in shown)


def test_a_long_command_is_broken_as_a_shell_joins_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_columns_of", lambda stream: 50)
    output.echo_hint("Use it:", "echo --set model.base_url=http://127.0.0.1:8000/v1 'two  words' -p custom")
    text, *command = capsys.readouterr().out.splitlines()
    assert text == "Use it:"
    assert all(len(row) <= 50 for row in command)
    joined = subprocess.run(["sh", "-c", "\n".join(command)], capture_output=True, text=True, check=True).stdout
    assert joined == "--set model.base_url=http://127.0.0.1:8000/v1 two  words -p custom\n"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one `perdure config list` two", ["one", "`perdure config list`", "two"]),
        ("see https://example.org/a/very/long/address now", ["see", "https://example.org/a/very/long/address", "now"]),
        ("東京の天気を毎日調べる仕事です", ["東京の天気を毎日調べる", "仕事です"]),
        ("a  b", ["a  b"]),
        ("", [""]),
        ("`a command that is far too wide for it` end", ["`a command that is far", "too wide for it` end"]),
    ],
)
def test_words_and_commands_in_backticks_stay_whole(text: str, rows: list[str]) -> None:
    assert list(wrap_words(text, 23)) == rows


def test_a_long_conversation_opens_in_the_pager_wrapped_between_words(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    words = "the sprockets are behind the cogs " * 3
    with open_store(home / "perdure.db") as store:
        talk = store.create(source="terminal", title="long")
        store.append(talk.id, [m for n in range(20) for m in (user(f"{n} {words}"), assistant(words))])
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "PAGER" ; exec cat\n')
    pager.chmod(0o700)
    shown = _in_terminal(home, 60, "sessions", "show", talk.id, PAGER=str(pager))
    assert shown[0] == "PAGER"
    assert all(len(row) <= 60 for row in shown)
    assert sum(row.count("sprockets") for row in shown) == 120
    assert _in_terminal(home, 60, "sessions", "list", PAGER=str(pager))[0].startswith(talk.conversation_id)


def test_ctrl_c_belongs_to_the_pager(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with open_store(home / "perdure.db") as store:
        talk = store.create(source="terminal", title="long")
        store.append(talk.id, [user(f"line {n}") for n in range(40)])
    pager = tmp_path / "pager"
    # It interrupts the whole group, as the terminal does, and goes on.
    pager.write_text("#!/bin/sh\ntrap '' INT\nkill -INT 0\nsleep 0.3\nwc -l\n")
    pager.chmod(0o700)
    shown = _in_terminal(home, 60, "sessions", "show", talk.id, PAGER=str(pager))
    assert [row.strip().isdecimal() for row in shown] == [True]


def _in_terminal(home: Path, width: int, *arguments: str, **environ: str) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(home.parent),
        "PERDURE_HOME": str(home),
        "TERM": "xterm",
        **environ,
    }
    with fork(["-m", "perdure", *arguments], env=given, cwd=Path.cwd(), terminal=theirs):
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    return shown.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is gone
        return b""


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--contineu"], "--continue"),
        (["--resum", "last"], "--resume"),
        (["--versoin"], "--version"),
        (["sesions"], "'sessions'"),
        (["search", "port"], "'sessions search'"),
        (["revoke"], "'approvals revoke'"),
        (["continue"], "'--continue'"),
        (["what is in this folder?"], "-q"),
        (["sessions", "lst"], "'list'"),
        (["sessions", "list", "--jsn"], "'--json'"),
    ],
)
def test_what_is_mistyped_is_answered_with_the_nearest(tmp_path: Path, arguments: list[str], hint: str) -> None:
    run = perdure(tmp_path / "home", *arguments)
    assert run.status == 2
    assert hint in run.err.rpartition("Error:")[2]


def test_the_help_lists_the_options_of_a_bare_call(tmp_path: Path) -> None:
    shown = perdure(tmp_path, "--help").out
    for option in ("--continue", "--resume", "--model", "--question", "--mode"):
        assert option in shown


# -- where the output goes -------------------------------------------------------------------------------------------


def _command(home: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PERDURE_HOME": str(home)}
    environ |= options.pop("environ", {})
    return subprocess.run([sys.executable, "-m", "perdure", *arguments], env=environ, check=False, **options)


@pytest.mark.parametrize("command", [["sessions", "list"], ["doctor", "--offline"], ["config", "list"]])
def test_a_reader_that_is_gone_ends_a_command_quietly(home: Path, command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = _command(home, *command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, b"")


def test_a_full_disk_behind_the_output_is_one_plain_line(home: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        run = _command(home, "sessions", "list", stdout=full, stderr=subprocess.PIPE)
    assert (run.returncode, run.stderr) == (1, b"perdure: the output cannot be written: No space left on device\n")


def test_an_encoding_without_a_character_shows_a_question_mark_and_json_escapes_it(home: Path) -> None:
    narrow = {"PYTHONIOENCODING": "latin-1"}
    listed = _command(home, "sessions", "list", environ=narrow, capture_output=True)
    assert (listed.returncode, b"????" in listed.stdout, listed.stderr) == (0, True, b"")
    rows = _command(home, "sessions", "list", "--json", environ=narrow, capture_output=True).stdout.splitlines()
    assert json.loads(rows[0])["title"].startswith("東京")


def test_a_mistyped_id_is_answered_with_the_nearest_one_and_the_list(home: Path) -> None:
    own = json.loads(perdure(home, "sessions", "list", "--json").out.splitlines()[0])["id"]
    mistyped = own[:-1] + ("0" if own[-1] != "0" else "1")
    for command in (["sessions", "show", mistyped], ["usage", mistyped], ["sessions", "export", mistyped]):
        run = perdure(home, *command)
        assert run.status == 1
        assert own in run.err.partition("did you mean ")[2].partition("?")[0]
        assert "sessions list` shows all" in run.err
    assert "did you mean" not in perdure(home, "sessions", "show", "c_nowhere").err
