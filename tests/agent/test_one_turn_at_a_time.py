"""One turn at a time, whatever thread asks for it; and free again when its end is told."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.core.errors import PerdureError
from perdure.core.events import Event, TextDelta, TurnFinished
from support.agents import bench


def started_together(agent: ConversationAgent, count: int) -> list[str]:
    """What came of turns that `count` threads began at the same moment."""
    together, outcomes = threading.Barrier(count), []

    def start() -> None:
        together.wait()
        try:
            outcomes.append(agent.run_conversation("hello").outcome)
        except PerdureError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_of_turns_started_at_the_same_moment_exactly_one_runs(tmp_path: Path) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as many switches between threads as can be
    try:
        with bench(tmp_path, lambda asked: "Noted.") as b:
            for _ in range(25):
                agent = b.again()
                outcomes = started_together(agent, 3)
                roles = [e.message.role for e in b.store.log.originals(agent.session_id or "")]
                assert roles == ["user", "assistant"] * outcomes.count("completed")
                assert all(o == "completed" or "under way already" in o for o in outcomes)
    finally:
        sys.setswitchinterval(interval)


def test_the_next_turn_can_be_started_on_the_end_of_the_one_before(tmp_path: Path) -> None:
    with bench(tmp_path, "One.", "Two.") as b:
        answers: list[str] = []

        async def talk() -> None:
            async for event in b.agent.stream("first"):
                if isinstance(event, TurnFinished):
                    answers.append(event.final_response)
                    answers.append(await b.agent.achat("second"))

        asyncio.run(talk())
        assert answers == ["One.", "Two."]


def test_the_agent_is_free_when_a_listener_hears_of_the_end(tmp_path: Path) -> None:
    with bench(tmp_path, "One.") as b:
        met: list[bool] = []

        def hear(event: Event) -> None:
            if isinstance(event, TurnFinished):
                met.append(b.agent.interrupt())

        b.agent.events.tap(hear)
        b.agent.chat("hello")
        assert met == [False], "there is no turn to interrupt any more"
        assert b.store.leases.holder_of(b.agent.session_id or "") is None


def test_leaving_a_stream_at_its_end_does_not_interrupt_the_next_turn(tmp_path: Path) -> None:
    with bench(tmp_path, "One.", "Two.") as b:

        async def talk() -> str:
            stream = b.agent.stream("first")
            async for event in stream:
                if isinstance(event, TurnFinished):
                    break
            second = asyncio.ensure_future(b.agent.arun_conversation("second"))
            await asyncio.sleep(0)
            await stream.aclose()
            return (await second).outcome

        assert asyncio.run(talk()) == "completed"


def test_the_next_turn_may_begin_at_once_after_leaving_a_stream_early(tmp_path: Path) -> None:
    with bench(tmp_path, *(f"Answer {number} has a few words." for number in range(20))) as b:

        async def talk() -> None:
            for number in range(6):
                async for event in b.agent.stream(f"async {number}"):
                    if isinstance(event, TextDelta):
                        break

        asyncio.run(talk())
        for number in range(6):
            for event in b.agent.stream_here(f"blocking {number}"):
                if isinstance(event, TextDelta):
                    break
        assert b.agent.chat("and on") is not None


def test_work_cancelled_before_it_began_leaves_the_agent_free(tmp_path: Path) -> None:
    with bench(tmp_path, "One.") as b:

        async def cancel_at_once() -> None:
            turn = asyncio.ensure_future(b.agent.achat("never"))
            await asyncio.sleep(0)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn

        asyncio.run(cancel_at_once())
        for _ in range(100):
            try:
                b.agent.chat("hello")
                break
            except PerdureError:
                threading.Event().wait(0.02)
        else:
            pytest.fail("the agent stayed busy")
