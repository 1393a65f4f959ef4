"""Another model, another window: at once, not from the next call on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.agent.embedded import embedded_endpoint
from perdure.app.runtime import ModelInfo
from perdure.context.state import MemoryState
from perdure.models.catalog import Catalog
from perdure.models.windows import LearnedLimits
from perdure.providers.model_probe import EndpointInfo
from perdure.providers.routes import EndpointChain
from perdure.providers.types import Endpoint
from support.agents import bench


@pytest.mark.spec("B4")
def test_the_embedded_models_window_is_no_other_models() -> None:
    known = ModelInfo(Catalog(), LearnedLimits(MemoryState()), info=EndpointInfo(), embedded_window=8_192)
    claude = Endpoint("anthropic", "https://api.anthropic.com", "anthropic_messages", "claude-sonnet-4-5")
    assert asyncio.run(known.window_of(embedded_endpoint("smollm2"))) == 8_192
    assert asyncio.run(known.window_of(claude)) == 200_000


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
