"""A main coroutine runs to its end whatever its tasks raise; what it raises itself is raised."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import uvloop

from perdure.core.concurrency import run_main

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@contextmanager
def _loop(factory: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[asyncio.AbstractEventLoop]:
    loop = factory()
    try:
        yield loop
    finally:
        loop.close()


@pytest.mark.parametrize("factory", LOOPS)
def test_a_task_that_exits_does_not_end_the_main_one(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def exits() -> None:
        raise SystemExit(3)

    async def main() -> str:
        tasks = [asyncio.create_task(exits()) for _ in range(3)]
        await asyncio.sleep(0.02)
        return f"{sum(task.done() for task in tasks)} ended"

    with _loop(factory) as loop:
        assert run_main(loop, main()) == "3 ended"


@pytest.mark.parametrize("factory", LOOPS)
def test_what_the_main_one_raises_is_raised(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        raise SystemExit(3)

    with _loop(factory) as loop, pytest.raises(SystemExit):
        run_main(loop, main())


def test_ctrl_c_ends_a_loop_in_the_main_thread_unless_somebody_else_handles_it() -> None:
    async def main() -> str:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await asyncio.sleep(0.02)
        return "handled"

    with _loop(asyncio.new_event_loop) as loop:
        with pytest.raises(KeyboardInterrupt):
            run_main(loop, main())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        assert run_main(loop, main()) == "handled"
        loop.remove_signal_handler(signal.SIGINT)
