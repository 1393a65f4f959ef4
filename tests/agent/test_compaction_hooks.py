"""Hooks of plug-ins around compactions: a topic to keep before, the outcome after; a failing one changes nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from perdure.agent.compaction import Background
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import EngineServices
from perdure.core.ports import Summary
from perdure.tools.hooks import CompactionContext, Hooks, StoredCompaction
from support.agents import Bench, bench
from support.compaction import Shelf, logged
from support.long_histories import working_session
from support.summarisers import GOOD


class Writer:
    """Remembers the prompts of summaries."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str, *, max_tokens: int) -> Summary:
        self.prompts.append(prompt)
        return Summary(GOOD, model="writer-1")


def _talk(b: Bench) -> None:
    for turn in range(10):
        b.agent.run_conversation(f"question {turn}: " + "words about the parser " * 60)


def test_a_hook_adds_a_topic_before_and_another_reads_the_outcome(tmp_path: Path) -> None:
    writer, before, after = Writer(), list[CompactionContext](), list[StoredCompaction]()
    with bench(tmp_path, *["Yes. " + "word " * 120] * 12, window=200_000, summarize=writer) as b:
        hooks = b.agent.deps.tools.hooks
        hooks.pre_compact.append(lambda context: before.append(context))
        hooks.pre_compact.append(lambda context: "the migration of the zebra table")
        hooks.post_compact.append(after.append)
        _talk(b)
        first_id = b.agent.session_id
        assert b.agent.compress("the parser").outcome == "compacted"
        assert [(c.reason, c.focus, c.session_id) for c in before] == [("user", "the parser", first_id)]
        assert before[0].messages == 20
        assert "the parser; the migration of the zebra table" in writer.prompts[0]
        (done,) = after
        assert (done.reason, done.outcome, done.previous_id) == ("user", "compacted", first_id)
        assert done.session_id == b.agent.session_id
        assert done.after_tokens < done.before_tokens
        assert "PERDURE HANDOFF" in done.handoff
        assert b.agent.compress("the parser").outcome == "nothing_to_do"
        assert len(after) == 1, "nothing was stored, so there is no outcome"


def test_hooks_around_a_compaction_may_be_asynchronous(tmp_path: Path) -> None:
    writer, after = Writer(), list[StoredCompaction]()

    async def topic(_: CompactionContext) -> str:
        await asyncio.sleep(0)
        return "the migration of the zebra table"

    async def keep(outcome: StoredCompaction) -> None:
        await asyncio.sleep(0)
        after.append(outcome)

    with bench(tmp_path, *["Yes. " + "word " * 120] * 12, window=200_000, summarize=writer) as b:
        hooks = b.agent.deps.tools.hooks
        hooks.pre_compact.append(topic)
        hooks.post_compact.append(keep)
        _talk(b)
        assert b.agent.compress().outcome == "compacted"
    assert "the migration of the zebra table" in writer.prompts[0]
    assert [outcome.outcome for outcome in after] == ["compacted"]


def test_hooks_that_fail_are_logged_and_the_compaction_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no")

    with bench(tmp_path, *["Yes. " + "word " * 120] * 12, window=200_000, summarize=Writer()) as b:
        hooks = b.agent.deps.tools.hooks
        hooks.pre_compact.append(fail)
        hooks.pre_compact.append(lambda context: 7)  # type: ignore[arg-type, return-value]  # not a text
        hooks.post_compact.append(fail)
        _talk(b)
        with caplog.at_level(logging.ERROR):
            assert b.agent.compress().outcome == "compacted"
    assert sum("_compact hook" in record.message for record in caplog.records) == 3


def test_a_preparation_in_the_background_has_the_topic_too() -> None:
    writer = Writer()
    engine = ContextCompressor(context_length=32_000)
    engine.on_session_start("s_1", services=EngineServices(summarize=writer, state=Shelf()))

    async def prepare() -> None:
        background = Background(engine, focus=lambda: "the zebra table")
        background.start(logged(working_session(20)))
        await background.wait(30)

    asyncio.run(prepare())
    assert "the zebra table" in writer.prompts[0]


def test_a_hook_that_hangs_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    release, calls = threading.Event(), list[str]()
    hooks = Hooks(compaction_limit_s=0.05)
    hooks.pre_compact.extend([lambda _: str(release.wait(60)), lambda _: "the parser"])
    hooks.post_compact.extend([lambda _: release.wait(60) and None, lambda outcome: calls.append(outcome.reason)])
    context = CompactionContext("c", "s", "user", messages=3, tokens=9, focus="the tests")
    assert hooks.compaction_focus(context) == "the tests; the parser"
    hooks.apply_post_compact(StoredCompaction("c", "s2", "s", "user", "compacted", 9, 3, "text"))
    assert calls == ["user"]
    assert [record.message.split()[0] for record in caplog.records] == ["pre_compact", "post_compact"]
    release.set()
