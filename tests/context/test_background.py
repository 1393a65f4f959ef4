"""A summary prepared while the conversation goes on, and swapped in between calls."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

import perdure
from perdure.agent.compaction import NEAR, Background
from perdure.context.compaction_input import tokens_of
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, ContextEngine, EngineServices, Keep, Reason
from perdure.core import rules
from perdure.core.messages import Entry
from perdure.core.ports import Summary
from perdure.core.usage import CanonicalUsage
from support.compaction import Shelf, logged
from support.long_histories import working_session
from support.summarisers import GOOD, Scripted


def engine(ask: Callable[..., Summary] | None = None) -> ContextCompressor:
    made = ContextCompressor(context_length=32_000)
    made.on_session_start("s_1", services=EngineServices(summarize=ask, state=Shelf()))
    return made


def in_an_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.mark.spec("C10")
@in_an_event_loop
async def test_preparation_is_due_near_the_threshold_and_only_once() -> None:
    background = Background(engine())
    assert NEAR == 0.85
    assert not background.is_due(int(NEAR * 10_000) - 1, 10_000)
    assert background.is_due(int(NEAR * 10_000), 10_000)
    assert background.start(logged(working_session(20)))
    assert background.is_preparing
    assert not background.is_due(9_999, 10_000)
    assert not background.start(logged(working_session(20)))
    assert await background.wait(30)


@pytest.mark.spec("C10")
@in_an_event_loop
async def test_the_person_does_not_wait_and_later_messages_are_kept() -> None:
    let_go = threading.Event()

    def slow(prompt: str, *, max_tokens: int) -> Summary:
        let_go.wait(30)
        return Summary(GOOD, model="slow-1")

    made = engine(slow)
    background = Background(made)
    snapshot = logged(working_session(20))
    background.start(snapshot)
    later = logged([{"role": "user", "content": "One more thing."}, {"role": "assistant", "content": "Yes?"}], 900)
    now = [*snapshot, *later]
    assert background.take(now) is None, "still being written: the conversation goes on without it"
    assert not made.should_compress(1_000)
    let_go.set()
    assert await background.wait(30)
    done = background.take(now)
    assert done is not None
    assert done.outcome == "compacted"
    assert done.plan[-1] == Keep(len(snapshot), len(now))
    after = done.apply(now)
    assert after[-2:] == later
    assert rules.violations(done.messages) == []
    assert done.after_tokens < done.before_tokens
    assert background.take(now) is None, "taken once"


@pytest.mark.spec("C10")
@pytest.mark.parametrize("change", ["undone", "replaced", "compacted"])
@in_an_event_loop
async def test_a_stale_one_is_thrown_away(change: str) -> None:
    snapshot = logged(working_session(20))
    background = Background(engine())
    background.start(snapshot)
    assert await background.wait(30)
    assert background.is_ready
    now = {
        "undone": snapshot[:-4],
        "replaced": [*snapshot[:-1], *logged([{"role": "assistant", "content": "retried"}], len(snapshot) - 1)],
        "compacted": snapshot[50:],
    }[change]
    assert background.take(now) is None
    assert not background.is_ready
    assert background.start(now), "and the next one may begin"


@pytest.mark.spec("C10")
@in_an_event_loop
async def test_one_that_frees_too_little_by_now_is_thrown_away() -> None:
    snapshot = logged(working_session(20))
    freed = perdure.compress([e.message.to_dict() for e in snapshot], context_length=32_000)
    enough = freed.before_tokens - freed.after_tokens
    for least, is_taken in ((enough // 2, True), (enough * 2, False)):
        background = Background(engine())
        background.start(snapshot)
        assert await background.wait(30)
        taken = background.take([*snapshot, *logged(working_session(2), 5_000)], least_freed_tokens=least)
        assert (taken is not None) == is_taken
        assert not background.is_ready, "looked at once, whatever came of it"


@pytest.mark.spec("C10")
@in_an_event_loop
async def test_figures_and_words_take_in_what_was_said_since() -> None:
    snapshot, later = logged(working_session(20)), logged(working_session(2), 5_000)
    background = Background(engine())
    background.start(snapshot)
    assert await background.wait(30)
    at_the_time = engine().compress(snapshot)
    done = background.take([*snapshot, *later])
    assert done is not None
    said_since = sum(tokens_of(e) for e in later)
    assert done.before_tokens == at_the_time.before_tokens + said_since
    assert done.after_tokens == at_the_time.after_tokens + said_since
    assert f"Prepared in the background, with {len(later)} messages added since." in done.message
    background.start(snapshot)
    assert await background.wait(30)
    assert (same := background.take(snapshot)) is not None
    assert same.message == at_the_time.message, "nothing was said since: nothing to add"


@pytest.mark.spec("C10")
@in_an_event_loop
async def test_a_model_switch_discards_it() -> None:
    background = Background(engine())
    snapshot = logged(working_session(20))
    background.start(snapshot)
    await asyncio.to_thread(background.cancel)
    assert background.take(snapshot) is None
    assert background.start(snapshot)
    assert await background.wait(30)


@pytest.mark.spec("C10", "C5")
@in_an_event_loop
async def test_preparing_neither_stops_the_gate_nor_counts_until_it_is_taken_over() -> None:
    made = engine(Scripted())
    background = Background(made)
    snapshot = logged(working_session(20))
    background.start(snapshot)
    assert await background.wait(30)
    assert made.should_compress(30_000), "the gate does not wait for something that may never be used"
    assert background.take(snapshot) is not None
    made.on_session_start("s_2", reason="compression", previous="s_1")
    assert not made.should_compress(30_000)
    made.update_from_response(CanonicalUsage(input_tokens=100))
    assert "compacted 2 times" in made.compress(snapshot).notices[0]


@pytest.mark.spec("C10")
@in_an_event_loop
async def test_a_raising_engine_prepares_nothing() -> None:
    class Raising(ContextCompressor):
        def compress(
            self, messages: Sequence[object], *, focus_topic: str | None = None, reason: Reason = "threshold"
        ) -> Compaction:
            raise RuntimeError("boom")

    broken: ContextEngine = Raising(context_length=32_000)
    background = Background(broken)
    entries: list[Entry] = logged(working_session(20))
    assert background.start(entries)
    assert await background.wait(30)
    assert background.take(entries) is None


@pytest.mark.spec("C10", "C5")
def test_a_preparation_that_finds_little_to_gain_is_no_strike() -> None:
    made = engine()
    short = logged(working_session(1))
    for _ in range(3):
        assert made.compress(short, reason="background").is_noop
    assert not made.is_paused
    for _ in range(2):
        made.compress(short, reason="threshold")
    assert made.is_paused
