"""Resolve a model's window: config, learned limit, catalogue, endpoint, default.

A limit that a provider stated in an error is kept for that provider, model and endpoint, and outlives the process; so
is the most output it accepted after refusing more. Without a stated window, the window steps down one rung of a
ladder, in memory only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from perdure.core.messages import canonical_json
from perdure.core.ports import KeyValue
from perdure.models.catalog import Catalog

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
    """What a window belongs to: the same model may have another one elsewhere."""

    provider: str
    model: str
    base_url: str = ""

    @property
    def key(self) -> str:
        return f"limit:{self._location}"

    @property
    def output_key(self) -> str:
        return f"output:{self._location}"

    @property
    def _location(self) -> str:
        return canonical_json((self.provider.lower(), self.model.lower(), self.base_url.rstrip("/").lower()))


@dataclass(frozen=True, slots=True)
class Window:
    """A window and where it came from."""

    tokens: int
    source: WindowSource


Probe = Callable[[ModelKey], Awaitable[int | None]]


class LearnedLimits:
    """The limits providers stated, behind any key-value store that survives a restart."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def get(self, route: ModelKey) -> int | None:
        """The stated limit; None where there is none, or where what is stored is no plausible window."""
        return plausible_window(self._state.get(route.key))

    def learn(self, route: ModelKey, tokens: int) -> bool:
        """Keeps a stated limit; False for a figure that cannot be a window."""
        if plausible_window(tokens) is None:
            return False
        self._state.set(route.key, tokens)
        return True

    def output_cap(self, route: ModelKey) -> int | None:
        """The most output tokens that were accepted after a larger allowance was refused."""
        return _within(_OUTPUT, self._state.get(route.output_key))

    def learn_output_cap(self, route: ModelKey, tokens: int) -> bool:
        """Keeps an output cap; False for a figure that cannot be one."""
        if _within(_OUTPUT, tokens) is None:
            return False
        if self.output_cap(route) != tokens:
            self._state.set(route.output_key, tokens)
        return True

    def forget(self, route: ModelKey) -> None:
        self._state.set(route.key, None)
        self._state.set(route.output_key, None)


class Windows:
    """Resolves windows in order of authority. Construction makes no request."""

    def __init__(self, catalog: Catalog, learned: LearnedLimits, *, configured: int | None = None) -> None:
        self._catalog = catalog
        self._learned = learned
        self._configured = configured

    def known_window(self, route: ModelKey) -> Window | None:
        """The window known without querying the endpoint; None if only that or the default is left."""
        configured = self._configured or self._catalog.override_window(route.provider, route.model)
        if configured:
            return Window(configured, "config")
        if (learned := self._learned.get(route)) is not None:
            return Window(learned, "learned")
        listed = self._catalog.window(route.provider or None, route.model, base_url=route.base_url or None)
        return Window(listed, "catalogue") if _sane(listed) is not None and listed else None

    async def resolve(self, route: ModelKey, probe: Probe | None = None) -> Window:
        """The window; `probe` asks the provider's own endpoint and is called only where nothing else knows."""
        if (resolved := self.known_window(route)) is not None:
            return resolved
        if probe is not None and (probed := _sane(await probe(route))) is not None:
            return Window(probed, "endpoint")
        return Window(DEFAULT_WINDOW, "default")


def step_down(window: int) -> int:
    """One rung down the ladder; at its foot the window stays, and the attempts of G4 come to their end."""
    return next((rung for rung in LADDER if rung < window), window)


def plausible_window(tokens: object) -> int | None:
    """A window read from an error, now or earlier; None for a figure that can only count something else."""
    return _within(_STATED, tokens)


def _sane(tokens: object) -> int | None:
    return _within(_SANE, tokens)


def _within(bounds: range, tokens: object) -> int | None:
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens in bounds else None
