"""Processes of our own that start at once: forked from one that has imported Perdure, and ended like any other.

Most of what a short-lived `perdure gateway` costs is its imports. The server below does them once per test run;
what it forks is a process of its own, with the arguments, environment, folder and streams it was given, which can be
signalled and killed. How a start from nothing behaves is tested elsewhere, with `subprocess`.
"""

from __future__ import annotations

import errno
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
import uuid
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
    "perdure.cli.acp",
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
    "acp",
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
_started: list[subprocess.Popen[bytes]] = []


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
    terminal: int | None = None,
) -> ForkedProcess:
    """Start `python ARGUMENTS`, which is `-m MODULE …` or `FILE …`; streams and `text` as for `subprocess`.

    A `terminal` is its controlling one, and takes the place of all three streams.
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
        socket.send_fds(_server(), [request], [source, out, err, write_status])
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
def _server() -> socket.socket:
    """Connect to the server of this test run, which the first of its processes starts."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    path = Path(tempfile.gettempdir()) / f"perdure-forks-{run}"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            _start_server(path)
        else:
            return connection


def _start_server(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(str(path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.01)  # another process is starting it
            return
        listener.listen(64)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
        command = [sys.executable, "-P", str(Path(__file__)), str(listener.fileno())]
        _started.append(
            subprocess.Popen(command, pass_fds=[listener.fileno()], env=environment, start_new_session=True)
        )


class _Server:
    """Forks for every request of the processes that are connected; ends with the last of them."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._path = Path(listener.getsockname())
        self._connections: list[socket.socket] = []
        self._status_of: dict[int, int] = {}
        self._woken, self._wake = os.pipe()

    def serve(self) -> dict[str, Any]:
        """Return a request, in the process that is to fulfil it."""
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._listener, self._woken, *self._connections], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._report_ended()
            if self._listener in ready:
                self._connections.append(self._listener.accept()[0])
            for connection in [c for c in self._connections if c in ready]:
                data, descriptors, _, _ = socket.recv_fds(connection, _LARGEST_REQUEST, 4)
                if not data:
                    self._drop(connection)
                elif (request := self._fork(data, descriptors)) is not None:
                    return request

    def _drop(self, connection: socket.socket) -> None:
        connection.close()
        self._connections.remove(connection)
        # They stay connected until the run is over.
        if not self._connections:
            self._path.unlink(missing_ok=True)
            os._exit(0)

    def _fork(self, data: bytes, descriptors: list[int]) -> dict[str, Any] | None:
        """Return the request in the new process, None in this one."""
        stdin, stdout, stderr, status = descriptors
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, descriptor in enumerate((stdin, stdout, stderr)):
                os.dup2(descriptor, number)
            sockets = [s.detach() for s in (self._listener, *self._connections)]
            for descriptor in (*descriptors, *self._status_of.values(), self._woken, self._wake, *sockets):
                os.close(descriptor)
            request: dict[str, Any] = json.loads(data)
            return request
        self._status_of[pid] = status
        os.write(status, b"%d\n" % pid)
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        return None

    def _report_ended(self) -> None:
        while self._status_of:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            descriptor = self._status_of.pop(pid)
            # The process that asked may have ended meanwhile.
            with suppress(BrokenPipeError):
                os.write(descriptor, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(descriptor)


def _serve(listener: socket.socket) -> dict[str, Any]:
    for name in _IMPORTED:
        import_module(name)
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.freeze()
    return _Server(listener).serve()


def _run(request: dict[str, Any]) -> None:
    for number in _SIGNALS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else usual)
    if request["has_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    else:
        os.setpgid(0, 0)  # a signal to the group is not for the other processes of the run
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
