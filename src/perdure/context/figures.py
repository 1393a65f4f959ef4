"""The budgets of one window under the user's settings, as `models.budgets` computes them."""

from __future__ import annotations

from perdure.config.settings import CompressionSettings
from perdure.models.budgets import WindowBudgets, threshold_for, window_budgets

__all__ = ["figures", "threshold_for"]


def figures(
    settings: CompressionSettings, window: int, *, threshold: float, max_tokens: int | None = None
) -> WindowBudgets:
    """Every figure that follows from a window and the settings."""
    return window_budgets(window, settings.model_copy(update={"threshold": threshold}), max_tokens=max_tokens)
