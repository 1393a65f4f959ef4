"""`terminal` and `process`: shell commands, awaited or in the background."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from perdure.core.errors import ToolError
from perdure.tools.builtin.capture import Capture, without_screen_codes
from perdure.tools.builtin.shell import Ended, ShellState, run, start, stop
from perdure.tools.tool import Tool, ToolContext, ToolReply, tool_from_function

MAX_TIMEOUT_S = 3_600.0
_POLL_BYTES = 50_000
_MAX_STATES = 256
# Nobody sits in front of this shell: nothing may wait for a key, open an editor or paint the screen.
_NO_SCREEN = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}


@dataclass(slots=True)
class _Background:
    command: str
    process: subprocess.Popen[bytes]
    log: Path
    read_bytes: int = 0


class Terminal:
    """A shell per conversation: folder and environment are kept between its calls, and nothing outlives `close`."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], *, max_chars: Callable[[], int] = lambda: 100_000
    ) -> None:
        self._first = ShellState(folder, {**environment, **_NO_SCREEN})
        self._states: OrderedDict[str, ShellState] = OrderedDict()
        self._max_chars = max_chars
        self._lock = threading.Lock()
        self._background: dict[str, _Background] = {}
        self._numbers = itertools.count(1)
        self._logs: tempfile.TemporaryDirectory[str] | None = None

    def tools(self) -> list[Tool]:
        longest = MAX_TIMEOUT_S + 30
        return [
            tool_from_function(
                self.terminal, name="terminal", toolset="terminal", timeout_s=longest, command_parameter="command"
            ),
            tool_from_function(self.process, name="process", toolset="terminal", timeout_s=longest),
        ]

    def terminal(
        self,
        context: ToolContext,
        command: Annotated[str, "what to run, in bash"],
        timeout_s: Annotated[float, "stop it after this many seconds"] = 120.0,
        background: Annotated[bool, "start it and return at once; look at it with process"] = False,
    ) -> ToolReply:
        """Runs a shell command. Folder and exported variables are kept for the next one.

        No input can be typed. What is left running with & is stopped when the command ends: use background instead.
        """
        if not command.strip():
            raise ToolError("the command is empty")
        if "\0" in command:
            raise ToolError("the command holds a NUL character, which no shell takes")
        key = context.conversation_id or context.task_id
        state = self.state(key)
        if background:
            return ToolReply(self._start(command, state))
        capture = Capture(context.open_sink, max_chars=self._max_chars())
        seconds = min(max(0.1, timeout_s), MAX_TIMEOUT_S)
        try:
            ended = run(command, state, capture=capture, timeout_s=seconds, cancel=context.cancel)
        except OSError as error:
            raise ToolError(f"the shell could not be started: {error}") from None
        self._keep(key, ended.state)
        reply = capture.reply(_head_line(ended, seconds), is_error=ended.exit_code != 0)
        has_ended = not (ended.is_cancelled or ended.is_timed_out)
        return replace(reply, exit_code=ended.exit_code if has_ended else None)

    def state(self, key: str) -> ShellState:
        """The folder and environment that the next command of a conversation starts from."""
        return self._states.get(key, self._first)

    def _keep(self, key: str, state: ShellState) -> None:
        with self._lock:
            self._states[key] = state
            self._states.move_to_end(key)
            while len(self._states) > _MAX_STATES:
                self._states.popitem(last=False)

    def process(
        self,
        context: ToolContext,
        action: Annotated[Literal["list", "poll", "wait", "kill"], "what to do"],
        process_id: Annotated[str, "which one, as terminal named it"] = "",
        timeout_s: Annotated[float, "for wait: at most this long"] = 60.0,
    ) -> str:
        """Looks at commands running in the background: new output, waiting for the end, or stopping them."""
        if action == "list":
            return "\n".join(f"{k}: {_status(b)}: {b.command}" for k, b in self._background.items()) or "none running"
        job = self._background.get(process_id)
        if job is None:
            raise ToolError(f"no background process {process_id!r}; there are: {', '.join(self._background) or 'none'}")
        if action == "kill":
            stop(job.process, grace_s=2.0)
        if action == "wait":
            _wait(job, min(max(0.0, timeout_s), MAX_TIMEOUT_S), context)
        return f"{process_id}: {_status(job)}\n{_news(job)}".rstrip()

    def close(self) -> None:
        """Stops everything in the background and forgets its output."""
        for job in self._background.values():
            stop(job.process, grace_s=0)
        self._background.clear()
        if self._logs is not None:
            self._logs.cleanup()
            self._logs = None

    def _start(self, command: str, state: ShellState) -> str:
        with self._lock:
            self._logs = self._logs or tempfile.TemporaryDirectory(prefix="perdure-background-")
            name = f"p{next(self._numbers)}"
            log = Path(self._logs.name) / f"{name}.log"
            with log.open("wb") as out:
                process = start(command, state, Path(self._logs.name) / f"{name}.state", stdout=out.fileno())
            self._background[name] = _Background(command, process, log)
        return f"Started in the background as {name}. Look at it with process(action='poll', process_id='{name}')."


def _head_line(ended: Ended, seconds: float) -> str:
    if ended.is_cancelled:
        return "[stopped: interrupted]"
    if ended.is_timed_out:
        return f"[stopped: still running after {seconds:g} s; use background=true for long work]"
    code = ended.exit_code or 0
    return f"[exit {code}]" if code >= 0 else f"[ended by signal {-code}]"


def _status(job: _Background) -> str:
    code = job.process.poll()
    if code is None:
        return "running"
    return f"ended, exit {code}" if code >= 0 else f"ended by signal {-code}"


def _wait(job: _Background, seconds: float, context: ToolContext) -> None:
    waited = 0.0
    while waited < seconds and job.process.poll() is None and not context.cancel.wait(0.05):
        waited += 0.05


def _news(job: _Background) -> str:
    """What it has said since it was last looked at; of very much only the end, where the errors are."""
    with job.log.open("rb") as file:
        file.seek(job.read_bytes)
        data = file.read()
    job.read_bytes += len(data)
    skipped = max(0, len(data) - _POLL_BYTES)
    note = f"[… {skipped:,} bytes skipped …]\n" if skipped else ""
    return note + without_screen_codes(data[skipped:].decode("utf-8", "replace")) if data else "(no new output)"
