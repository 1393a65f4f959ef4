"""The end of the process: it comes when the person leaves, whatever some thread of somebody's still waits for."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# All that must be kept was kept before; beyond this nobody would believe that the program has ended.
_PATIENCE_S = 3.0
# Beyond this the interpreter itself is stuck, and no thread of ours would run any more.
_STUCK_S = 10


def leave_soon(code: int, *, patience_s: float = _PATIENCE_S) -> None:
    """Lets the interpreter end as it should, and ends it with `code` where that takes too long."""
    threading.Thread(target=_cut_off, args=(code, patience_s), name="perdure-end", daemon=True).start()
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_STUCK_S)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """A `kill` and a closed window interrupt as Ctrl-C does: the turn is stopped, and so is what it started."""
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
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
