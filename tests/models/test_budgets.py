"""Window arithmetic: the worked figures, the small windows, and what always holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.budgets import raised_threshold, window_budgets


@pytest.mark.spec("C2", "B5", "D2", "C8")
def test_the_worked_figures_of_a_200k_window() -> None:
    budgets = window_budgets(200_000)
    assert budgets.threshold_tokens == 100_000
    assert budgets.tail_tokens == 20_000
    assert budgets.summary_cap_tokens == 10_000
    assert budgets.facts_tokens == 8_000
    assert budgets.head_tokens == 10_000
    assert budgets.hygiene_tokens == 170_000
    assert budgets.handoff_cap_tokens is None
    assert not budgets.is_small


@pytest.mark.spec("C2")
def test_caps_stop_growing_on_large_windows() -> None:
    budgets = window_budgets(1_050_000)
    assert (budgets.summary_cap_tokens, budgets.facts_tokens) == (12_000, 8_000)
    assert window_budgets(100_000).facts_tokens == 6_000


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
    assert window_budgets(8_000, threshold=0.9).threshold_tokens == 7_200


@pytest.mark.spec("C6")
def test_autoraise_touches_one_route_only_and_never_lowers() -> None:
    assert raised_threshold(0.5, provider="openai-codex", model="gpt-5.5") == 0.85
    assert raised_threshold(0.9, provider="openai-codex", model="gpt-5.5") == 0.9
    assert raised_threshold(0.5, provider="openai-codex", model="gpt-5.5", is_enabled=False) == 0.5
    assert raised_threshold(0.5, provider="openai-codex", model="gpt-5.4") == 0.5
    assert raised_threshold(0.5, provider="openai", model="gpt-5.5") == 0.5
    threshold = raised_threshold(0.5, provider="openai-codex", model="gpt-5.5")
    assert window_budgets(272_000, threshold=threshold).threshold_tokens == 231_200


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
    facts_ratio=st.floats(0.0, 0.2),
    max_tokens=st.none() | st.integers(-10, 4_000_000),
)
def test_budgets_always_fit_their_window(
    window: int, threshold: float, target_ratio: float, facts_ratio: float, max_tokens: int | None
) -> None:
    budgets = window_budgets(
        window, threshold=threshold, target_ratio=target_ratio, facts_ratio=facts_ratio, max_tokens=max_tokens
    )
    assert 1 <= budgets.threshold_tokens <= window
    assert budgets.threshold_tokens <= max(1, budgets.room_tokens)
    assert 0 <= budgets.tail_tokens <= budgets.threshold_tokens
    assert budgets.summary_cap_tokens <= min(12_000, window)
    assert budgets.facts_tokens <= 8_000
    if max_tokens and 0 < max_tokens < window:
        assert budgets.threshold_tokens <= max(1, window - max_tokens)
