"""How a window is shared out: where compaction fires, what is kept, how long a handoff may be. Pure arithmetic.

Every figure but the gateway's is a setting (`compression.*`); the defaults are those of `CompressionSettings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.config.settings import CompressionSettings
    from perdure.models.windows import WindowSource


# Fixed: where a gateway compacts before the agent sees a message.
HYGIENE_RATIO = 0.85

# The one route whose window is far smaller than the same model's elsewhere, so that half of it would be little.
_RAISED_ROUTE = ("openai-codex", "gpt-5.5")


# Where no output allowance is set, a reply is left at least this share of the window: one in so many.
_LEAST_ANSWER_SHARE = 32
# Banner, headings and addresses of a handoff.
_FRAME_TOKENS = 600
# The shortest handoff on a small window: a request, a state line and an address.
_LEAST_SHORT_TOKENS = 160


@dataclass(frozen=True, slots=True)
class WindowBudgets:
    """Every figure that follows from one window; a change of window makes a new one."""

    window: int
    # Where compaction fires: a prompt of exactly this size does.
    threshold_tokens: int
    # What the kept end of the history may come to.
    tail_tokens: int
    # The kept beginning's share, 0 on small windows.
    head_tokens: int
    # The most a summary may come to, and the record and index that code adds to it.
    summary_cap_tokens: int
    record_tokens: int
    # The most a whole handoff may come to; None where only its parts are bounded.
    handoff_cap_tokens: int | None
    # Where a gateway compacts before the agent sees a message.
    hygiene_tokens: int
    # The largest prompt that still leaves room for the answer.
    room_tokens: int
    # Too small for a head and for empty sections.
    is_small: bool

    @property
    def largest_prompt_tokens(self) -> int:
        """The largest prompt to send: it leaves the output allowance, or a small share where none is set."""
        if self.room_tokens < self.window:
            return self.room_tokens
        return self.window - self.window // _LEAST_ANSWER_SHARE

    @property
    def least_handoff_tokens(self) -> int:
        """What the shortest handoff comes to, however little room there is."""
        return _LEAST_SHORT_TOKENS if self.handoff_cap_tokens is not None else _FRAME_TOKENS

    @property
    def handoff_tokens(self) -> int:
        """What a whole handoff may come to: its cap, or else its parts and their frame."""
        if self.handoff_cap_tokens is None:
            return self.summary_cap_tokens + self.record_tokens + _FRAME_TOKENS
        return max(self.handoff_cap_tokens, _LEAST_SHORT_TOKENS)


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """The window of one model on one route, and every figure that follows from it.

    A session has one at a time; a change of the model, or of what is known about its window, replaces it as a whole.
    """

    model: str
    provider: str
    # Where the figure comes from (`models.windows`).
    source: WindowSource
    # The output allowance that was configured; None where none was.
    max_output_tokens: int | None
    budgets: WindowBudgets

    @property
    def tokens(self) -> int:
        return self.budgets.window

    @property
    def threshold_tokens(self) -> int:
        """Where compaction fires."""
        return self.budgets.threshold_tokens

    @property
    def room_tokens(self) -> int:
        """The prompt's share: the window without the output allowance."""
        return self.budgets.room_tokens


def window_budgets(
    window: int,
    settings: CompressionSettings | None = None,
    *,
    provider: str = "",
    model: str = "",
    max_tokens: int | None = None,
) -> WindowBudgets:
    """The budgets of a window of the *main* model; raises ValueError for a window that holds nothing."""
    if window < 1:
        raise ValueError(f"a window must be at least 1 token, not {window}")
    s = settings or _default_settings()
    is_small = window < s.small_window
    threshold = threshold_for(s, provider=provider, model=model)
    share = max(threshold, s.small_window_threshold) if is_small else threshold
    room = _room(window, max_tokens)
    threshold_tokens = max(1, min(_share(window, share), room))
    return WindowBudgets(
        window=window,
        threshold_tokens=threshold_tokens,
        tail_tokens=_share(threshold_tokens, s.target_ratio),
        head_tokens=0 if is_small else _share(window, s.head_ratio),
        summary_cap_tokens=min(_share(window, s.summary_window_ratio), s.summary_max_tokens),
        record_tokens=min(_share(window, s.record_ratio), s.record_max_tokens),
        handoff_cap_tokens=_share(window, s.small_window_handoff_ratio) if is_small else None,
        hygiene_tokens=_share(window, HYGIENE_RATIO),
        room_tokens=room,
        is_small=is_small,
    )


def _default_settings() -> CompressionSettings:
    # Imported late: the settings model takes longer to build than everything else in this package.
    from perdure.config.settings import CompressionSettings

    return CompressionSettings()


def threshold_for(settings: CompressionSettings, *, provider: str, model: str) -> float:
    """The threshold on a route: raised, never lowered, on the one whose window is smaller than elsewhere."""
    is_the_route = (provider.strip().lower(), model.strip().lower()) == _RAISED_ROUTE
    if settings.codex_gpt55_autoraise and is_the_route:
        return max(settings.threshold, settings.codex_gpt55_threshold)
    return settings.threshold


def _room(window: int, max_tokens: int | None) -> int:
    """What the output allowance leaves; one as large as the window leaves nothing, so it cannot be meant."""
    if not max_tokens or max_tokens < 0 or max_tokens >= window:
        return window
    return window - max_tokens


def _share(whole: int, ratio: float) -> int:
    # 0.29 × 100 is 28.999… in binary: the tiny addend keeps whole shares whole.
    return int(whole * ratio + 1e-6)
