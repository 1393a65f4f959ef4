"""The `terminal` tool: run commands, capture output, background processes."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
import re
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from perdure.core.concurrency import CancelToken
from perdure.core.errors import StoreError, ToolError
from perdure.core.ports import OutputSink, StoredOutput
from perdure.tools.builtin.sandbox import Sandbox
from perdure.tools.output_limits import persisted_block
from perdure.tools.tool import OutputPreview, Tool, ToolContext, ToolReply, tool_from_function

_FLUSH_CHARS = 1 << 18
# ANSI colours, cursor movement and titles.
_ANSI_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>78])")


def strip_ansi(text: str) -> str:
    """Remove ANSI escape sequences, and keep only the last state of lines rewritten with carriage returns."""
    if "\x1b" in text:
        text = _ANSI_SEQUENCE.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.replace("\r\n", "\n").split("\n"))
    return text


def _last_state(line: str) -> str:
    """Return the last state of a line rewritten with carriage returns."""
    return next((p for p in reversed(line.split("\r")) if p), "") if "\r" in line else line


class OutputCapture:
    """Buffer the output of a command, spilling to a sink above `max_chars`. Not thread-safe."""

    def __init__(
        self,
        open_sink: Callable[[], OutputSink] | None,
        *,
        max_chars: int,
        head_chars: int = 1_000,
        tail_chars: int = 500,
    ) -> None:
        self._open_sink = open_sink
        self._max_chars, self._head_chars, self._tail_chars = max_chars, head_chars, tail_chars
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer: list[str] = []
        self._buffer_chars = 0
        self._total_chars = 0
        self._head = ""
        self._tail = ""
        self._sink: OutputSink | None = None
        self._store_error = ""
        self._lines = 0

    def preview(self) -> OutputPreview:
        """Return the start and the end of the output so far."""
        if self._total_chars <= self._head_chars:
            return OutputPreview(strip_ansi(self._head), "", self._lines)
        # The tail begins in the middle of a line.
        whole_lines = self._tail.partition("\n")[2] or self._tail
        return OutputPreview(strip_ansi(self._head), strip_ansi(whole_lines), self._lines)

    def feed(self, data: bytes, *, is_last: bool = False) -> None:
        text = self._decoder.decode(data, is_last)
        if not text:
            return
        self._total_chars += len(text)
        self._lines += text.count("\n")
        if len(self._head) < self._head_chars:
            self._head += text[: self._head_chars - len(self._head)]
        self._tail = (self._tail + text[-self._tail_chars :])[-self._tail_chars :]
        self._buffer.append(text)
        self._buffer_chars += len(text)
        if self._total_chars > self._max_chars and (self._sink is None or self._buffer_chars >= _FLUSH_CHARS):
            self._spill()

    def reply(self, head_line: str, *, is_error: bool) -> ToolReply:
        """Return `head_line` followed by the whole output, or by a preview if it was too large."""
        self.feed(b"", is_last=True)
        if self._total_chars <= self._max_chars:
            text = strip_ansi("".join(self._buffer))
            return ToolReply(f"{head_line}\n{text}".rstrip("\n"), is_error=is_error)
        stored = self._close_sink()
        self._head, self._tail = strip_ansi(self._head), strip_ansi(self._tail)
        if stored is not None:
            lines = self._lines + (not self._tail.endswith("\n"))
            block = persisted_block(stored, self._head, self._tail, lines=lines)
            return ToolReply(f"{head_line}\n{block}", is_error=is_error, stored=stored)
        omitted = self._total_chars - len(self._head) - len(self._tail)
        marker = f"[… {omitted:,} characters left out, {self._store_error or 'there is no output store'} …]"
        return ToolReply(f"{head_line}\n{self._head}\n{marker}\n{self._tail}", is_error=is_error)

    def abort(self) -> None:
        """Discard the output stored so far."""
        if self._sink is not None:
            self._sink.abort()
            self._sink = None

    def _spill(self) -> None:
        try:
            if self._sink is None and self._open_sink is not None and not self._store_error:
                self._sink = self._open_sink()
            if self._sink is not None:
                self._sink.write("".join(self._buffer))
        except (OSError, StoreError) as error:
            self._store_error = f"they could not be saved: {error}"
            self.abort()
        self._buffer.clear()
        self._buffer_chars = 0

    def _close_sink(self) -> StoredOutput | None:
        self._spill()
        if self._sink is None:
            return None
        try:
            return self._sink.close()
        except (OSError, StoreError) as error:
            self._store_error = f"they could not be saved: {error}"
            return None


# Saves folder and environment when the shell exits, however it exits, and preserves the exit code.
_WRAPPER = """trap '__c=$?; trap - EXIT; { pwd -P; env -0; } > "$PERDURE_STATE_FILE" 2>/dev/null; exit $__c' EXIT
eval "$(<"$PERDURE_STATE_FILE.sh")"
"""
_INTERNAL_VARIABLES = ("PERDURE_STATE_FILE", "_", "SHLVL", "PWD", "OLDPWD")
# Between SIGTERM and SIGKILL.
_GRACE_S = 2.0


# How often a running command's output is shown.
_PREVIEW_EVERY_S = 0.25


class OutputPreviews:
    """Emits previews of a running command's output, a few times a second and only when there is new output."""

    def __init__(self, capture: OutputCapture, show: Callable[[OutputPreview], None]) -> None:
        self._capture = capture
        self._show = show
        self._last_preview: OutputPreview | None = None
        self._next_s = float("-inf")

    def update(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        preview = self._capture.preview()
        if preview != self._last_preview and preview.first:
            self._show(preview)
            self._last_preview, self._next_s = preview, now_s + _PREVIEW_EVERY_S


@dataclass(frozen=True, slots=True)
class ShellState:
    """The working folder and environment that a conversation's next command starts with."""

    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShellResult:
    """Result of a command, and the shell state after it."""

    exit_code: int | None
    state: ShellState
    is_timed_out: bool = False
    is_cancelled: bool = False


def start_command(
    command: str,
    state: ShellState,
    state_file: Path,
    *,
    stdout: int = subprocess.PIPE,
    sandbox: Sandbox | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a new session, so that its whole process group can be stopped."""
    folder = state.folder if state.folder.is_dir() else Path.home()
    # Passed in a file: Linux limits a single argument or variable to 128 KB.
    state_file.with_name(f"{state_file.name}.sh").write_text(command, encoding="utf-8", errors="replace")
    environment = {**state.environment, "PERDURE_STATE_FILE": str(state_file)}
    prefix = sandbox.arguments(folder, state_file.parent) if sandbox is not None else []
    return subprocess.Popen(
        [*prefix, "bash", "-c", _WRAPPER],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def run_command(
    command: str,
    state: ShellState,
    *,
    capture: OutputCapture,
    timeout_s: float,
    cancel: CancelToken,
    sandbox: Sandbox | None = None,
    show_output: Callable[[OutputPreview], None] = lambda preview: None,
) -> ShellResult:
    """Run a command until it exits, times out or is cancelled; its process group is stopped in every case."""
    with tempfile.TemporaryDirectory(prefix="perdure-shell-") as scratch:
        state_file = Path(scratch) / "state"
        process = start_command(command, state, state_file, sandbox=sandbox)
        unregister = cancel.on_cancel(lambda: stop_group(process, grace_s=0))
        deadline = time.monotonic() + timeout_s
        try:
            is_timed_out = not _drain(process, capture, deadline, OutputPreviews(capture, show_output))
        finally:
            unregister()
            # Includes background children that hold our pipe open: they would never end otherwise.
            stop_group(process, grace_s=_GRACE_S if process.poll() is None else 0)
            if process.stdout is not None:
                process.stdout.close()
        code = None if is_timed_out else process.returncode
        return ShellResult(code, read_state(state_file, state), is_timed_out, cancel.is_cancelled)


def stop_group(process: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """Stop a process group with SIGTERM, then SIGKILL after `grace_s`; SIGKILL at once if it is 0.

    From any thread: the pipe stays open for the thread that reads it, which closes it.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if grace_s:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_state(file: Path, before: ShellState) -> ShellState:
    """Read the shell state after a command; return `before` if the command was killed."""
    try:
        folder, _, rest = file.read_bytes().partition(b"\n")
    except OSError:
        return before
    pairs = (os.fsdecode(p).partition("=") for p in rest.split(b"\0") if b"=" in p)
    environment = {k: v for k, _, v in pairs if k not in _INTERNAL_VARIABLES}
    return ShellState(Path(os.fsdecode(folder)), environment or before.environment)


def _drain(process: subprocess.Popen[bytes], capture: OutputCapture, deadline: float, previews: OutputPreviews) -> bool:
    """Read output until the command exits; return False at the deadline."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    os.set_blocking(fd, False)
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            previews.update()
            if selector.select(min(remaining_s, 0.1)):
                data = os.read(fd, 1 << 16)
                if not data:
                    break
                capture.feed(data)
            elif process.poll() is not None:
                # The shell exited, but a child holds the pipe open: its later output is dropped.
                return True
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
        return True
    return False


MAX_TIMEOUT_S = 3_600.0
_POLL_BYTES = 50_000
_MAX_STATES = 256
# Non-interactive: no pager, editor or password prompt may wait for input.
_BATCH_MODE = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """A command that runs, or ran, in the background; `status` is "running" or how it ended."""

    id: str
    command: str
    status: str
    seconds: float
    is_running: bool


@dataclass(slots=True)
class _BackgroundJob:
    command: str
    process: subprocess.Popen[bytes]
    log: Path
    started_s: float
    read_bytes: int = 0
    # Set when the end is first noticed.
    ended_s: float | None = None


class Terminal:
    """A shell per conversation: folder and environment persist between calls; `close` stops every process."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox
        self._initial_state = ShellState(folder, {**environment, **_BATCH_MODE})
        self._states: OrderedDict[str, ShellState] = OrderedDict()
        self._lock = threading.Lock()
        self._background: dict[str, _BackgroundJob] = {}
        self._numbers = itertools.count(1)
        self._logs: tempfile.TemporaryDirectory[str] | None = None

    def tools(self) -> list[Tool]:
        limit_s = MAX_TIMEOUT_S + 30
        return [
            tool_from_function(
                self.terminal, name="terminal", toolset="terminal", timeout_s=limit_s, command_parameter="command"
            ),
            tool_from_function(self.process, name="process", toolset="terminal", is_internal=True, timeout_s=limit_s),
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
            raise ToolError("the command contains a NUL character, which no shell accepts")
        if self._sandbox is not None and self._sandbox.problem is not None:
            raise ToolError(f"the command was not run: {self._sandbox.problem}")
        key = context.conversation_id or context.task_id
        state = self.state(key)
        if background:
            return ToolReply(self._start(command, state))
        capture = OutputCapture(context.open_sink, max_chars=context.max_result_chars)
        seconds = min(max(0.1, timeout_s), MAX_TIMEOUT_S)
        try:
            result = run_command(
                command,
                state,
                capture=capture,
                timeout_s=seconds,
                cancel=context.cancel,
                sandbox=self._sandbox,
                show_output=context.show_output,
            )
        except OSError as error:
            raise ToolError(f"the shell could not be started: {error}") from None
        self._save_state(key, result.state)
        reply = capture.reply(_head_line(result, seconds), is_error=result.exit_code != 0)
        has_ended = not (result.is_cancelled or result.is_timed_out)
        return replace(reply, exit_code=result.exit_code if has_ended else None)

    def state(self, key: str) -> ShellState:
        """Return the folder and environment that the next command of a conversation starts with."""
        return self._states.get(key, self._initial_state)

    def _save_state(self, key: str, state: ShellState) -> None:
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
            stop_group(job.process, grace_s=2.0)
        if action == "wait":
            _wait(job, min(max(0.0, timeout_s), MAX_TIMEOUT_S), context)
        return f"{process_id}: {_status(job)}\n{_new_output(job)}".rstrip()

    def processes(self) -> list[BackgroundProcess]:
        """Return the background processes, ended ones too; from any thread."""
        return [_describe_job(name, job) for name, job in tuple(self._background.items())]

    def close(self) -> None:
        """Stop all background processes and delete their output."""
        for job in self._background.values():
            stop_group(job.process, grace_s=0)
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
                state_file = Path(self._logs.name) / f"{name}.state"
                process = start_command(command, state, state_file, stdout=out.fileno(), sandbox=self._sandbox)
            self._background[name] = _BackgroundJob(command, process, log, time.monotonic())
        return f"Started in the background as {name}. Look at it with process(action='poll', process_id='{name}')."


def _head_line(result: ShellResult, seconds: float) -> str:
    if result.is_cancelled:
        return "[stopped: interrupted]"
    if result.is_timed_out:
        return f"[stopped: still running after {seconds:g} s; use background=true for long work]"
    code = result.exit_code or 0
    return f"[exit {code}]" if code >= 0 else f"[ended by signal {-code}]"


def _status(job: _BackgroundJob) -> str:
    code = job.process.poll()
    if code is None:
        return "running"
    return f"ended, exit {code}" if code >= 0 else f"ended by signal {-code}"


def _describe_job(name: str, job: _BackgroundJob) -> BackgroundProcess:
    is_running = job.process.poll() is None
    if not is_running and job.ended_s is None:
        job.ended_s = time.monotonic()
    end_s = job.ended_s if job.ended_s is not None else time.monotonic()
    return BackgroundProcess(name, job.command, _status(job), end_s - job.started_s, is_running)


def _wait(job: _BackgroundJob, seconds: float, context: ToolContext) -> None:
    waited = 0.0
    while waited < seconds and job.process.poll() is None and not context.cancel.wait(0.05):
        waited += 0.05


def _new_output(job: _BackgroundJob) -> str:
    """Return the output since the last poll; if it is too long, only its end, where the errors are."""
    with job.log.open("rb") as file:
        file.seek(job.read_bytes)
        data = file.read()
    job.read_bytes += len(data)
    skipped = max(0, len(data) - _POLL_BYTES)
    note = f"[… {skipped:,} bytes skipped …]\n" if skipped else ""
    return note + strip_ansi(data[skipped:].decode("utf-8", "replace")) if data else "(no new output)"
