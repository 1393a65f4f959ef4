"""The terminal tool: persistent state, output of any size, and no process left running."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.core.concurrency import CancelToken
from perdure.core.errors import ToolError
from perdure.core.ports import StoredOutput
from perdure.tools.builtin.terminal import OutputCapture, Terminal
from perdure.tools.tool import OutputPreview, ToolContext

HERE = ToolContext("call_1", task_id="t_1")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    created = Terminal(tmp_path, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    yield created
    created.close()


def _running(mark: str) -> list[str]:
    matches = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False).stdout.split()
    return [pid for pid in matches if pid != str(os.getpid())]


def test_terminal_returns_output_and_exit_code(terminal: Terminal) -> None:
    good = terminal.terminal(HERE, "echo out; echo err >&2")
    assert good.text == "[exit 0]\nout\nerr"
    bad = terminal.terminal(HERE, "exit 3")
    assert bad.text == "[exit 3]"
    assert bad.is_error
    assert terminal.terminal(HERE, "kill -9 $$").text == "[ended by signal 9]"


def test_folder_and_environment_persist_between_calls(terminal: Terminal) -> None:
    terminal.terminal(HERE, "mkdir -p 'a b' && cd 'a b' && export COLOUR='two\nlines' && unset HOME")
    assert terminal.terminal(HERE, 'basename "$PWD"; echo "$COLOUR"; echo "${HOME-gone}"').text == (
        "[exit 0]\na b\ntwo\nlines\ngone"
    )
    other = ToolContext("call_2", task_id="t_2")
    assert terminal.terminal(other, 'echo "${COLOUR-none}"').text == "[exit 0]\nnone"


def test_state_persists_when_the_command_exits_or_fails(terminal: Terminal) -> None:
    terminal.terminal(HERE, "mkdir x; cd x; false")
    terminal.terminal(HERE, "export A=1; exit 5")
    assert terminal.terminal(HERE, 'echo "$(basename $PWD) $A"').text == "[exit 0]\nx 1"


def test_deleted_folder_does_not_break_the_shell(terminal: Terminal) -> None:
    terminal.terminal(HERE, "mkdir y && cd y")
    terminal.terminal(HERE, "rm -r ../y")
    assert terminal.terminal(HERE, "echo alive").text == "[exit 0]\nalive"


def test_command_of_a_megabyte_runs(terminal: Terminal) -> None:
    text = "x" * 1_000_000
    assert terminal.terminal(HERE, f"cat > f <<'EOT'\n{text}\nEOT\nwc -c < f").text == "[exit 0]\n1000001"


def test_timeout_stops_the_command_and_its_children(terminal: Terminal) -> None:
    started = time.monotonic()
    reply = terminal.terminal(HERE, "echo first; (sleep 97531 & sleep 97531)", timeout_s=0.3)
    assert reply.text.startswith("[stopped: still running after 0.3 s")
    assert "first" in reply.text
    assert time.monotonic() - started < 5
    assert _running("sleep 97531") == []


@pytest.mark.spec("J4")
def test_cancelling_leaves_no_child_process(terminal: Terminal) -> None:
    token = CancelToken()
    threading.Timer(0.2, token.cancel).start()
    reply = terminal.terminal(ToolContext("c", cancel=token), "sleep 97532 | sleep 97532")
    assert reply.text == "[stopped: interrupted]"
    assert _running("sleep 97532") == []


def test_cancelling_between_new_output_and_its_reading_is_no_failed_read(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, has_output, read = CancelToken(), threading.Event(), os.read

    def cancel_and_read(descriptor: int, size: int) -> bytes:
        if has_output.is_set():
            token.cancel()
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", cancel_and_read)
    context = ToolContext("c", cancel=token, show_output=lambda preview: has_output.set())
    reply = terminal.terminal(context, "while :; do echo tick; sleep 0.05; done")
    assert reply.text.startswith("[stopped: interrupted]\ntick")


def test_background_child_does_not_hang_the_call(terminal: Terminal) -> None:
    started = time.monotonic()
    assert terminal.terminal(HERE, "sleep 97533 & echo done").text == "[exit 0]\ndone"
    assert time.monotonic() - started < 3
    assert _running("sleep 97533") == []


def test_background_process_can_be_polled_awaited_and_killed(terminal: Terminal) -> None:
    text = terminal.terminal(HERE, "echo one; sleep 0.2; echo two; exit 4", background=True).text
    assert "as p1" in text
    assert "ended, exit 4" in terminal.process(HERE, "wait", "p1", timeout_s=10)
    assert terminal.process(HERE, "poll", "p1").endswith("(no new output)")
    terminal.terminal(HERE, "sleep 97534", background=True)
    assert "p2: running: sleep 97534" in terminal.process(HERE, "list")
    assert "ended" in terminal.process(HERE, "kill", "p2")
    with pytest.raises(ToolError, match="no background process 'p9'; there are: p1, p2"):
        terminal.process(HERE, "poll", "p9")


def test_close_stops_background_processes(terminal: Terminal) -> None:
    terminal.terminal(HERE, "sleep 97535", background=True)
    terminal.close()
    assert _running("sleep 97535") == []


@pytest.mark.parametrize(("command", "says"), [("  ", "is empty"), ("a\0b", "NUL")])
def test_invalid_command_is_rejected(terminal: Terminal, command: str, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        terminal.terminal(HERE, command)


class _CountingSink:
    """Counts what is written instead of keeping it, so that the tool's own memory can be measured."""

    def __init__(self) -> None:
        self.chars = 0

    def write(self, text: str) -> None:
        self.chars += len(text)

    def close(self) -> StoredOutput:
        return StoredOutput("big", "c_1", "call_1", self.chars, "", "counted")

    def abort(self) -> None:
        self.chars = 0


@pytest.mark.spec("H1")
def test_large_output_takes_little_memory_and_context(terminal: Terminal) -> None:
    context = ToolContext("call_1", open_sink=_CountingSink)
    terminal.terminal(context, "echo warm")
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reply = terminal.terminal(context, "head -c 200000000 /dev/zero | tr '\\0' 'x'; echo THE END")
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    assert grown_mb < 32
    assert len(reply.text) <= 2_000
    assert reply.text.rstrip().endswith("THE END\n\n</persisted-output>")
    assert reply.stored is not None
    assert reply.stored.chars == 200_000_008


def test_ansi_codes_and_progress_bars_are_cleaned(terminal: Terminal) -> None:
    text = terminal.terminal(HERE, r"printf '\033[31mred\033[0m\n10%%\r50%%\r99%%\nline\r\n'").text
    assert text == "[exit 0]\nred\n99%\nline"


def test_huge_line_is_cleaned_quickly(terminal: Terminal) -> None:
    started = time.process_time()
    terminal.terminal(HERE, r"printf 'a\rb\n'; head -c 90000 /dev/zero | tr '\0' x")
    assert time.process_time() - started < 1


def test_commands_never_wait_for_input(terminal: Terminal) -> None:
    text = terminal.terminal(HERE, 'echo "$PAGER $GIT_PAGER $GIT_EDITOR $TERM"; read -r x || echo "no input"', 5.0).text
    assert text == "[exit 0]\ncat cat true dumb\nno input"


def test_syntax_error_does_not_mention_internal_paths(terminal: Terminal) -> None:
    text = terminal.terminal(HERE, 'echo before\necho "unclosed').text
    assert text.startswith("[exit ")
    assert "unexpected EOF" in text
    assert "perdure" not in text


def test_shell_state_persists_across_tasks_of_a_conversation(terminal: Terminal) -> None:
    first = ToolContext("c", task_id="t_1", conversation_id="c_1")
    second = ToolContext("c", task_id="t_2", conversation_id="c_1")
    terminal.terminal(first, "mkdir deep; cd deep")
    assert terminal.terminal(second, "basename $PWD").text == "[exit 0]\ndeep"


def test_a_running_command_shows_what_it_has_printed(terminal: Terminal, tmp_path: Path) -> None:
    shown: list[OutputPreview] = []
    has_shown = tmp_path / "shown"

    def show(preview: OutputPreview) -> None:
        shown.append(preview)
        if preview.lines == 2:
            has_shown.touch()

    # It ends only after its output was shown.
    command = f"printf '\\033[1mone\\033[0m\\ntwo\\n'; until [ -e {has_shown} ]; do sleep 0.02; done; echo three"
    reply = terminal.terminal(replace(HERE, show_output=show), command, timeout_s=60)
    assert OutputPreview("one\ntwo\n", "", 2) in shown
    assert reply.text == "[exit 0]\none\ntwo\nthree"


def test_the_preview_of_a_large_output_is_bounded() -> None:
    capture = OutputCapture(None, max_chars=10_000)
    for n in range(50_000):
        capture.feed(f"line {n}\n".encode())
    preview = capture.preview()
    assert preview.lines == 50_000
    assert preview.first.startswith("line 0\n")
    assert preview.last.endswith("line 49999\n")
    assert preview.last.startswith("line ")
    assert len(preview.first) + len(preview.last) < 2_000


def test_background_processes_are_listed_until_they_end(terminal: Terminal) -> None:
    terminal.terminal(HERE, "sleep 600", background=True)
    (running,) = terminal.processes()
    assert (running.id, running.command, running.status, running.is_running) == ("p1", "sleep 600", "running", True)
    terminal.process(HERE, "kill", "p1")
    (ended,) = terminal.processes()
    assert not ended.is_running
    assert ended.status.startswith("ended")
