"""How a window is shared out: where compaction fires, what is kept, how long a handoff may be. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_THRESHOLD = 0.50
DEFAULT_TARGET_RATIO = 0.20
DEFAULT_FACTS_RATIO = 0.06

SUMMARY_RATIO = 0.05
SUMMARY_MAX_TOKENS = 12_000
FACTS_MAX_TOKENS = 8_000
HEAD_RATIO = 0.05
HYGIENE_RATIO = 0.85

SMALL_WINDOW_TOKENS = 16_000
SMALL_WINDOW_THRESHOLD = 0.75
SMALL_WINDOW_HANDOFF_RATIO = 0.15

# The one route whose window is far smaller than the same model's elsewhere, so that half of it would be little.
_RAISED_ROUTE = ("openai-codex", "gpt-5.5")
_RAISED_THRESHOLD = 0.85


@dataclass(frozen=True, slots=True)
class WindowBudgets:
    """Every figure that follows from one window; a change of window makes a new one."""

    window: int
    # Where compaction fires: a prompt of exactly this size does.
    threshold_tokens: int
    # What the kept end of the history may come to (D2).
    tail_tokens: int
    # The kept beginning's share, 0 on small windows (D2, C9).
    head_tokens: int
    # The most a summary may come to, and the facts that code adds to it (C2).
    summary_cap_tokens: int
    facts_tokens: int
    # The most a whole handoff may come to; None where only its parts are bounded (C9).
    handoff_cap_tokens: int | None
    # Where a gateway compacts before the agent sees a message (C8).
    hygiene_tokens: int
    # The largest prompt that still leaves room for the answer (B5, I3).
    room_tokens: int

    @property
    def is_small(self) -> bool:
        """Too small for a head and for empty sections (C9)."""
        return self.window < SMALL_WINDOW_TOKENS


def window_budgets(
    window: int,
    *,
    threshold: float = DEFAULT_THRESHOLD,
    target_ratio: float = DEFAULT_TARGET_RATIO,
    facts_ratio: float = DEFAULT_FACTS_RATIO,
    max_tokens: int | None = None,
) -> WindowBudgets:
    """The budgets of a window of the *main* model; raises ValueError for a window that holds nothing."""
    if window < 1:
        raise ValueError(f"a window must be at least 1 token, not {window}")
    is_small = window < SMALL_WINDOW_TOKENS
    room = _room(window, max_tokens)
    share = max(threshold, SMALL_WINDOW_THRESHOLD) if is_small else threshold
    threshold_tokens = max(1, min(_share(window, share), room))
    return WindowBudgets(
        window=window,
        threshold_tokens=threshold_tokens,
        tail_tokens=_share(threshold_tokens, target_ratio),
        head_tokens=0 if is_small else _share(window, HEAD_RATIO),
        summary_cap_tokens=min(_share(window, SUMMARY_RATIO), SUMMARY_MAX_TOKENS),
        facts_tokens=min(_share(window, facts_ratio), FACTS_MAX_TOKENS),
        handoff_cap_tokens=_share(window, SMALL_WINDOW_HANDOFF_RATIO) if is_small else None,
        hygiene_tokens=_share(window, HYGIENE_RATIO),
        room_tokens=room,
    )


def raised_threshold(threshold: float, *, provider: str, model: str, is_enabled: bool = True) -> float:
    """The threshold for a route: raised, never lowered, on the one route that needs it (C6)."""
    is_the_route = (provider.strip().lower(), model.strip().lower()) == _RAISED_ROUTE
    return max(threshold, _RAISED_THRESHOLD) if is_enabled and is_the_route else threshold


def _room(window: int, max_tokens: int | None) -> int:
    """What the output allowance leaves; one as large as the window leaves nothing, so it cannot be meant."""
    if not max_tokens or max_tokens < 0 or max_tokens >= window:
        return window
    return window - max_tokens


def _share(whole: int, ratio: float) -> int:
    # 0.29 × 100 is 28.999… in binary: the tiny addend keeps whole shares whole.
    return int(whole * ratio + 1e-6)
