"""The loop thread: ordinary code in, results out, from anywhere."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.agent.runner import LoopThread


async def _where() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_work_runs_on_one_thread_whoever_asks() -> None:
    loop_thread = LoopThread("test-loop")
    assert loop_thread.run(_where()) == loop_thread.run(_where()) == "test-loop"

    async def from_another_loop() -> str:
        return await loop_thread.join(_where())

    assert asyncio.run(from_another_loop()) == "test-loop"


def test_an_exception_comes_back_to_the_one_who_asked() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        LoopThread().run(fail())


def test_cancelling_the_waiter_cancels_the_work() -> None:
    loop_thread, stopped, begun = LoopThread(), threading.Event(), threading.Event()

    async def forever() -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async def story() -> None:
        task = asyncio.create_task(loop_thread.join(forever()))
        await asyncio.to_thread(begun.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert stopped.wait(5)


def test_the_loop_cannot_wait_for_itself_and_says_so() -> None:
    loop_thread = LoopThread()

    async def nested() -> None:
        loop_thread.run(_where())

    with pytest.raises(RuntimeError, match="use the async form"):
        loop_thread.run(nested())


@pytest.mark.parametrize("stray", [SystemExit(3), KeyboardInterrupt()])
def test_a_stray_exit_in_any_task_or_callback_does_not_stop_the_loop(stray: BaseException) -> None:
    loop_thread = LoopThread()
    loop = loop_thread.loop

    async def exits() -> None:
        raise stray

    def exits_too() -> None:
        raise stray

    async def bystander() -> str:
        tasks = [asyncio.create_task(exits()) for _ in range(3)]
        asyncio.get_running_loop().call_soon(exits_too)
        await asyncio.sleep(0.05)
        assert all(task.done() for task in tasks)
        return "still here"

    assert loop_thread.submit(bystander()).result(5) == "still here"
    with pytest.raises(type(stray)):
        loop_thread.submit(exits()).result(5)
    assert loop_thread.submit(_where()).result(5) == "perdure-loop"
    assert loop_thread.loop is loop
