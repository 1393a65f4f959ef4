"""Leaving a chat: at once and with the right status, whatever is going on behind the prompt."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import pytest

from perdure.app import Agent
from perdure.config.load import load
from perdure.testing.simulator import Call, Say, Simulator
from support.forked import ForkedProcess, fork

PATIENCE_S = 60.0
# Leaving is a matter of tenths of a second; a machine that does many things at once gets more.
AT_ONCE_S = 12.0


class Chat:
    """`perdure chat` in a terminal of its own, which can be typed into, signalled and closed."""

    def __init__(self, home: Path, *arguments: str, is_fresh: bool = False) -> None:
        """With `is_fresh` the process starts from nothing, and has its imports to do."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PERDURE_HOME": str(home)}
        environ["TERM"] = "xterm-256color"
        self._fd, terminal = pty.openpty()
        ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        command = ["-m", "perdure", *arguments]
        self.process: ForkedProcess | subprocess.Popen[bytes]
        if is_fresh:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                env=environ,
                start_new_session=True,
                preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
            )
        else:
            self.process = fork(command, env=environ, cwd=Path.cwd(), terminal=terminal)
        os.close(terminal)
        self.shown = ""
        self._is_open = True

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def see(self, wanted: str) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while wanted not in self.shown:
            assert time.monotonic() < give_up, f"{wanted!r} never appeared in {self.shown[-2000:]!r}"
            self._read()

    @property
    def is_raw(self) -> bool:
        """Whether keys are still read one by one and not shown, as no shell would want it."""
        return not termios.tcgetattr(self._fd)[3] & termios.ECHO

    def hang_up(self) -> None:
        """The window is closed."""
        self._is_open = False
        os.close(self._fd)

    def status(self) -> int:
        """The exit status; fails where it does not come in time."""
        give_up = time.monotonic() + AT_ONCE_S
        while True:
            if self._is_open:
                self._read()
            else:
                time.sleep(0.02)
            if (status := self.process.poll()) is not None:
                return status
            assert time.monotonic() < give_up, f"it never ended; last seen: {self.shown[-2000:]!r}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._is_open:
            self.hang_up()

    def _read(self) -> None:
        if select.select([self._fd], [], [], 0.02)[0]:
            with suppress(OSError):  # how a pseudo-terminal says that the other side is gone
                self.shown += os.read(self._fd, 65_536).decode("utf-8", "replace")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def chats() -> Iterator[list[Chat]]:
    """Every chat of a test, ended with it."""
    made: list[Chat] = []
    yield made
    for chat in made:
        chat.close()


def started(chats: list[Chat], home: Path, sim: Simulator, *more: str) -> Chat:
    address = f"model.base_url={sim.base_url}"
    chats.append(Chat(home, "--set", address, "--set", "model.name=m-1", *more))
    chats[-1].see("/help lists")
    return chats[-1]


@pytest.mark.parametrize(
    ("keys", "signals", "status"),
    [
        ("\x04", (), 0),
        ("\x03\x03", (), 0),
        ("", (signal.SIGTERM,), 143),
        ("", (signal.SIGINT, signal.SIGINT), 0),
    ],
)
def test_in_mid_answer_the_chat_is_left_at_once_and_the_terminal_set_right(
    chats: list[Chat], home: Path, keys: str, signals: tuple[int, ...], status: int
) -> None:
    with Simulator(script=[Say("endless words " * 2_000, chunk_delay_s=0.02)]) as sim:
        chat = started(chats, home, sim, "chat")
        chat.type("go\r")
        chat.see("endless words")
        for key in keys:
            chat.type(key)
        for number in signals:
            chat.process.send_signal(number)
            time.sleep(0.2)
        assert chat.status() == status
        assert not chat.is_raw
    assert "Go on with it:" in chat.shown


def test_what_waits_behind_an_answer_is_not_sent_after_leaving(chats: list[Chat], home: Path) -> None:
    with Simulator(script=[Say("late", delay_s=30), Say("never asked")]) as sim:
        chat = started(chats, home, sim, "chat")
        chat.type("go\r")
        chat.see("thinking")
        chat.type("the second message\r")
        chat.see("then: the second message")
        chat.type("\x04")
        assert chat.status() == 0
        assert not any("the second message" in str(request.body) for request in sim.requests)
    assert "Not sent: the second message" in chat.shown


def test_a_closed_window_ends_the_chat_and_what_its_tools_started(chats: list[Chat], home: Path) -> None:
    marker = f"8{os.getpid()}3"
    with Simulator(script=[Say(calls=(Call("terminal", {"command": f"sleep {marker}"}),))]) as sim:
        chat = started(chats, home, sim, "chat")
        chat.type("go\r")
        chat.see("● terminal sleep")
        wait_until(lambda: _running(marker))
        chat.hang_up()
        chat.status()
    wait_until(lambda: not _running(marker))


def test_a_question_that_is_killed_takes_what_its_tools_started_with_it(home: Path) -> None:
    marker = f"7{os.getpid()}3"
    with Simulator(script=[Say(calls=(Call("terminal", {"command": f"sleep {marker}"}),))]) as sim:
        arguments = ("--set", f"model.base_url={sim.base_url}", "--set", "model.name=m-1", "chat", "-q", "go")
        environ = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PERDURE_HOME": str(home)}
        asking = fork(["-m", "perdure", *arguments], env=environ, cwd=home.parent)
        try:
            wait_until(lambda: _running(marker))
            asking.terminate()
            assert asking.wait(AT_ONCE_S) == 130
        finally:
            asking.kill()
        wait_until(lambda: not _running(marker))


@pytest.mark.spec("N2")
def test_a_compaction_that_was_given_up_holds_nobody_back(chats: list[Chat], home: Path) -> None:
    script = ["word " * 400] * 5 + [Say("never read", delay_s=60.0)] * 3
    with Simulator(script=script) as sim:
        settings = {"model.base_url": sim.base_url, "model.name": "m-1", "model.context_length": "8000"}
        agent = Agent(settings=load(flags=settings, home=home).settings, home=home)
        for n in range(5):
            agent.chat(f"question {n} " + "filler " * 60)
        chat = started(chats, home, sim, "--set", "model.context_length=8000", "chat", "-r", str(agent.session_id))
        chat.type("/compress\r")
        chat.see("compacting")
        chat.type("\x03")
        chat.see("stopped; nothing has changed")
        chat.type("/quit\r")
        assert chat.status() == 0


def test_leaving_before_everything_is_open(chats: list[Chat], home: Path) -> None:
    for keys in ("\x04", "\x03\x03"):
        chats.append(Chat(home, "chat", is_fresh=True))
        chats[-1].see("›")
        for key in keys:
            chats[-1].type(key)
        assert chats[-1].status() == 0


@pytest.mark.parametrize("waits", ["", "atexit.register(threading.Event().wait);"])
def test_a_thread_that_never_ends_does_not_keep_the_process(waits: str) -> None:
    """Somebody's plug-in may start one; the interpreter would wait for it for ever."""
    code = (
        "import atexit, threading; from perdure.cli.exit import leave;"
        f"threading.Thread(target=threading.Event().wait).start(); {waits}"
        "atexit.register(print, 'registered'); print('done'); leave(3, patience_s=0.5)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (3, "done\nregistered\n")


def test_output_that_could_not_be_written_is_no_success() -> None:
    code = "print('x' * 100_000); from perdure.cli.exit import leave; leave(0)"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    assert done.returncode != 0


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def _running(marker: str) -> bool:
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return any(line.split() == ["sleep", marker] for line in found.splitlines())
