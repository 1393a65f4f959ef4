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

from perdure.core.errors import StoreError, ToolError
from perdure.core.ports import OutputSink, StoredOutput
from perdure.tools.output_limits import persisted_block
from perdure.tools.tool import CancelToken, Tool, ToolContext, ToolReply, tool_from_function

_FLUSH_CHARS = 1 << 18
# Colours, cursor moves and titles.
_SCREEN_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>78])")


def without_screen_codes(text: str) -> str:
    """The text as a screen would show it: no colours, and of a progress bar its last state."""
    if "\x1b" in text:
        text = _SCREEN_CODE.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.replace("\r\n", "\n").split("\n"))
    return text


def _last_state(line: str) -> str:
    """What stands in a line that was written over, piece upon piece."""
    return next((p for p in reversed(line.split("\r")) if p), "") if "\r" in line else line


class Capture:
    """Takes bytes as they come, gives a reply at the end. Not thread-safe: one reader feeds it."""

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
        self._held: list[str] = []
        self._held_chars = 0
        self._total_chars = 0
        self._head = ""
        self._tail = ""
        self._sink: OutputSink | None = None
        self._trouble = ""

    def feed(self, data: bytes, *, is_last: bool = False) -> None:
        text = self._decoder.decode(data, is_last)
        if not text:
            return
        self._total_chars += len(text)
        if len(self._head) < self._head_chars:
            self._head += text[: self._head_chars - len(self._head)]
        self._tail = (self._tail + text[-self._tail_chars :])[-self._tail_chars :]
        self._held.append(text)
        self._held_chars += len(text)
        if self._total_chars > self._max_chars and (self._sink is None or self._held_chars >= _FLUSH_CHARS):
            self._spill()

    def reply(self, head_line: str, *, is_error: bool) -> ToolReply:
        """The whole text behind `head_line`, or the block that stands for it where it was too large."""
        self.feed(b"", is_last=True)
        if self._total_chars <= self._max_chars:
            text = without_screen_codes("".join(self._held))
            return ToolReply(f"{head_line}\n{text}".rstrip("\n"), is_error=is_error)
        stored = self._closed()
        self._head, self._tail = without_screen_codes(self._head), without_screen_codes(self._tail)
        if stored is not None:
            return ToolReply(
                f"{head_line}\n{persisted_block(stored, self._head, self._tail)}", is_error=is_error, stored=stored
            )
        left_out = self._total_chars - len(self._head) - len(self._tail)
        marker = f"[… {left_out:,} characters left out, {self._trouble or 'there is no place to keep them'} …]"
        return ToolReply(f"{head_line}\n{self._head}\n{marker}\n{self._tail}", is_error=is_error)

    def abort(self) -> None:
        """Leaves nothing stored."""
        if self._sink is not None:
            self._sink.abort()
            self._sink = None

    def _spill(self) -> None:
        try:
            if self._sink is None and self._open_sink is not None and not self._trouble:
                self._sink = self._open_sink()
            if self._sink is not None:
                self._sink.write("".join(self._held))
        except (OSError, StoreError) as error:
            self._trouble = f"they could not be saved: {error}"
            self.abort()
        self._held.clear()
        self._held_chars = 0

    def _closed(self) -> StoredOutput | None:
        self._spill()
        if self._sink is None:
            return None
        try:
            return self._sink.close()
        except (OSError, StoreError) as error:
            self._trouble = f"they could not be saved: {error}"
            return None


# The command's own exit code survives; a command that ends the shell itself is caught by the trap.
_WRAPPER = """trap '__c=$?; trap - EXIT; { pwd -P; env -0; } > "$PERDURE_STATE_FILE" 2>/dev/null; exit $__c' EXIT
eval "$(<"$PERDURE_STATE_FILE.sh")"
"""
_OURS = ("PERDURE_STATE_FILE", "_", "SHLVL", "PWD", "OLDPWD")
# After the group was told to end politely.
_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class ShellState:
    """Where a shell stands: its folder and its environment."""

    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command came to its end, and the state it left."""

    exit_code: int | None
    state: ShellState
    is_timed_out: bool = False
    is_cancelled: bool = False


def start(
    command: str, state: ShellState, state_file: Path, *, stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own, so that everything it starts can be stopped with it."""
    folder = state.folder if state.folder.is_dir() else Path.home()
    # In a file, for an argument or a variable may hold 128 KB only.
    state_file.with_name(f"{state_file.name}.sh").write_text(command, encoding="utf-8", errors="replace")
    environment = {**state.environment, "PERDURE_STATE_FILE": str(state_file)}
    return subprocess.Popen(
        ["bash", "-c", _WRAPPER],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def run(command: str, state: ShellState, *, capture: Capture, timeout_s: float, cancel: CancelToken) -> Ended:
    """Runs a command to its end, its time-out, or its cancellation; nothing of it is left running."""
    with tempfile.TemporaryDirectory(prefix="perdure-shell-") as scratch:
        state_file = Path(scratch) / "state"
        process = start(command, state, state_file)
        forget = cancel.on_cancel(lambda: stop(process, grace_s=0))
        deadline = time.monotonic() + timeout_s
        try:
            is_timed_out = not _drain(process, capture, deadline)
        finally:
            forget()
            # Also what the command left in the background with our pipe open: it would never end otherwise.
            stop(process, grace_s=_GRACE_S if process.poll() is None else 0)
        code = None if is_timed_out else process.returncode
        return Ended(code, read_state(state_file, state), is_timed_out, cancel.is_cancelled)


def stop(process: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """Ends a process group: politely first where there is time for it, then for certain."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if grace_s:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def read_state(file: Path, before: ShellState) -> ShellState:
    """The state a command left; what it was before where the command was killed."""
    try:
        folder, _, rest = file.read_bytes().partition(b"\n")
    except OSError:
        return before
    pairs = (os.fsdecode(p).partition("=") for p in rest.split(b"\0") if b"=" in p)
    environment = {k: v for k, _, v in pairs if k not in _OURS}
    return ShellState(Path(os.fsdecode(folder)), environment or before.environment)


def _drain(process: subprocess.Popen[bytes], capture: Capture, deadline: float) -> bool:
    """Reads until the command ends; False when its time is up."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    os.set_blocking(fd, False)
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if selector.select(min(left_s, 0.1)):
                data = os.read(fd, 1 << 16)
                if not data:
                    break
                capture.feed(data)
            elif process.poll() is not None:
                # The shell is gone, but something it started holds the pipe: what is said later is nobody's.
                return True
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
        return True
    return False


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
