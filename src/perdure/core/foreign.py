"""Calls into code that is not ours: tools, hooks, callbacks, plug-ins.

Such code may raise anything. `SystemExit` and `KeyboardInterrupt` would stop the event loop of the whole process, and a
`CancelledError` of its own would look like an interrupt of the turn. Here each of these becomes a `ForeignError`, an
ordinary exception, while an interrupt of the calling task still interrupts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ForeignError(Exception):
    """Foreign code raised something that is not an `Exception`; the text says what."""


def describe_error(error: BaseException) -> str:
    """The type and text of an exception, whatever its `__str__` does."""
    try:
        text = str(error)
    except BaseException:  # the exception's own code
        text = "(its text cannot be read)"
    if isinstance(error, ForeignError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def call_foreign(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function`; raises `Exception` and its subclasses only."""
    try:
        return function(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        raise ForeignError(describe_error(error)) from error


async def await_foreign(work: Awaitable[T]) -> T:
    """Await `work`; raises `Exception` and its subclasses only, and `CancelledError` when this task was cancelled."""
    task = asyncio.current_task()
    try:
        return await work
    except Exception:
        raise
    except asyncio.CancelledError as error:
        if task is None or task.cancelling():
            raise
        raise ForeignError(describe_error(error)) from error
    except GeneratorExit as error:
        # Closing the coroutine from outside throws this one in as well; then there is nothing left to go on with.
        if task is None or _running_task() is not task:
            raise
        raise ForeignError(describe_error(error)) from error
    except BaseException as error:
        raise ForeignError(describe_error(error)) from error


def _running_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
