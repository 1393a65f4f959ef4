"""Show the progress of a single question on standard error: one status row, with finished lines above it."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

from perdure.agent.callbacks import status_line
from perdure.cli.chat.activity import Activity
from perdure.cli.chat.transcript import finished_line
from perdure.cli.style import Style, cut_row, fit_lines, safe
from perdure.core.events import (
    CallStarted,
    CompactionFinished,
    CompactionStarted,
    Event,
    HelperStarted,
    ModelSwitched,
    Notice,
    Recovered,
    RetryScheduled,
    ToolFinished,
)

_EVERY_S = 0.2
_PLAIN = Style(is_color=False)
_ERASE = "\r\x1b[K"


class StatusRow:
    """The status row of a single question, on standard error. Thread-safe.

    Finished tool calls and notices are printed above it and stay; `close` erases the row.
    """

    def __init__(
        self,
        out: TextIO,
        *,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._columns = columns
        self._clock_s = clock_s
        self._work = Activity(_PLAIN, tool_lines=0, clock_s=clock_s)
        # What is going on other than tools, and since when.
        self._what, self._since_s = "starting", clock_s()
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Keep the row's clock moving."""
        threading.Thread(target=self._tick, name="perdure-progress", daemon=True).start()

    def hear(self, event: Event) -> None:
        with self._lock:
            if self._is_closed.is_set():
                return
            self._work.take(event)
            if isinstance(event, CallStarted | CompactionStarted):
                self._what = "thinking" if isinstance(event, CallStarted) else "compacting"
                self._since_s = self._clock_s()
            if line := _finished_text(event, self._columns()):
                self._out.write(f"{_ERASE}{line}\n")
            self._draw()

    def draw(self) -> None:
        """Draw the row again, with the time that has passed."""
        with self._lock:
            if not self._is_closed.is_set():
                self._draw()

    def close(self) -> None:
        """Erase the row permanently."""
        with self._lock:
            if not self._is_closed.is_set():
                self._is_closed.set()
                self._out.write(_ERASE)
                self._out.flush()

    def _draw(self) -> None:
        rows = self._work.lines(self._columns() - 1) if self._work.is_waiting else []
        seconds = self._clock_s() - self._since_s
        row = rows[-1] if rows else f"{self._what} … {seconds:.0f} s"
        self._out.write(f"{_ERASE}{cut_row(row, self._columns() - 1)}")
        self._out.flush()

    def _tick(self) -> None:
        while not self._is_closed.wait(_EVERY_S):
            self.draw()


def _finished_text(event: Event, columns: int) -> str:
    match event:
        case ToolFinished(helper=helper):
            return ("  " if helper else "") + finished_line(event, None, _PLAIN, width=columns - 3).rstrip("\n")
        case HelperStarted(task=task):
            return cut_row(f"◇ helper: {' '.join(safe(task).split())}", columns - 1)
        case CompactionFinished() | Recovered() | RetryScheduled() | ModelSwitched() | Notice():
            text = status_line(event)
            return "\n".join(fit_lines([f"perdure: {safe(text)}"], columns)) if text else ""
        case _:
            return ""
