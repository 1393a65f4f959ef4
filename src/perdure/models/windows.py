"""Context windows: how large a model's is, and how it is shared out.

A window comes from the config, a learned limit, the catalogue, the endpoint or a default. A limit that a provider
stated in an error is kept for that provider, model and endpoint, and outlives the process; so is the most output it
accepted after refusing more, and what an endpoint reports, for the time that it cannot be queried. Without a stated
window, the window steps down one rung of a ladder, in memory only.

`window_budgets` derives where compaction fires, what is kept and how long a handoff may be: pure arithmetic. Every
figure but the gateway's is a setting (`compression.*`); the defaults are those of `CompressionSettings`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from perdure.core.messages import canonical_json
from perdure.core.ports import KeyValue
from perdure.models.catalog import Catalog

if TYPE_CHECKING:
    from perdure.config.sections import CompressionSettings


# "stated" by the provider in an error of this conversation; "guessed": one rung down the ladder after one.
WindowSource = Literal["config", "learned", "catalogue", "endpoint", "default", "stated", "guessed"]

# Large enough for today's hosted models; a smaller window is learned from the first error.
DEFAULT_WINDOW = 128_000
LADDER = (2_000_000, 1_000_000, 512_000, 256_000, 200_000, 128_000, 64_000, 32_000, 16_000, 8_000)
# Nothing outside is a window: a 0 means "unknown", a huge figure a mistake.
_SANE = range(256, 100_000_001)
# A figure read from an error's wording must be larger: below this it counts images, messages or seconds.
_STATED = range(1_000, 100_000_001)
_OUTPUT = range(16, 10_000_001)


@dataclass(frozen=True, slots=True)
class ModelKey:
    """Identifies a model at a provider and address; another address may have another window."""

    provider: str
    model: str
    base_url: str = ""

    @property
    def key(self) -> str:
        return f"limit:{self._location}"

    @property
    def reported_key(self) -> str:
        return f"window:{self._location}"

    @property
    def output_key(self) -> str:
        return f"output:{self._location}"

    @property
    def _location(self) -> str:
        return canonical_json((self.provider.lower(), self.model.lower(), self.base_url.rstrip("/").lower()))


@dataclass(frozen=True, slots=True)
class Window:
    """A context window in tokens, and the source of the figure."""

    tokens: int
    source: WindowSource


Probe = Callable[[ModelKey], Awaitable[int | None]]


class LearnedLimits:
    """Limits that providers stated in errors, by model and address, persisted in a key-value store."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def get(self, route: ModelKey) -> int | None:
        """Return the window that the provider stated; None if it stated none, or if the stored value is implausible."""
        return plausible_window(self._state.get(route.key))

    def learn(self, route: ModelKey, tokens: int) -> bool:
        """Store a window that the provider stated; return False for a number that cannot be one."""
        if plausible_window(tokens) is None:
            return False
        self._state.set(route.key, tokens)
        return True

    def reported_window(self, route: ModelKey) -> int | None:
        """Return the window that the endpoint reported last, for the time that it cannot be queried."""
        return _sane(self._state.get(route.reported_key))

    def learn_reported(self, route: ModelKey, tokens: int) -> None:
        if self.reported_window(route) != tokens:
            self._state.set(route.reported_key, tokens)

    def output_cap(self, route: ModelKey) -> int | None:
        """Return the most output tokens the endpoint accepted after refusing more; None if it never did."""
        return _within(_OUTPUT, self._state.get(route.output_key))

    def learn_output_cap(self, route: ModelKey, tokens: int) -> bool:
        """Store the most output tokens that an endpoint accepted; return False for an implausible number."""
        if _within(_OUTPUT, tokens) is None:
            return False
        if self.output_cap(route) != tokens:
            self._state.set(route.output_key, tokens)
        return True

    def forget(self, route: ModelKey) -> None:
        self._state.set(route.key, None)
        self._state.set(route.reported_key, None)
        self._state.set(route.output_key, None)


class Windows:
    """Resolves the context window of a model: configured, learned, from the catalogue, the endpoint, or a default."""

    def __init__(self, catalog: Catalog, learned: LearnedLimits, *, configured: int | None = None) -> None:
        self._catalog = catalog
        self._learned = learned
        self._configured = configured

    def known_window(self, route: ModelKey) -> Window | None:
        """Return the window known without querying the endpoint; None if only that or the default is left."""
        configured = self._configured or self._catalog.override_window(route.provider, route.model)
        if configured:
            return Window(configured, "config")
        if (learned := self._learned.get(route)) is not None:
            return Window(learned, "learned")
        listed = self._catalog.window(route.provider or None, route.model, base_url=route.base_url or None)
        return Window(listed, "catalogue") if _sane(listed) is not None and listed else None

    async def resolve(self, route: ModelKey, probe: Probe | None = None) -> Window:
        """Return the window; `probe` queries the endpoint and is called only if no other source has it."""
        if (resolved := self.known_window(route)) is not None:
            return resolved
        if probe is not None and (probed := _sane(await probe(route))) is not None:
            return Window(probed, "endpoint")
        if (reported := self._learned.reported_window(route)) is not None:  # the server is down: it said so before
            return Window(reported, "endpoint")
        return Window(DEFAULT_WINDOW, "default")


def step_down(window: int) -> int:
    """Return the next smaller common window size, or the same one where there is none."""
    return next((rung for rung in LADDER if rung < window), window)


def plausible_window(tokens: object) -> int | None:
    """Return a number from an error message as a window; None if it must count something else, such as seconds."""
    return _within(_STATED, tokens)


def _sane(tokens: object) -> int | None:
    return _within(_SANE, tokens)


def _within(bounds: range, tokens: object) -> int | None:
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens in bounds else None


# Share of the window at which a gateway compacts before the agent sees the next message; not configurable.
PRECOMPACTION_RATIO = 0.85

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
    """Token budgets derived from one window: threshold, kept head and tail, summary, handoff, room for the reply."""

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
    precompaction_tokens: int
    # The largest prompt that still leaves room for the answer.
    room_tokens: int
    # Too small for a head and for empty sections.
    is_small: bool

    @property
    def largest_prompt_tokens(self) -> int:
        """The largest prompt to send; it leaves the output allowance, or a small share of the window if none is set."""
        if self.room_tokens < self.window:
            return self.room_tokens
        return self.window - self.window // _LEAST_ANSWER_SHARE

    @property
    def least_handoff_tokens(self) -> int:
        """The size that even the shortest handoff may have, however little room there is."""
        return _LEAST_SHORT_TOKENS if self.handoff_cap_tokens is not None else _FRAME_TOKENS

    @property
    def handoff_tokens(self) -> int:
        """The maximum size of a handoff: its cap on small windows, else the sum of its parts."""
        if self.handoff_cap_tokens is None:
            return self.summary_cap_tokens + self.record_tokens + _FRAME_TOKENS
        return max(self.handoff_cap_tokens, _LEAST_SHORT_TOKENS)


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """The resolved window of one model at one endpoint, with the budgets derived from it.

    A session has one at a time; it is replaced as a whole when the model or the known window changes.
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
        """The prompt size at which compaction starts."""
        return self.budgets.threshold_tokens

    @property
    def room_tokens(self) -> int:
        """The room for the prompt: the window minus the output allowance."""
        return self.budgets.room_tokens


def window_budgets(
    window: int,
    settings: CompressionSettings | None = None,
    *,
    provider: str = "",
    model: str = "",
    max_tokens: int | None = None,
) -> WindowBudgets:
    """Derive the budgets of the main model's window by the settings. Raises ValueError for a window below 1."""
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
        precompaction_tokens=_share(window, PRECOMPACTION_RATIO),
        room_tokens=room,
        is_small=is_small,
    )


def _default_settings() -> CompressionSettings:
    # Imported late: the settings model takes longer to build than everything else in this package.
    from perdure.config.sections import CompressionSettings

    return CompressionSettings()


def threshold_for(settings: CompressionSettings, *, provider: str, model: str) -> float:
    """Return the compaction threshold as a share of the window, with the higher one of gpt-5.5 on Codex."""
    is_the_route = (provider.strip().lower(), model.strip().lower()) == _RAISED_ROUTE
    if settings.codex_gpt55_autoraise and is_the_route:
        return max(settings.threshold, settings.codex_gpt55_threshold)
    return settings.threshold


def _room(window: int, max_tokens: int | None) -> int:
    """Return the window minus the output allowance; an allowance as large as the window is ignored."""
    if not max_tokens or max_tokens < 0 or max_tokens >= window:
        return window
    return window - max_tokens


def _share(whole: int, ratio: float) -> int:
    # 0.29 × 100 is 28.999… in binary: the tiny addend keeps whole shares whole.
    return int(whole * ratio + 1e-6)
