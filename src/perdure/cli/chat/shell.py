"""`!command`: run a user's command in their own shell, and describe it to the model."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.cli.style import safe
from perdure.commands.format import count
from perdure.config.env import shell_environment, user_shell
from perdure.core.messages import USER_SHELL
from perdure.redaction import redact

# Characters handed to the model, two thirds of them from the end, where results are; lines visible to the user.
_MAX_CHARS = 12_000
_MAX_LINES = 400
# Lines visible of the end of an output that is longer.
_LAST_LINES = 20
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class ShellRun:
    """A finished command; `exit_code` is negative for one that was killed, and a long output has lost its middle."""

    command: str
    output: str
    exit_code: int
    seconds: float

    @property
    def summary(self) -> str:
        """The command with its exit code and time: `! ls -la · exit 0 · 0.1 s`."""
        return f"! {self.command} · {self._end} · {self.seconds:.1f} s"

    @property
    def _end(self) -> str:
        return "stopped" if self.exit_code < 0 else f"exit {self.exit_code}"

    @property
    def context(self) -> str:
        """The text that the model reads with the next message: command and output, secrets redacted."""
        return (
            f"{USER_SHELL}\nThe user ran this command in their own shell, not through you. It is context, no request.\n"
            f"$ {self.command}\n{redact(self.output).rstrip()}\n[{self._end}]\n</user-shell>"
        )


def is_shell_line(line: str, pasted: Sequence[str]) -> bool:
    """Whether a line is a command for the shell: a `!` that was typed, not one that a paste brought."""
    is_pasted = any(piece.lstrip().startswith("!") and line.startswith(piece.strip()) for piece in pasted)
    return line.startswith("!") and bool(line[1:].strip()) and not is_pasted


class UserShell:
    """Runs one command at a time, in its own process group, so that an interrupt ends all of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: str, write: Callable[[str], None]) -> ShellRun:
        """Run a command to its end; its output goes to `write` line by line as it arrives."""
        began_s = time.monotonic()
        with self._lock:
            self._process = process = subprocess.Popen(
                user_shell(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=shell_environment(),
                start_new_session=sys.platform != "win32",
            )
        try:
            output = _forward(process, write)
            code = process.wait()
        finally:
            with self._lock:
                self._process = None
        return ShellRun(command, output, code, time.monotonic() - began_s)

    def interrupt(self) -> bool:
        """Kill the running command, from any thread; return whether there was one."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                return False
            with contextlib.suppress(ProcessLookupError):
                if sys.platform == "win32":
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)
        return True


def _forward(process: subprocess.Popen[bytes], write: Callable[[str], None]) -> str:
    """Write complete lines as they arrive, up to a limit, and the last ones at the end; return what the model reads."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    head, tail, chars = "", "", 0
    rest, lines = "", 0
    last: deque[str] = deque(maxlen=_LAST_LINES)
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    while raw := os.read(descriptor, _CHUNK):
        text = decode(raw)
        chars += len(text)
        # A command may print without end: no more is held than is handed on.
        room = max(0, _MAX_CHARS - len(head))
        head, tail = head + text[:room], (tail + text[room:])[-_MAX_CHARS:]
        *complete, rest = (rest[-_CHUNK:] + text).split("\n")
        visible = complete[: max(0, _MAX_LINES - lines)]
        if visible:
            write("".join(f"  {safe(line)}\n" for line in visible))
        lines += len(complete)
        last.extend(complete[len(visible) :])
    if rest:
        last.append(rest)
        lines += 1
    if lines > _MAX_LINES + len(last):
        write(f"  … {count(lines - _MAX_LINES - len(last), 'more line')}\n")
    write("".join(f"  {safe(line)}\n" for line in last))
    process.stdout.close()
    if chars <= _MAX_CHARS:
        return head
    head, tail = head[: _MAX_CHARS // 3], (head + tail)[-2 * _MAX_CHARS // 3 :]
    return f"{head}\n[… {chars - len(head) - len(tail):,} characters left out …]\n{tail}"
