"""Code that is not ours is called with a time limit: sync or async, with the caller's context, never for ever."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from perdure.core.concurrency import ForeignError, call_with_timeout

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


def test_results_of_functions_and_of_coroutine_functions_are_returned() -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    assert call_with_timeout(lambda: "now", 30) == "now"
    assert call_with_timeout(later, 30) == "later"


def test_the_caller_s_context_variables_are_visible() -> None:
    token = VARIABLE.set("mine")
    try:
        assert call_with_timeout(VARIABLE.get, 30) == "mine"
    finally:
        VARIABLE.reset(token)


def test_a_call_that_hangs_is_left_behind_and_names_its_setting() -> None:
    released = threading.Event()
    with pytest.raises(TimeoutError, match=r"it took longer than 0\.05 s \(recall\.timeout_s\)"):
        call_with_timeout(lambda: released.wait(60), 0.05, setting="recall.timeout_s")
    released.set()


def test_a_timeout_of_the_function_itself_is_its_own_error() -> None:
    def fail() -> None:
        raise TimeoutError("the server did not answer")

    with pytest.raises(TimeoutError, match="the server did not answer"):
        call_with_timeout(fail, 30)


def test_an_exit_of_the_function_is_an_ordinary_error() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(ForeignError, match="SystemExit"):
        call_with_timeout(leave, 30)
