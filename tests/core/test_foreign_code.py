"""Code that is not ours runs in worker threads: any error of it arrives, and it sees the caller's context."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.core.concurrency import DaemonThreads, ForeignError, run_abandonable, run_foreign, run_shielded

Runner = Callable[[Callable[[], Any]], Awaitable[Any]]


async def _abandonable(work: Callable[[], Any]) -> Any:
    return await run_abandonable(work, name="test")


async def _in_daemon_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(DaemonThreads(), work)


RUNNERS: list[Runner] = [run_foreign, run_shielded, _abandonable]

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("TENANT", default="nobody")


def _run(runner: Runner, work: Callable[[], Any]) -> Any:
    async def main() -> Any:
        TENANT.set("ann")
        async with asyncio.timeout(5):
            return await runner(work)

    return asyncio.run(main())


@pytest.mark.parametrize("runner", [*RUNNERS, _in_daemon_thread])
def test_an_exhausted_iterator_is_an_error_and_no_hang(runner: Runner) -> None:
    with pytest.raises(ForeignError, match="StopIteration"):
        _run(runner, lambda: next(iter(())))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_an_event_loop_would_take_for_its_own_is_an_ordinary_error(
    runner: Runner, error: type[BaseException]
) -> None:
    def work() -> None:
        raise error

    with pytest.raises(ForeignError, match=error.__name__):
        _run(runner, work)


@pytest.mark.parametrize("runner", RUNNERS)
def test_worker_threads_see_the_context_variables_of_the_caller(runner: Runner) -> None:
    assert _run(runner, TENANT.get) == "ann"
