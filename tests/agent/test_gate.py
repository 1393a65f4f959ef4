"""The gate and what is prepared behind it: the person waits only when the window has no room to spare."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.agent.compaction import NEAR
from perdure.agent.runner import LoopThread
from perdure.agent.turn import ConversationResult
from perdure.config.sections import CompressionSettings
from perdure.config.settings import Settings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import EngineServices
from perdure.core.ports import Summary
from support.agents import Bench, bench
from support.long_histories import working_session
from support.summarisers import GOOD

WINDOW = 32_000  # the threshold is half of it, and preparation begins at 85% of that


class Writer:
    """A summariser that answers when it is let to."""

    def __init__(self) -> None:
        self._may_answer = threading.Event()
        self.finished = threading.Event()
        self.calls = 0

    def __call__(self, prompt: str, *, max_tokens: int) -> Summary:
        self.calls += 1
        assert self._may_answer.wait(60)
        self.finished.set()
        return Summary(GOOD, model="writer-1")

    def answer_now(self) -> None:
        self._may_answer.set()


def near_the_threshold() -> list[dict[str, Any]]:
    return working_session(8, chars=2_200)


def filler(tokens: int) -> str:
    """Words that come to about so many tokens."""
    return "the brown fox links modules " * (tokens // 5)


def handoffs(result: ConversationResult) -> int:
    return sum(e.message.kind == "handoff" for e in result.entries)


def compactions(b: Bench) -> list[str]:
    """Why each compaction of the conversation took place."""
    assert b.agent.session_id is not None
    return [str(e.payload["reason"]) for e in b.store.ledger.events(b.agent.session_id, kind="compaction")]


@pytest.mark.spec("C10", "C4")
def test_a_summary_is_prepared_near_the_threshold_and_swapped_in_between_calls(tmp_path: Path) -> None:
    writer = Writer()
    with bench(tmp_path, *["Yes."] * 110, window=WINDOW, summarize=writer) as b:
        b.agent.run_conversation("Go on?", conversation_history=near_the_threshold())
        second = b.agent.run_conversation(filler(2_500))
        assert handoffs(second) == 0, "still being written: the conversation goes on beyond the threshold"
        writer.answer_now()
        assert writer.finished.wait(60)
        turns = (b.agent.run_conversation("And now?") for _ in range(100))
        assert any(handoffs(turn) == 1 for turn in turns), "swapped in before a later call"
        assert handoffs(b.agent.run_conversation("Fine.")) == 1
        assert writer.calls == 1
        assert compactions(b) == ["background"]
        assert b.sim.billed[-1].prompt_tokens < NEAR * WINDOW // 2, "and the next one is not due at once"


@pytest.mark.spec("C10")
def test_one_that_would_have_to_be_followed_by_the_next_is_not_taken(tmp_path: Path) -> None:
    writer = Writer()
    writer.answer_now()
    with bench(tmp_path, *["Yes."] * 9, window=WINDOW, summarize=writer) as b:
        b.agent.run_conversation("Go on?", conversation_history=near_the_threshold())
        writer.finished.wait(60)
        result = b.agent.run_conversation(filler(12_000))
        assert handoffs(result) == 1
        assert compactions(b)[0] == "preflight", "made afresh, over all there is"
        assert "background" not in compactions(b)


@pytest.mark.spec("C10")
def test_with_no_room_to_spare_it_waits_for_the_one_under_way_and_starts_no_second(tmp_path: Path) -> None:
    writer = Writer()
    late = Settings(compression=CompressionSettings(threshold=0.9))
    with bench(tmp_path, *["Yes."] * 9, window=WINDOW, summarize=writer, settings=late) as b:
        b.agent.run_conversation("Go on?", conversation_history=working_session(15, chars=2_200))
        threading.Timer(0.5, writer.answer_now).start()
        result = b.agent.run_conversation(filler(5_500))
        assert handoffs(result) == 1
        assert writer.calls == 1
        assert compactions(b) == ["background"]


class Eager(ContextCompressor):
    """Somebody else's engine, which has never heard of the setting."""

    name = "eager"

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return True


@pytest.mark.spec("C1")
@pytest.mark.parametrize("enabled", [True, False])
def test_compression_switched_off_is_off_for_every_engine(tmp_path: Path, enabled: bool) -> None:
    settings = Settings(compression=CompressionSettings(enabled=enabled))
    with bench(tmp_path, *["Yes."] * 3, window=WINDOW, settings=settings) as b:
        deps = replace(b.deps, engine=Eager(context_length=WINDOW))
        agent = ConversationAgent(
            deps, LoopThread(), services=lambda live: EngineServices(settings=settings.compression)
        )
        result = agent.run_conversation("Go on?", conversation_history=near_the_threshold())
        assert result.outcome == "completed"
        assert (handoffs(result) > 0) is enabled
