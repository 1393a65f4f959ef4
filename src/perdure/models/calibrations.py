"""What real usage taught about each model, kept so that the next conversation begins with it (B2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.core.ports import KeyValue

# A service that truncates silently, or that counts what we do not see, must not bend every later estimate.
RATIO_RANGE = (0.5, 2.0)
IMAGE_RANGE = (1.0, 20_000.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far off the estimate is for one model (real over estimated), and what an image costs there."""

    ratio: float = 1.0
    image_tokens: float | None = None


class Calibrations:
    """Calibrations by provider and model, behind any key-value store that survives a restart."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def get(self, provider: str, model: str) -> Calibration:
        """What was learned before; the neutral one where nothing was, or where the record is damaged."""
        stored = self._state.get(_key(provider, model))
        if not isinstance(stored, Mapping):
            return Calibration()
        ratio = _within(stored.get("ratio"), RATIO_RANGE)
        return Calibration(1.0 if ratio is None else ratio, _within(stored.get("image_tokens"), IMAGE_RANGE))

    def keep(self, provider: str, model: str, calibration: Calibration) -> None:
        figures = {"ratio": round(calibration.ratio, 4), "image_tokens": calibration.image_tokens}
        self._state.set(_key(provider, model), figures)


def _key(provider: str, model: str) -> str:
    return f"calibration:{provider.lower()}:{model.lower()}"


def _within(value: object, bounds: tuple[float, float]) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if bounds[0] <= value <= bounds[1] else None
