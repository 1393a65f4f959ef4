"""One shell command in a process group of its own: output captured as it comes, stopped whole when it must stop.

Working folder and environment outlive a command: behind the command the shell writes both down, and the next command
starts from there. No shell is kept running between calls, so none can hang, leak or confuse two calls.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.tools.builtin.capture import Capture
from perdure.tools.cancel import CancelToken

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
