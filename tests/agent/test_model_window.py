"""Another model, another window: at once, not from the next call on."""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from perdure.app.runtime import ModelInfo, embedded_endpoint
from perdure.config.settings import Settings
from perdure.context.compressor import ContextCompressor
from perdure.context.compressor_state import MemoryState
from perdure.models.catalog import Catalog
from perdure.models.windows import LearnedLimits
from perdure.providers.model_probe import EndpointInfo
from perdure.providers.routes import EndpointChain
from perdure.providers.types import Endpoint
from perdure.testing.simulator import Fail, Simulator
from support.agents import bench


@pytest.mark.spec("B4")
def test_the_embedded_models_window_is_no_other_models() -> None:
    known = ModelInfo(Catalog(), LearnedLimits(MemoryState()), info=EndpointInfo(), embedded_window=8_192)
    claude = Endpoint("anthropic", "https://api.anthropic.com", "anthropic_messages", "claude-sonnet-4-5")
    assert asyncio.run(known.window(embedded_endpoint("smollm2"))).tokens == 8_192
    assert asyncio.run(known.window(claude)).tokens == 200_000


@pytest.mark.spec("B4")
def test_a_server_that_is_down_has_the_window_that_it_reported_last() -> None:
    state = MemoryState()

    def window(base_url: str, model: str = "m-1") -> tuple[int, str]:
        known = ModelInfo(Catalog(), LearnedLimits(state), info=EndpointInfo())
        found = asyncio.run(known.window(Endpoint("custom", base_url, "chat_completions", model)))
        return found.tokens, found.source

    with Simulator(window=12_000, models=("m-1",)) as sim:
        assert window(sim.base_url) == (12_000, "endpoint")
        sim.change(window=16_000)
        assert window(sim.base_url) == (16_000, "endpoint"), "the newest report counts"
    assert window(sim.base_url) == (16_000, "endpoint")
    assert window(sim.base_url, "m-2") == (128_000, "default")


@pytest.mark.spec("B4", "B5", "C3")
def test_one_frozen_window_is_read_by_all_and_replaced_as_a_whole(tmp_path: Path) -> None:
    too_long = {"error": {"message": "maximum context length is 16000 tokens", "code": "context_length_exceeded"}}
    settings = Settings.model_validate({"model": {"max_tokens": 1_000}})
    engine = ContextCompressor(context_length=1)
    script = [Fail(status=400, body=too_long), "Yes."]
    with bench(tmp_path, *script, window=32_000, settings=settings, engine=lambda: engine) as b:
        live = b.agent.open().live
        b.agent.measure()
        before = live.window
        assert before is not None
        assert (before.model, before.provider, before.source) == ("m-1", "custom", "config")
        assert (before.tokens, before.threshold_tokens, before.room_tokens) == (32_000, 16_000, 31_000)
        assert before.max_output_tokens == 1_000
        with pytest.raises(FrozenInstanceError):
            before.source = "learned"  # type: ignore[misc]
        b.agent.run_conversation("Hello?")
        b.agent.chat("Hello again?")
        after = live.window
        assert after is not None
        assert (after.tokens, after.source) == (16_000, "stated")
        assert before.tokens == 32_000
        assert engine.budgets == after.budgets
        assert (b.agent.gauge.window, b.agent.gauge.threshold) == (after.tokens, after.threshold_tokens)
        assert b.store.ledger.calls(live.id)[-1].window_tokens == 16_000


@pytest.mark.spec("B4", "C3")
def test_the_gauge_never_shows_the_previous_models_window(tmp_path: Path) -> None:
    with bench(tmp_path, "Yes.", window=32_000) as b:
        b.models.windows["m-2"] = 64_000
        b.agent.run_conversation("Hello?")
        assert b.agent.gauge.window == 32_000
        b.agent.switch_model(EndpointChain((replace(b.agent.endpoint, model="m-2"),)))
        assert b.agent.gauge.window is None
        assert b.agent.measure().window == 64_000
        b.agent.switch_model(EndpointChain((replace(b.agent.endpoint, model="m-1"),)))
        assert (b.agent.measure().window, b.agent.gauge.threshold) == (32_000, 16_000)
