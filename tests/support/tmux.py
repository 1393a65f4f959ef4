"""A real terminal to drive `perdure` in: keys go in, the screen is read back, nothing in between is ours."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 60.0
_ENDED = "[exit status]"
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """One tmux window; every command runs in a shell-less process of its own, one after the other."""

    def __init__(
        self, home: Path, *, columns: int = 100, rows: int = 40, folder: Path | None = None, **environ: str
    ) -> None:
        self._socket = f"perdure-{uuid.uuid4().hex[:8]}"
        # Where commands run, as a person's shell would stand in a project.
        self._folder = folder or Path.cwd()
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home.parent),
            "PERDURE_HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "tmux-256color",
            **environ,
        }
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", str(columns), "-y", str(rows), "cat")
        self._tmux("set-option", "-g", "history-limit", "5000")

    def run(self, *arguments: str) -> None:
        """Starts `perdure` with the arguments, on a clean screen."""
        told = [f"{name}={value}" for name, value in self._environ.items()]
        # A shell around it prints the exit status: what tmux says of a dead pane comes late, or not at all.
        command = ["sh", "-c", f'"$@"; echo "{_ENDED} $?"; sleep 600', "sh", "env", "-i", *told]
        command += [sys.executable, "-m", "perdure", *arguments]
        self._tmux("respawn-pane", "-k", "-c", str(self._folder), *command)
        self._tmux("clear-history")

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def say(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def paste(self, text: str, folder: Path) -> None:
        """As a person pastes: bracketed, all at once."""
        place = folder / "paste.txt"
        place.write_text(text, encoding="utf-8")
        self._tmux("load-buffer", str(place))
        self._tmux("paste-buffer", "-p")

    @property
    def screen(self) -> str:
        """Everything shown since the last start, scrollback included, with wrapped lines joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    @property
    def colored(self) -> str:
        """The same with its colours, and line by line as it stands there."""
        return self._tmux("capture-pane", "-e", "-p", "-S", "-")

    def see(self, *wanted: str, within_s: float = PATIENCE_S) -> str:
        """Waits until all of it is on the screen; the screen."""
        give_up = time.monotonic() + within_s
        while True:
            screen = self.screen
            missing = [text for text in wanted if text not in screen]
            if not missing:
                return screen
            if time.monotonic() > give_up:
                raise AssertionError(f"{missing} never appeared on:\n{screen}")
            time.sleep(0.05)

    def status(self) -> int:
        """Waits for the end of the command; its exit status."""
        return int(re.findall(rf"{re.escape(_ENDED)} (\d+)", self.see(f"{_ENDED} "))[-1])

    def kill(self) -> None:
        """kill -9, as a crash is."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        child = subprocess.run(["ps", "-o", "pid=", "--ppid", shell], capture_output=True, text=True, check=True)
        os.kill(int(child.stdout.split()[0]), signal.SIGKILL)
        self.status()

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], capture_output=True)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-L", self._socket, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"tmux {arguments[0]}: {done.stderr.strip()}")
        return done.stdout


@contextmanager
def terminal(home: Path, **options: object) -> Iterator[Terminal]:
    made = Terminal(home, **options)  # type: ignore[arg-type]  # columns, rows and variables of the environment
    try:
        yield made
    finally:
        made.close()
