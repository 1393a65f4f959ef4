"""A real model with a window of 1,024 tokens: forty turns, compacted on the way, for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.app import Agent
from perdure.core import rules
from perdure.core.events import CompactionFinished, Event
from perdure.providers.local import has_runtime, packaged_weights

TURNS = 40
SETTINGS = {"model": {"provider": "local", "context_length": 1_024, "max_tokens": 6}}


@pytest.mark.spec("C3", "C9", "I2", "I4")
@pytest.mark.skipif(not (has_runtime() and packaged_weights()), reason="the embedded model is not installed")
@pytest.mark.timeout(900)  # a real model on whatever cores are left
def test_forty_turns_on_a_tiny_window_carry_on(tmp_path: Path) -> None:
    agent = Agent(settings=SETTINGS, home=tmp_path, source="test")
    events: list[Event] = []
    stop = agent.events.listen(events.append)
    first = None
    for i in range(TURNS):
        result = agent.run_conversation(f"Turn {i}: my lucky number is {i * 37}. Please remember it well.")
        first = first or result.session_id
        assert result.outcome == "completed", (i, result.error)
        assert result.usage.reported
    stop()
    done = [e for e in events if isinstance(e, CompactionFinished) and e.outcome == "digest"]
    assert len(done) >= 4
    store = agent.deps.store
    assert store.get_compression_tip(first or "") == agent.session_id
    said = [e.message for e in store.log.originals(agent.session_id or "")]
    assert [m.text.split(":")[0] for m in said if m.is_real_user] == [f"Turn {i}" for i in range(TURNS)]
    assert rules.violations(said) == []
    totals = store.ledger.totals(agent.session_id or "")
    assert totals.unreported_calls == 0
    assert totals.usage.cache_read_tokens > totals.usage.input_tokens / 2
