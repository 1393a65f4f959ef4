"""How large a model's window is, and who said so (B4): config, a learned limit, the catalogue, its endpoint, a default.

A limit that a provider stated in an error is kept for that provider, model and endpoint, and outlives the process.
Without a stated one, the window steps down one rung of a ladder, in memory only (G3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from perdure.core.messages import canonical_json
from perdure.core.ports import KeyValue
from perdure.models.catalog import Catalog

WindowSource = Literal["config", "learned", "catalogue", "endpoint", "default"]

# Large enough for today's hosted models; a smaller one says so in its first error, and that is then known.
DEFAULT_WINDOW = 128_000
LADDER = (2_000_000, 1_000_000, 512_000, 256_000, 200_000, 128_000, 64_000, 32_000, 16_000, 8_000)
# Nothing outside is a window: a 0 means "unknown", a huge figure a mistake.
_SANE = range(256, 100_000_001)


@dataclass(frozen=True, slots=True)
class Route:
    """What a window belongs to: the same model may have another one elsewhere."""

    provider: str
    model: str
    base_url: str = ""

    @property
    def key(self) -> str:
        parts = (self.provider.lower(), self.model.lower(), self.base_url.rstrip("/").lower())
        return f"limit:{canonical_json(parts)}"


@dataclass(frozen=True, slots=True)
class Window:
    """A window and where it came from."""

    tokens: int
    source: WindowSource


Probe = Callable[[Route], Awaitable[int | None]]


class LearnedLimits:
    """The limits providers stated, behind any key-value store that survives a restart."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def get(self, route: Route) -> int | None:
        """The stated limit; None where there is none, or where what is stored is no window."""
        return _sane(self._state.get(route.key))

    def learn(self, route: Route, tokens: int) -> bool:
        """Keeps a stated limit; False for a figure that cannot be a window."""
        if _sane(tokens) is None:
            return False
        self._state.set(route.key, tokens)
        return True

    def forget(self, route: Route) -> None:
        self._state.set(route.key, None)


class Windows:
    """Resolves windows in the order of B4. Construction asks nobody."""

    def __init__(self, catalog: Catalog, learned: LearnedLimits, *, configured: int | None = None) -> None:
        self._catalog = catalog
        self._learned = learned
        self._configured = configured

    def known(self, route: Route) -> Window | None:
        """What can be told without asking the endpoint; None where only that or the default is left."""
        configured = self._configured or self._catalog.override_window(route.provider, route.model)
        if configured:
            return Window(configured, "config")
        if (learned := self._learned.get(route)) is not None:
            return Window(learned, "learned")
        listed = self._catalog.window(route.provider or None, route.model, base_url=route.base_url or None)
        return Window(listed, "catalogue") if _sane(listed) is not None and listed else None

    async def resolve(self, route: Route, probe: Probe | None = None) -> Window:
        """The window; `probe` asks the provider's own endpoint and is called only where nothing else knows."""
        if (known := self.known(route)) is not None:
            return known
        if probe is not None and (told := _sane(await probe(route))) is not None:
            return Window(told, "endpoint")
        return Window(DEFAULT_WINDOW, "default")


def step_down(window: int) -> int:
    """One rung down the ladder; at its foot the window stays, and the attempts of G4 come to their end."""
    return next((rung for rung in LADDER if rung < window), window)


def _sane(tokens: object) -> int | None:
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens in _SANE else None
