"""The budgets of one window under the user's settings: the shared arithmetic, every figure settable (C1, C2)."""

from __future__ import annotations

from dataclasses import replace

from perdure.config.settings import CompressionSettings
from perdure.models.budgets import WindowBudgets, window_budgets


def threshold_for(settings: CompressionSettings, *, provider: str, model: str) -> float:
    """The threshold on a route: raised, never lowered, on the one whose window is smaller than elsewhere (C6)."""
    route = (provider.strip().lower(), model.strip().lower())
    if settings.codex_gpt55_autoraise and route == ("openai-codex", "gpt-5.5"):
        return max(settings.threshold, settings.codex_gpt55_threshold)
    return settings.threshold


def figures(
    settings: CompressionSettings, window: int, *, threshold: float, max_tokens: int | None = None
) -> WindowBudgets:
    """Every figure that follows from a window and the settings."""
    is_small = window < settings.small_window
    if is_small:
        threshold = max(threshold, settings.small_window_threshold)
    shared = window_budgets(
        window,
        threshold=threshold,
        target_ratio=settings.target_ratio,
        facts_ratio=settings.facts_ratio,
        max_tokens=max_tokens,
    )
    return replace(
        shared,
        head_tokens=0 if is_small else int(window * settings.head_ratio),
        summary_cap_tokens=min(int(window * settings.summary_window_ratio + 1e-6), settings.summary_max_tokens),
        facts_tokens=min(int(window * settings.facts_ratio + 1e-6), settings.facts_max_tokens),
        handoff_cap_tokens=int(window * settings.small_window_handoff_ratio) if is_small else None,
    )
