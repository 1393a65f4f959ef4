"""Exit promptly without joining worker threads."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

# Everything is stored already; a longer wait would look like a hang.
_PATIENCE_S = 3.0
# What a shell reports of a program whose reader is gone, as in `| head -1`.
UNREAD = 141
# What the interpreter itself ends with when its output could not be written.
_UNWRITTEN = 120


def leave(code: int, *, patience_s: float = _PATIENCE_S) -> NoReturn:
    """Exit the process: run exit handlers, flush output, join no thread.

    The interpreter's own shutdown joins every non-daemon thread, however long that takes, and then stops the
    daemons wherever they are: among 216 chats left on a busy machine, one was still ending after ten seconds.
    """
    threading.Thread(target=_cut_off, args=(code, patience_s), name="perdure-end", daemon=True).start()
    atexit._run_exitfuncs()
    os._exit(_flush_output(code))


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let `kill` and a closed window interrupt as Ctrl-C does: the turn is stopped, and so is what it started."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():  # where no signal ever arrives
        numbers = []
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _cut_off(code: int, patience_s: float) -> None:
    time.sleep(patience_s)
    os._exit(_flush_output(code))


def _flush_output(code: int) -> int:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        return code or UNREAD
    except (OSError, ValueError):  # a full disk, a pipe or a terminal that is gone
        return code or _UNWRITTEN
    return code
