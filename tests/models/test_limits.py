"""Where a window comes from, in order, and what a provider's own words teach."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config.settings import ModelOverride
from perdure.models.catalog import Catalog
from perdure.models.windows import (
    DEFAULT_WINDOW,
    LADDER,
    LearnedLimits,
    ModelKey,
    Window,
    Windows,
    plausible_window,
    step_down,
)

CODEX = ModelKey("openai-codex", "gpt-5.5")
HOUSE = ModelKey("custom", "house-model", "http://127.0.0.1:9000/v1")


class State(dict[str, Any]):
    """A key-value store in memory."""

    def set(self, key: str, value: Any) -> None:
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value


class Endpoint:
    """A provider's model endpoint that counts how often it is asked."""

    def __init__(self, answer: int | None) -> None:
        self.answer = answer
        self.asked = 0

    async def __call__(self, route: ModelKey) -> int | None:
        self.asked += 1
        return self.answer


def windows(state: State | None = None, *, configured: int | None = None, catalog: Catalog | None = None) -> Windows:
    return Windows(catalog or Catalog(), LearnedLimits(state if state is not None else State()), configured=configured)


@pytest.mark.spec("B4")
def test_each_source_gives_way_to_the_one_before_it() -> None:
    state, endpoint = State(), Endpoint(50_000)
    assert asyncio.run(windows().resolve(HOUSE)) == Window(DEFAULT_WINDOW, "default")
    assert asyncio.run(windows().resolve(HOUSE, endpoint)) == Window(50_000, "endpoint")
    assert asyncio.run(windows(state).resolve(CODEX, endpoint)) == Window(272_000, "catalogue")
    LearnedLimits(state).learn(CODEX, 250_000)
    assert asyncio.run(windows(state).resolve(CODEX, endpoint)) == Window(250_000, "learned")
    assert asyncio.run(windows(state, configured=99_000).resolve(CODEX, endpoint)) == Window(99_000, "config")
    said = Catalog([ModelOverride(model="gpt-5.5", context_length=98_000)])
    assert asyncio.run(windows(state, catalog=said).resolve(CODEX, endpoint)) == Window(98_000, "config")
    assert endpoint.asked == 1


@pytest.mark.spec("B4")
@pytest.mark.parametrize("answer", [None, 0, -1, 17, 10**12, True])
def test_an_endpoint_that_tells_nonsense_is_not_believed(answer: int | None) -> None:
    assert asyncio.run(windows().resolve(HOUSE, Endpoint(answer))).source == "default"


@pytest.mark.spec("B4", "G3")
def test_a_learned_limit_belongs_to_provider_model_and_endpoint_and_survives() -> None:
    state = State()
    assert LearnedLimits(state).learn(HOUSE, 40_960)
    reopened = LearnedLimits(state)
    assert reopened.get(HOUSE) == 40_960
    assert reopened.get(ModelKey("Custom", "House-Model", "http://127.0.0.1:9000/v1/")) == 40_960
    assert reopened.get(ModelKey("custom", "house-model", "http://127.0.0.1:9001/v1")) is None
    assert reopened.get(ModelKey("custom", "other", HOUSE.base_url)) is None
    reopened.forget(HOUSE)
    assert reopened.get(HOUSE) is None


@pytest.mark.parametrize("stored", ["many", 3.5, {"window": 1}, [], True, 12, None])
def test_a_damaged_record_is_as_good_as_none(stored: object) -> None:
    state = State()
    state[HOUSE.key] = stored
    assert LearnedLimits(state).get(HOUSE) is None


@pytest.mark.spec("G3")
@pytest.mark.parametrize("tokens", [0, -5, 255, 10**9])
def test_a_figure_that_is_no_window_is_not_learned(tokens: int) -> None:
    state = State()
    assert not LearnedLimits(state).learn(HOUSE, tokens)
    assert state == {}


@pytest.mark.spec("G3")
def test_the_ladder_goes_down_one_rung_at_a_time_and_ends() -> None:
    steps = [10_000_000]
    while step_down(steps[-1]) < steps[-1]:
        steps.append(step_down(steps[-1]))
    assert tuple(steps[1:]) == LADDER
    assert step_down(131_072) == 128_000
    assert step_down(272_000) == 256_000
    assert step_down(8_000) == 8_000
    assert step_down(4_096) == 4_096


@given(st.text(max_size=9), st.text(max_size=9), st.text(max_size=9), st.text(max_size=9), st.text(max_size=9))
def test_two_routes_share_a_key_only_if_they_are_the_same(a: str, b: str, c: str, d: str, e: str) -> None:
    one, other = ModelKey(a, b, c), ModelKey(d, e, c)
    same = (a.lower(), b.lower()) == (d.lower(), e.lower())
    assert (one.key == other.key) is same


@pytest.mark.spec("B4", "G3")
@pytest.mark.parametrize("tokens", [100, 600, 999])
def test_a_figure_too_small_for_any_window_is_ignored_also_where_it_was_learned_earlier(tokens: int) -> None:
    state = State({HOUSE.key: tokens})
    assert LearnedLimits(state).get(HOUSE) is None
    assert asyncio.run(windows(state).resolve(HOUSE)) == Window(DEFAULT_WINDOW, "default")
    assert plausible_window(tokens) is None


@pytest.mark.spec("G2")
def test_an_output_cap_is_kept_by_model_and_endpoint_and_outlives_the_process() -> None:
    state = State()
    assert LearnedLimits(state).learn_output_cap(HOUSE, 8_192)
    reopened = LearnedLimits(state)
    assert reopened.output_cap(HOUSE) == 8_192
    assert reopened.output_cap(CODEX) is None
    assert reopened.get(HOUSE) is None
    assert not reopened.learn_output_cap(HOUSE, 0)
    reopened.forget(HOUSE)
    assert reopened.output_cap(HOUSE) is None
