"""Window arithmetic: the worked figures, the small windows, and what always holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config.sections import CompressionSettings
from perdure.models.windows import threshold_for, window_budgets


@pytest.mark.spec("C2", "B5", "D2", "C8")
def test_the_worked_figures_of_a_200k_window() -> None:
    budgets = window_budgets(200_000)
    assert budgets.threshold_tokens == 100_000
    assert budgets.tail_tokens == 20_000
    assert budgets.summary_cap_tokens == 10_000
    assert budgets.record_tokens == 12_000
    assert budgets.head_tokens == 10_000
    assert budgets.precompaction_tokens == 170_000
    assert budgets.handoff_cap_tokens is None
    assert not budgets.is_small


@pytest.mark.spec("C2")
def test_caps_stop_growing_on_large_windows() -> None:
    budgets = window_budgets(1_050_000)
    assert (budgets.summary_cap_tokens, budgets.record_tokens) == (12_000, 12_000)
    assert window_budgets(100_000).record_tokens == 8_800


@pytest.mark.spec("B5")
@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [(None, 100_000), (0, 100_000), (64_000, 100_000), (100_000, 100_000), (128_000, 72_000)],
)
def test_output_allowance_caps_the_threshold_and_never_scales_it(max_tokens: int | None, expected: int) -> None:
    assert window_budgets(200_000, max_tokens=max_tokens).threshold_tokens == expected


@pytest.mark.spec("B5", "C9")
@pytest.mark.parametrize("max_tokens", [8_192, 9_000, -5])
def test_an_allowance_that_leaves_no_prompt_reserves_nothing(max_tokens: int) -> None:
    assert window_budgets(8_192, max_tokens=max_tokens).threshold_tokens == 6_144


@pytest.mark.spec("C9")
def test_small_windows_fire_late_and_keep_no_head() -> None:
    budgets = window_budgets(8_000)
    assert budgets.is_small
    assert budgets.threshold_tokens == 6_000
    assert budgets.head_tokens == 0
    assert budgets.handoff_cap_tokens == 1_200
    assert window_budgets(15_999).is_small
    assert not window_budgets(16_000).is_small
    assert window_budgets(8_000, CompressionSettings(threshold=0.9)).threshold_tokens == 7_200


@pytest.mark.spec("C6")
@pytest.mark.parametrize(
    ("provider", "model", "choices", "raised"),
    [
        ("openai-codex", "gpt-5.5", {}, 0.85),
        (" OpenAI-Codex", "GPT-5.5", {}, 0.85),
        ("openai-codex", "gpt-5.5", {"threshold": 0.9}, 0.9),
        ("openai-codex", "gpt-5.5", {"codex_gpt55_threshold": 0.7}, 0.7),
        ("openai-codex", "gpt-5.5", {"codex_gpt55_autoraise": False}, 0.5),
        ("openai-codex", "gpt-5.4", {}, 0.5),
        ("openai", "gpt-5.5", {}, 0.5),
    ],
)
def test_autoraise_touches_one_route_only_and_never_lowers(
    provider: str, model: str, choices: dict[str, float], raised: float
) -> None:
    settings = CompressionSettings(**choices)
    assert threshold_for(settings, provider=provider, model=model) == raised
    budgets = window_budgets(272_000, settings, provider=provider, model=model)
    assert budgets.threshold_tokens == round(272_000 * raised)


@pytest.mark.spec("C1", "C9")
def test_what_counts_as_small_is_a_setting() -> None:
    assert window_budgets(12_000, CompressionSettings(small_window=8_000)).threshold_tokens == 6_000
    assert window_budgets(20_000, CompressionSettings(small_window=24_000)).threshold_tokens == 15_000


@pytest.mark.spec("C9")
@pytest.mark.parametrize("window", [0, -1])
def test_a_window_that_holds_nothing_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match="at least 1 token"):
        window_budgets(window)


@pytest.mark.spec("B5", "C2", "C9")
@given(
    window=st.integers(1, 4_000_000),
    threshold=st.floats(0.01, 1.0),
    target_ratio=st.floats(0.1, 0.8),
    record_ratio=st.floats(0.0, 0.2),
    max_tokens=st.none() | st.integers(-10, 4_000_000),
)
def test_budgets_always_fit_their_window(
    window: int, threshold: float, target_ratio: float, record_ratio: float, max_tokens: int | None
) -> None:
    settings = CompressionSettings(threshold=threshold, target_ratio=target_ratio, record_ratio=record_ratio)
    budgets = window_budgets(window, settings, max_tokens=max_tokens)
    assert 1 <= budgets.threshold_tokens <= window
    assert budgets.threshold_tokens <= max(1, budgets.room_tokens)
    assert 0 <= budgets.tail_tokens <= budgets.threshold_tokens
    assert budgets.summary_cap_tokens <= min(12_000, window)
    assert budgets.record_tokens <= 12_000
    if max_tokens and 0 < max_tokens < window:
        assert budgets.threshold_tokens <= max(1, window - max_tokens)
