"""What pauses automatic compaction, what overrides the pause, and what the model never hears of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.context.compressor import ContextCompressor
from perdure.context.compressor_state import CompactionThrottle
from perdure.core.events import CompactionFinished
from perdure.testing.simulator import Fail
from support.agents import Bench, bench


def _pause(b: Bench) -> CompactionThrottle:
    """Two passes that saved nothing, as an engine would have noted them in this conversation's state."""
    session = b.store.conversations.session(b.agent.session_id or "")
    pause = CompactionThrottle(b.store.state(f"engine:{session.conversation_id}"), most_strikes=2)
    for _ in range(2):
        pause.record_pass(1_000, 1_000)
    return pause


@pytest.mark.spec("G5", "C5")
def test_a_proven_overflow_compacts_though_automatic_compaction_is_paused(tmp_path: Path) -> None:
    with bench(tmp_path, window=16_000) as b:
        for i in range(8):
            b.agent.chat(f"question {i} " + "padding words " * 150)
        first = b.agent.session_id
        _pause(b)
        assert isinstance(b.deps.engine, ContextCompressor)
        assert b.deps.engine.is_paused
        assert not b.deps.engine.should_compress(15_000)
        compacted: list[CompactionFinished] = []
        stop = b.agent.events.listen(lambda e: compacted.append(e) if isinstance(e, CompactionFinished) else None)
        b.sim.add(Fail("openai_overflow"), "It fits again.")
        assert b.agent.chat("and now?") == "It fits again."
        stop()
        assert [e.outcome for e in compacted] == ["digest"]
        assert b.agent.session_id != first
        assert b.sim.violations == []


@pytest.mark.spec("C7")
def test_nothing_the_model_reads_says_that_the_window_or_the_steps_run_out(tmp_path: Path) -> None:
    with bench(tmp_path, window=8_000) as b:
        for i in range(14):
            b.agent.chat(f"question {i} " + "padding words " * 150)
        sent = " ".join(str(r.body) for r in b.sim.requests).lower()
        assert len(b.store.history(b.agent.session_id or "").entries) < 28  # it was compacted on the way
        for words in (
            "nearly full",
            "almost full",
            "% of",
            "tokens left",
            "running out",
            "context window",
            "threshold",
        ):
            assert words not in sent
