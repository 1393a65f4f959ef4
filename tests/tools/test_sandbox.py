"""Commands in a sandbox: the workspace is writable, home is hidden, the network is off; without one nothing runs."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest

from perdure.core.errors import ToolError
from perdure.tools.builtin.sandbox import Sandbox
from perdure.tools.builtin.terminal import Terminal
from perdure.tools.tool import ToolContext


def _folders(tmp_path: Path) -> tuple[Path, Path]:
    home, workspace = tmp_path / "home", tmp_path / "home" / "project"
    workspace.mkdir(parents=True)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("PRIVATE KEY")
    (home / "thesis.tex").write_text("years of work")
    (workspace / "notes.txt").write_text("notes")
    return home, workspace


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    home, workspace = _folders(tmp_path)
    sandbox = Sandbox(workspace, home)
    if sandbox.problem is not None:
        pytest.skip(sandbox.problem)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    return Terminal(workspace, environment, sandbox=sandbox)


def _run(terminal: Terminal, command: str) -> str:
    return str(terminal.terminal(ToolContext("call_1", task_id="t"), command).text)


@pytest.mark.spec("J6")
def test_sandbox_hides_home_and_writes_only_the_workspace(terminal: Terminal, tmp_path: Path) -> None:
    output = _run(
        terminal, "cat notes.txt; echo more >> notes.txt; mkdir sub; cat ~/.ssh/id_rsa; echo x > ~/thesis.tex"
    )
    assert "notes" in output
    assert "PRIVATE" not in output
    assert (tmp_path / "home" / "project" / "notes.txt").read_text() == "notesmore\n"
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"
    assert "Read-only file system" in _run(terminal, "touch /etc/perdure-was-here")


@pytest.mark.spec("J6")
def test_sandbox_has_no_network(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "connected" not in _run(terminal, f"(exec 3> /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo connected")


def test_folder_and_variables_persist_in_the_sandbox(terminal: Terminal) -> None:
    _run(terminal, "mkdir -p sub && cd sub && export COLOUR=green")
    assert _run(terminal, 'echo "$COLOUR"; basename "$PWD"').split("\n")[1:] == ["green", "sub"]
    assert _run(terminal, "exit 3").startswith("[exit 3]")
    # A folder that is hidden, or gone, is replaced by the workspace.
    _run(terminal, "cd ~")
    assert _run(terminal, 'basename "$PWD"').endswith("project")


@pytest.mark.spec("J6")
def test_without_bubblewrap_no_command_runs(tmp_path: Path) -> None:
    home, workspace = _folders(tmp_path)
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    reasons = {
        str(tmp_path / "nowhere"): "bubblewrap could not be started",
        str(broken): "fails on this system (No permissions to create new namespace)",
    }
    for program, reason in reasons.items():
        terminal = Terminal(workspace, {"PATH": "/usr/bin:/bin"}, sandbox=Sandbox(workspace, home, program=program))
        with pytest.raises(ToolError, match="the command was not run") as refusal:
            _run(terminal, "touch was-run")
        assert reason in str(refusal.value)
        assert "tools.sandbox: off" in str(refusal.value)
    assert not (workspace / "was-run").exists()


def test_a_workspace_that_contains_home_cannot_be_sandboxed(tmp_path: Path) -> None:
    home, _ = _folders(tmp_path)
    assert "contains the home folder" in str(Sandbox(tmp_path, home, program="bwrap").problem)
    assert "contains the home folder" in str(Sandbox(home, home, program="bwrap").problem)


def test_a_command_in_the_sandbox_is_stopped_with_its_children(terminal: Terminal) -> None:
    reply = terminal.terminal(ToolContext("call_1", task_id="t"), "sleep 86413 & sleep 86413", timeout_s=0.5)
    assert "still running" in reply.text
    deadline = time.monotonic() + 5
    while _is_running("86413") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running("86413")


def _is_running(argument: str) -> bool:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if process.read_bytes().split(b"\0")[:2] == [b"sleep", argument.encode()]:
                return True
    return False
