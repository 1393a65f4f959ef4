"""A compaction of a very long history leaves the event loop free for everything else that it serves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, EngineServices, Reason, Steps
from perdure.core.messages import Entry
from perdure.core.ports import Summary
from support.agents import bench
from support.summarisers import GOOD

MESSAGES = 10_000
# How late a task that wakes every few milliseconds may be, beyond what it is late without a compaction.
MAX_BLOCK_S = 0.020
TICK_S = 0.002


class Probe:
    """A task on the event loop that measures how late it is woken, in CPU time of the loop's own thread.

    CPU time of that thread grows only by what runs on the loop: other processes and worker threads do not count.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        while True:
            before_s = time.thread_time()
            await asyncio.sleep(TICK_S)
            self.longest_s = max(self.longest_s, time.thread_time() - before_s)


class Watched(ContextCompressor):
    """Notes the threads in which a compaction runs, stretch by stretch."""

    threads: set[int]

    def steps(self, messages: Sequence[Entry], *, focus_topic: str | None, reason: Reason) -> Steps[Compaction]:  # type: ignore[override]
        work = super().steps(messages, focus_topic=focus_topic, reason=reason)
        answer: object = None
        while True:
            self.threads.add(threading.get_ident())
            try:
                question = work.send(answer)
            except StopIteration as end:
                compaction: Compaction = end.value
                return compaction
            answer = yield question


@pytest.mark.slow
@pytest.mark.spec("D9")
def test_a_compaction_of_ten_thousand_messages_never_blocks_the_event_loop(tmp_path: Path) -> None:
    asked_in: list[int] = []

    async def summarize(prompt: str, *, max_tokens: int) -> Summary:
        asked_in.append(threading.get_ident())
        return Summary(GOOD, model="m")

    engine = Watched(context_length=60_000)
    engine.threads = set()
    with bench(tmp_path, window=60_000, engine=lambda: engine) as b:
        session = b.store.create(system_prompt="Be brief.")
        roles = ("user", "assistant")
        history = [{"role": roles[n % 2], "content": f"part {n % 50}, please"} for n in range(MESSAGES)]
        b.store.append(session.id, history)
        agent = ConversationAgent(
            b.deps, b.loop_thread, services=lambda live: EngineServices(summarize=summarize), session_id=session.id
        )
        agent.measure()
        probe = Probe()

        async def compress() -> tuple[str, int]:
            task = asyncio.ensure_future(probe.run())
            await asyncio.sleep(5 * TICK_S)
            report = await agent.acompress()
            await asyncio.sleep(5 * TICK_S)
            task.cancel()
            return report.outcome, threading.get_ident()

        outcome, loop_thread = b.loop_thread.run(compress())
        agent.close()
    assert outcome == "compacted"
    assert set(asked_in) == {loop_thread}
    assert loop_thread not in engine.threads
    assert probe.longest_s <= MAX_BLOCK_S
