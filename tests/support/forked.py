"""Processes of our own that start at once: forked from one that has imported Perdure, and ended like any other.

Most of what a short-lived `perdure gateway` costs is its imports. The server below does them once per test process;
what it forks is a process of its own, with the arguments, environment, folder and streams it was given, which can be
signalled and killed. How a start from nothing behaves is tested elsewhere, with `subprocess`.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any

# What the programs under test import anyway.
_IMPORTED = (
    "perdure.cli.main",
    "perdure.cli.gateway",
    "perdure.gateway.app",
    "perdure.gateway.auth.tokens",
    "perdure.app.build",
    "perdure.agent.runner",
    "perdure.cli.chat.command",
    "perdure.cli.chat.one_shot",
    "perdure.cli.chat.tui",
    "perdure.providers.chat_completions",
    "perdure.providers.errors.classify",
    "perdure.providers.http_aiohttp",
    "perdure.store.db.postgres",
    "perdure.testing.simulator",
    # What these import only as they are used.
    "anyio._backends._asyncio",
    "encodings.idna",
    "genai_prices.data",
    "httpcore",
    "httpx",
    "importlib.resources.readers",
    "pydantic.v1",
    "rich.console",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.websockets.auto",
    "uvloop",
)
_LARGEST_REQUEST = 150_000
# A process that is started ignores those of them that the one that starts it does.
_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


class ForkedProcess:
    """The part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        args: Sequence[str],
        pid: int,
        status: int,
        *,
        stdin: IO[Any] | None,
        stdout: IO[Any] | None,
        stderr: IO[Any] | None,
    ) -> None:
        self.args = args
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                if self.returncode is None and select.select([self._status], [], [], 0)[0]:
                    self.returncode = _read_number(self._status)
                    os.close(self._status)
                if self.returncode is not None:
                    return self.returncode
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            select.select([self._status], [], [], 0.5 if left is None else min(left, 0.5))

    def send_signal(self, number: int) -> None:
        # Of one that has ended, the number may belong to another by now.
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Return what is left to read of both streams, once it has ended."""
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                self.stdin.close()
        with ThreadPoolExecutor(2) as threads:
            out, err = threads.map(lambda s: s.read() if s is not None else "", (self.stdout, self.stderr))
        self.wait(timeout)
        return out, err

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def fork(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    text: bool = True,
    imported: tuple[str, ...] = (),
    terminal: int | None = None,
) -> ForkedProcess:
    """Start `python ARGUMENTS`, which is `-m MODULE …` or `FILE …`; streams and `text` as for `subprocess`.

    With `imported`, it is forked from a process that has imported these modules, too. A `terminal` is its controlling
    one, and takes the place of all three streams.
    """
    ignored = [number for number in _SIGNALS if signal.getsignal(number) == signal.SIG_IGN]
    asked = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd), "ignored": ignored}
    asked["has_terminal"] = terminal is not None
    request = json.dumps(asked).encode()
    assert len(request) < _LARGEST_REQUEST
    read_status, write_status = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    mode = "" if text else "b"
    out, out_reader = _stream(stdout if terminal is None else terminal, 1, null, mode)
    err, err_reader = _stream(stderr if terminal is None else terminal, 2, null, mode)
    source, writer = null if terminal is None else terminal, None
    if stdin == subprocess.PIPE:
        source, write = os.pipe()
        writer = open(write, f"w{mode}")  # noqa: SIM115  # the process's to close
    try:
        socket.send_fds(_server(imported), [request], [source, out, err, write_status])
    finally:
        for descriptor in {null, write_status, source, out, err} - {stdout or 1, stderr or 2, terminal}:
            os.close(descriptor)
    pid = _read_number(read_status)
    command = [sys.executable, *arguments]
    return ForkedProcess(command, pid, read_status, stdin=writer, stdout=out_reader, stderr=err_reader)


def _read_number(status: int) -> int:
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := os.read(status, 1)):
            raise RuntimeError("the server that forks processes has ended")
        line += piece
    return int(line)


def run_forked(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Do as `fork`, and wait for its end."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = fork(arguments, env=env, cwd=cwd, stdout=out.fileno(), stderr=err.fileno())
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(process.args, status, out.read(), err.read())


def _stream(wanted: int | None, own: int, null: int, mode: str) -> tuple[int, IO[Any] | None]:
    """Return what the process writes to, and what its text is read from."""
    if wanted == subprocess.PIPE:
        read, write = os.pipe()
        return write, open(read, f"r{mode}")  # the process's to close
    if wanted is None or wanted == subprocess.DEVNULL:
        return (own if wanted is None else null), None
    return wanted, None


@cache
def _server(imported: tuple[str, ...]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
    command = [sys.executable, "-P", str(Path(__file__)), str(theirs.fileno()), *imported]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, start_new_session=True)
    theirs.close()

    def stop() -> None:
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request. Returns the request, in the process that is to fulfil it."""
    for name in (*_IMPORTED, *sys.argv[2:]):
        import_module(name)
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    status_of: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_ended(status_of)
        if requests not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 4)
        if not data:
            os._exit(0)
        stdin, stdout, stderr, status = descriptors
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, descriptor in enumerate((stdin, stdout, stderr)):
                os.dup2(descriptor, number)
            for descriptor in (*descriptors, *status_of.values(), woken, wake, requests.detach()):
                os.close(descriptor)
            request: dict[str, Any] = json.loads(data)
            return request
        status_of[pid] = status
        os.write(status, b"%d\n" % pid)
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)


def _report_ended(status_of: dict[int, int]) -> None:
    while status_of:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        os.write(status_of[pid], b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(status_of.pop(pid))


def _run(request: dict[str, Any]) -> None:
    for number in _SIGNALS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else usual)
    if request["has_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, buffering=1, encoding="utf-8") for number, mode in enumerate("rww")
    )
    arguments: list[str] = request["arguments"]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, request["cwd"])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    _run(_serve(socket.socket(fileno=int(sys.argv[1]))))
