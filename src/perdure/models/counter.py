"""The token counter of a conversation, calibrated by reported usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.messages import Entry
from perdure.core.ports import KeyValue
from perdure.core.usage import CanonicalUsage
from perdure.models.estimate import entry_figures, family_of, sum_figures, text_figures, tools_figures
from perdure.models.text_stats import NO_FIGURES, TokenFeatures

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


# Below this size the ratio reflects the provider's framing, not its tokenizer.
_RATIO_MIN_TOKENS = 200.0
# With less thinking than this in what is new, whether it counts is lost among the errors of the estimate.
_REASONING_MIN_TOKENS = 200.0
_REASONING_MIN_SHARE = 0.3


class TokenCounter:
    """The size of a conversation's next request. Appending costs what is new; a model switch costs a multiplication."""

    def __init__(
        self,
        model: str | None = None,
        *,
        system: str | Sequence[str] = "",
        tools: Sequence[Mapping[str, Any]] | None = None,
        sends_reasoning: bool = False,
        calibration: Calibration | None = None,
    ) -> None:
        self._family = family_of(model)
        self._sends_reasoning = sends_reasoning
        # Some services take thinking and leave it out of the prompt they build: the first prompts with any show it.
        self._is_reasoning_billed = True
        self._calibration = calibration or Calibration()
        self._fixed = NO_FIGURES
        self._history = NO_FIGURES
        # What the last real prompt held, what the call under way holds, and how large the former really was.
        self._measured = NO_FIGURES
        self._sent: TokenFeatures | None = None
        self._real_tokens: int | None = None
        self.set_fixed(system=system, tools=tools)

    @property
    def estimate(self) -> int:
        """Estimated prompt tokens of the next request."""
        if self._real_tokens is None:
            return round(self._tokens(self._request))
        return max(0, self._real_tokens + round(self._tokens(self._request - self._measured)))

    @property
    def last_prompt_tokens(self) -> int | None:
        """The last real prompt size; None until a reply reported one since the start or the last compaction."""
        return self._real_tokens

    @property
    def appended_tokens(self) -> int:
        """The estimated part of the estimate: what no provider has counted yet."""
        return self.estimate - (self._real_tokens or 0)

    @property
    def fixed_tokens(self) -> int:
        """System prompt and tools schema: what no compaction can make smaller."""
        return round(self._tokens(self._fixed))

    def tokens_of(self, figures: TokenFeatures) -> int:
        """What figures come to in a request, as the present model counts."""
        return round(self._tokens(figures))

    @property
    def calibration(self) -> Calibration:
        return self._calibration

    def set_fixed(self, *, system: str | Sequence[str] = "", tools: Sequence[Mapping[str, Any]] | None = None) -> None:
        """The system prompt (one text, or blocks) and the tools schema that go with every request."""
        blocks = (system,) if isinstance(system, str) else tuple(system)
        self._fixed = sum_figures([*(text_figures(b) for b in blocks), tools_figures(tools)])

    def append(self, entry: Entry) -> None:
        self.add(entry_figures(entry))

    def extend(self, entries: Iterable[Entry]) -> None:
        self.add(sum_figures(entry_figures(e) for e in entries))

    def add(self, figures: TokenFeatures) -> None:
        """Anything else that joins the request, such as a sidecar of recalled passages."""
        self._history = self._history + figures

    def begin_call(self) -> None:
        """Marks what the request holds: a reply appended before its usage is read is then not taken for part of it."""
        self._sent = self._request

    def observe(self, usage: CanonicalUsage) -> None:
        """Set the counter from reported usage; without a reported prompt the estimate is kept."""
        sent, self._sent = self._sent or self._request, None
        if not usage.reported or usage.prompt_tokens <= 0:
            return
        self._learn_reasoning(sent, usage.prompt_tokens)
        self._calibrate(sent, usage.prompt_tokens)
        self._measured, self._real_tokens = sent, usage.prompt_tokens

    def rebase(self, entries: Iterable[Entry]) -> None:
        """A compaction gave the history a new view: its size is estimated again, what was learned is kept."""
        self._history = sum_figures(entry_figures(e) for e in entries)
        self._measured, self._sent, self._real_tokens = NO_FIGURES, None, None

    def switch_model(
        self, model: str | None, *, sends_reasoning: bool | None = None, calibration: Calibration | None = None
    ) -> None:
        """Another model counts otherwise: what the old one taught is forgotten. Costs arithmetic only."""
        self._family = family_of(model)
        self._calibration = calibration or Calibration()
        self._measured, self._sent, self._real_tokens = NO_FIGURES, None, None
        self._is_reasoning_billed = True
        if sends_reasoning is not None:
            self._sends_reasoning = sends_reasoning

    @property
    def _request(self) -> TokenFeatures:
        return self._fixed + self._history

    def _tokens(self, figures: TokenFeatures) -> float:
        return self._calibration.ratio * self._text_tokens(figures) + self._per_image * figures.images

    def _text_tokens(self, figures: TokenFeatures) -> float:
        """Everything but images, uncalibrated."""
        counts_reasoning = self._sends_reasoning and self._is_reasoning_billed
        return self._family.request_tokens(figures, image_tokens=0.0, sends_reasoning=counts_reasoning)

    @property
    def _per_image(self) -> float:
        learned = self._calibration.image_tokens
        return self._family.image_tokens if learned is None else learned

    def _learn_reasoning(self, sent: TokenFeatures, real_tokens: int) -> None:
        """Whether the service counts the thinking it is sent, from a prompt that much of it was added to."""
        if not self._sends_reasoning:
            return
        added = sent - self._measured
        reasoning = self._family.text_tokens(added.reasoning)
        other = self._family.request_tokens(added, image_tokens=0.0)
        if reasoning < max(_REASONING_MIN_TOKENS, _REASONING_MIN_SHARE * other):
            return
        expected = (self._real_tokens or 0) + self._calibration.ratio * other + self._per_image * added.images
        self._is_reasoning_billed = real_tokens - expected > self._calibration.ratio * reasoning / 2

    def _calibrate(self, sent: TokenFeatures, real_tokens: int) -> None:
        old = self._calibration
        text = self._text_tokens(sent)
        image_tokens = self._learn_image(sent, real_tokens)
        per_image = self._family.image_tokens if image_tokens is None else image_tokens
        text_share = real_tokens - sent.images * per_image
        ratio = old.ratio
        if text >= _RATIO_MIN_TOKENS and text_share > 0:
            ratio = _clamp(text_share / text, RATIO_RANGE)
        self._calibration = Calibration(ratio, image_tokens)

    def _learn_image(self, sent: TokenFeatures, real_tokens: int) -> float | None:
        """The cost of an image, from a call that added images to a prompt whose size was known."""
        old = self._calibration.image_tokens
        added = sent - self._measured
        if self._real_tokens is None or added.images <= 0:
            return old
        text = self._calibration.ratio * self._text_tokens(added)
        cost = (real_tokens - self._real_tokens - text) / added.images
        if not IMAGE_RANGE[0] <= cost <= IMAGE_RANGE[1]:
            return old
        return cost if old is None else (old + cost) / 2


def _clamp(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
