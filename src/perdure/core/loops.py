"""Event loops that outlive a stray `SystemExit` or `KeyboardInterrupt`.

asyncio lets these two out of `run_forever` when a task or callback raises them, which stops every other task of the
process. A tool may start tasks of its own, so no amount of care around the tool call itself prevents that.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


def run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until `loop.stop()`."""
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            if _is_ctrl_c(error):
                raise
            _log_escape(error)
        else:
            return


def run_main(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end and return its result. What `main` itself raises is raised."""
    task = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as error:
            if task.done() or _is_ctrl_c(error):
                raise
            _log_escape(error)


def _is_ctrl_c(error: BaseException) -> bool:
    """Whether the person pressed Ctrl-C: only the main thread hears it, and only while Python's own handler is set."""
    is_heard = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and is_heard and _is_default(signal.getsignal(signal.SIGINT))


def _is_default(handler: object) -> bool:
    return handler is signal.default_int_handler


def _log_escape(error: BaseException) -> None:
    _log.error("%s escaped from a task; the event loop goes on", type(error).__name__, exc_info=error)
