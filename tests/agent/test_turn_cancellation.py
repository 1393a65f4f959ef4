"""An interrupt ends a turn exactly once, whenever it comes, and the history stays valid."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.agent.runner import RunningLoop, TurnCancellation
from perdure.context.engine import EngineServices
from perdure.core.errors import PerdureError
from perdure.testing.simulator import Say
from support.agents import Bench, bench


def _roles(b: Bench, session_id: str | None) -> list[str]:
    return [e.message.role for e in b.store.log.originals(session_id or "")]


def test_an_interrupt_before_the_task_begins_takes_effect_at_its_first_await() -> None:
    async def turn(cancellation: TurnCancellation, steps: list[str]) -> None:
        cancellation.begin()
        steps.append("begun")
        await asyncio.sleep(5)
        steps.append("not reached")

    async def main() -> list[str]:
        cancellation, steps = TurnCancellation(), list[str]()
        assert cancellation.interrupt()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.ensure_future(turn(cancellation, steps))
        return steps

    assert asyncio.run(main()) == ["begun"]


def test_of_an_interrupt_and_a_beginning_at_the_same_moment_exactly_one_cancels() -> None:
    async def once() -> int:
        cancellation, ready = TurnCancellation(), threading.Barrier(2)

        async def turn() -> int:
            ready.wait()
            cancellation.begin()
            for _ in range(50):
                try:
                    await asyncio.sleep(0.001)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.002)  # the final save: a second cancel would abort it
                    task = asyncio.current_task()
                    return task.cancelling() if task is not None else 0
            return 0

        def interrupt() -> None:
            ready.wait()
            cancellation.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        result = await asyncio.ensure_future(turn())
        thread.join()
        return result

    assert [asyncio.run(once()) for _ in range(100)] == [1] * 100


def test_a_finished_turn_cannot_be_interrupted() -> None:
    cancellation = TurnCancellation()
    cancellation.finish()
    assert not cancellation.interrupt()
    assert cancellation.wait(0)


def test_a_turn_interrupted_in_its_own_loop_before_it_began_is_stored_as_interrupted(tmp_path: Path) -> None:
    with bench(tmp_path, "never sent") as b:

        async def talk() -> str:
            agent = ConversationAgent(b.deps, RunningLoop(), services=lambda live: EngineServices())
            turn = asyncio.ensure_future(agent.arun_conversation("hello"))
            await asyncio.sleep(0)  # the turn is claimed, and its task has not run yet
            assert agent.interrupt()
            result = await turn
            assert _roles(b, agent.session_id) == ["user"]
            return result.outcome

        assert asyncio.run(talk()) == "interrupted"


@pytest.mark.spec("J4")
def test_cancelling_a_waiter_ends_the_turn_before_the_next_one_starts(tmp_path: Path) -> None:
    slow = Say("word " * 400, chunk_chars=5, chunk_delay_s=0.02)
    with bench(tmp_path, lambda asked: slow if asked.body["messages"][-1]["content"] == "first" else "Second.") as b:

        async def talk() -> str:
            first = asyncio.ensure_future(b.agent.achat("first"))
            while not b.sim.requests:
                await asyncio.sleep(0.01)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            return await b.agent.achat("second")

        assert asyncio.run(talk()) == "Second."
        assert _roles(b, b.agent.session_id)[0] == "user"
        assert _roles(b, b.agent.session_id)[-2:] == ["user", "assistant"]


def test_work_that_is_refused_leaves_no_coroutine_behind(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    with bench(tmp_path, Say("word " * 50, chunk_chars=5, chunk_delay_s=0.02)) as b:
        thread = threading.Thread(target=b.agent.run_conversation, args=("first",))
        thread.start()
        while not b.sim.requests:
            threading.Event().wait(0.01)
        with pytest.raises(PerdureError, match="under way already"):
            b.agent.chat("second")
        b.agent.interrupt()
        thread.join()
    assert not [w for w in recwarn if "never awaited" in str(w.message)]
