"""Steps: blocking work in worker threads that has something awaited on the event loop in between."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable

import pytest

from perdure.context.engine import Steps, run_steps, run_steps_here

LOOP_THREADS: list[int] = []


async def answer(text: str) -> str:
    LOOP_THREADS.append(threading.get_ident())
    await asyncio.sleep(0)
    if text == "fail":
        raise ValueError("no answer")
    return text.upper()


def conversation(threads: list[int], thresholds: list[int]) -> Steps[list[str]]:
    answers = []
    for text in ("one", "fail", "two"):
        threads.append(threading.get_ident())
        thresholds.append(gc.get_threshold()[0])
        try:
            answers.append((yield lambda text=text: answer(text)))
        except ValueError as error:
            answers.append(str(error))
    return answers


@pytest.mark.spec("M1")
@pytest.mark.parametrize("run", [lambda steps: asyncio.run(run_steps(steps)), run_steps_here])
def test_each_question_is_answered_and_a_failure_is_raised_where_it_was_asked(
    run: Callable[[Steps[list[str]]], list[str]],
) -> None:
    assert run(conversation([], [])) == ["ONE", "no answer", "TWO"]


@pytest.mark.spec("D9")
def test_between_questions_it_runs_in_a_worker_thread_without_garbage_collections() -> None:
    threads: list[int] = []
    thresholds: list[int] = []
    before = gc.get_threshold()
    LOOP_THREADS.clear()
    asyncio.run(run_steps(conversation(threads, thresholds)))
    assert not set(threads) & set(LOOP_THREADS)
    assert set(LOOP_THREADS) == {threading.get_ident()}
    assert thresholds == [1_000_000] * 3 != [before[0]] * 3
    assert gc.get_threshold() == before


@pytest.mark.spec("D9")
def test_where_garbage_is_never_collected_a_compaction_leaves_it_so() -> None:
    before, thresholds = gc.get_threshold(), list[int]()
    gc.set_threshold(0)
    try:
        run_steps_here(conversation([], thresholds))
        assert [*thresholds, gc.get_threshold()[0]] == [0, 0, 0, 0]
    finally:
        gc.set_threshold(*before)


@pytest.mark.spec("J4")
def test_cancelling_ends_the_steps_in_a_worker_thread() -> None:
    ended: list[int] = []
    asked = asyncio.Event()

    async def never() -> None:
        asked.set()
        await asyncio.sleep(60)

    def steps() -> Steps[None]:
        try:
            yield never
        finally:
            ended.append(threading.get_ident())

    async def cancel() -> None:
        task = asyncio.ensure_future(run_steps(steps()))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert len(ended) == 1
    assert ended[0] != threading.get_ident()


def test_what_it_raises_is_raised() -> None:
    def steps() -> Steps[None]:
        yield lambda: answer("one")
        raise KeyError("two")

    for run in (lambda: asyncio.run(run_steps(steps())), lambda: run_steps_here(steps())):
        with pytest.raises(KeyError, match="two"):
            run()
