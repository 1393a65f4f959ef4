"""How long a person waits at the terminal: for the prompt, for a key while an answer streams, for a huge paste."""

from __future__ import annotations

import os
import pty
import re
import resource
import select
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from benchmarks.table import Row
from perdure.core.messages import assistant, user
from perdure.store.store import open_store
from perdure.testing.simulator import Say, Simulator

# None of these is in the answer, in the status or in an escape.
KEYS = "äöüßéèêëàâîïôùûçñåæøœšžýþðłńśźżčřěůőű"
STORED = 1_000
ROUNDS = 5
# An answer that is still streaming when the last key was typed.
WORDS = 400_000
# Some 600 pieces and 14,000 characters a second, more than any model writes.
PIECE_CHARS = 24
PIECE_DELAY_S = 0.0015
PATIENCE_S = 60.0
PROMPT = "›".encode()
TITLE = f"The terminal ({STORED:,} conversations stored, in a pseudo-terminal, best of {ROUNDS})"


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _fill(home)
        starts = [_start(home) for _ in range(ROUNDS)]
        wall, cpu, full = (min(s[i] for s in starts) for i in range(3))
        yield Row(
            "prompt ready", wall, "s", "<= 0.4", note=f"{cpu:.2f} s of processor time in all until the status is full"
        )
        yield Row("model, figures and commands ready behind it", full, "s")
        yield from _typing(home)
        yield _paste(home)


class Typist:
    """A chat in a pseudo-terminal, and what it has shown so far."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.began_s = time.perf_counter()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            environ = {
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "PERDURE_HOME": str(home),
                "TERM": "xterm-256color",
            }
            os.execve(sys.executable, [sys.executable, "-m", "perdure", *arguments, "chat"], environ)
        ioctl(self._fd, TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.shown = b""

    def type(self, text: str) -> None:
        data = text.encode()
        while data:
            self.read(0)
            if select.select([], [self._fd], [], 1.0)[1]:
                data = data[os.write(self._fd, data[:4096]) :]

    def read(self, wait_s: float) -> None:
        while select.select([self._fd], [], [], wait_s)[0]:
            try:
                piece = os.read(self._fd, 65_536)
            except OSError:
                return
            self.shown += piece
            wait_s = 0

    def until(self, wanted: bytes | Callable[[bytes], bool]) -> float:
        """Seconds until something is on the screen."""
        began_s = time.perf_counter()
        while not (wanted in self.shown if isinstance(wanted, bytes) else wanted(self.shown)):
            if time.perf_counter() - began_s > PATIENCE_S:
                raise RuntimeError(f"{wanted!r} never appeared; the end of what did: {self.shown[-500:]!r}")
            self.read(0.005)
        return time.perf_counter() - began_s

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._fd)
        os.waitpid(self.pid, 0)


@contextmanager
def typist(home: Path, *arguments: str) -> Iterator[Typist]:
    made = Typist(home, *arguments)
    try:
        yield made
    finally:
        made.end()


def _fill(home: Path) -> None:
    with open_store(home / "perdure.db") as store:
        for i in range(STORED):
            session = store.create(source="terminal", title=f"conversation {i}")
            store.append(session.id, [user(f"question {i} about widgets"), assistant(f"answer {i}")])


def _start(home: Path) -> tuple[float, float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with typist(home) as chat:
        prompt_s = chat.until(PROMPT)
        full_s = prompt_s + chat.until(lambda shown: b"/help lists" in shown and b"smollm2" in shown)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return prompt_s, cpu_s, full_s


def _typing(home: Path) -> Iterator[Row]:
    """Keys typed while an answer streams, each key timed until it shows; then with a stream that never waits."""
    lags, rate = _lags(home, delay_s=PIECE_DELAY_S)
    note = f"{rate:,.0f} characters a second came through meanwhile"
    yield Row("a key while an answer streams, median", lags[len(lags) // 2] * 1_000, "ms", "<= 20", note=note)
    yield Row("a key while an answer streams, worst", lags[-1] * 1_000, "ms", "<= 40")
    lags, rate = _lags(home, delay_s=0)
    note = f"{rate:,.0f} characters a second came through meanwhile"
    yield Row("the same, with a stream that never waits, worst", lags[-1] * 1_000, "ms", note=note)


def _lags(home: Path, *, delay_s: float) -> tuple[list[float], float]:
    """The seconds from each key to its echo, sorted, and the characters a second that were drawn meanwhile."""
    words = " ".join(f"word{i}" + (".\n\n" if i % 40 == 39 else "") for i in range(WORDS))
    answer = Say(words, chunk_delay_s=delay_s, chunk_chars=PIECE_CHARS)
    with Simulator(script=[answer], window=4_000_000, max_output=2_000_000) as sim:
        address = f"model.base_url={sim.base_url}"
        with typist(home, "--set", address, "--set", "model.name=m-1") as chat:
            chat.until(b"/help lists")
            chat.type("go\r")
            chat.until(b"word50")
            began_s, first = time.perf_counter(), _words_seen(chat.shown)
            lags = []
            for key in KEYS * 2:
                chat.shown = b""
                chat.type(key)
                lags.append(chat.until(key.encode()))
                time.sleep(0.03)
            chat.shown = b""
            chat.until(lambda shown: _words_seen(shown) > first)
            chars = (_words_seen(chat.shown) - first) * len(words) / WORDS
            rate = chars / (time.perf_counter() - began_s)
    return sorted(lags), rate


def _words_seen(shown: bytes) -> int:
    """The number of the last word that was drawn."""
    return max((int(n) for n in re.findall(rb"word(\d+)[ .]", shown)), default=0)


def _paste(home: Path) -> Row:
    text = "".join(f"line {i} of a long log that somebody pasted\n" for i in range(100_000))
    with typist(home) as chat:
        chat.until(b"/help lists")
        began_s = time.perf_counter()
        chat.type(f"\x1b[200~{text}\x1b[201~")
        chat.until(b"100,000 lines]")
        took_s = time.perf_counter() - began_s
    return Row("100,000 lines pasted, until they show (folded)", took_s, "s", "<= 10", note=f"{len(text) / 1e6:.1f} MB")
