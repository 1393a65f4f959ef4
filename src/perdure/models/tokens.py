"""Estimate the tokens of a request, and correct the estimate by the usage that the provider reports.

A text is counted once (`text_stats`); a `Family` weighs the counts for a model; a `TokenCounter` keeps the running sum
of a conversation and calibrates it with each reported usage. `estimate_tokens` is the way in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import mul
from typing import Any

from perdure.core.arguments import MESSAGES, TEXT, TOOLS, check_arguments, optional
from perdure.core.datastructures import Memo
from perdure.core.messages import Entry, ImagePart, Message, Part, TextPart, canonical_json
from perdure.core.ports import KeyValue
from perdure.core.usage import CanonicalUsage
from perdure.models.text_stats import NO_COUNTS, NO_FIGURES, Counts, TokenFeatures, add_counts, count_text

_Weights = tuple[tuple[float, ...], tuple[float, ...]]  # of ASCII_COUNTS, of SCRIPT_COUNTS

# fmt: off
_O200K = (
    (0.054, 0.759, 0.684, 0.001, 0.389, 1.143, 1.202, 0.203, 0.602,
     0.046, 0.375, 0.187, 1.405, 0.587, 0.398, 0.409, 1.071, 0.921, 1.402, 0.516, 0.578),
    (0.732, 0.1, 0.708, 0.937, 0.2, 0.263, 0.414, 0.1, 0.512, 0.2, 0.689, 4.367, 1.765, 0.695, 1.032, 0.7, 0.441),
)
_CL100K = (
    (0.046, 0.816, 0.712, 0.025, 0.448, 1.237, 1.178, 0.222, 0.571,
     0.046, 0.342, 0.16, 1.385, 0.323, 0.394, 0.494, 0.97, 1.049, 0.962, 0.514, 0.563),
    (1.137, 0.1, 0.933, 2.095, 0.2, 0.293, 1.199, 0.1, 0.7, 0.2, 1.999, 3.721, 2.905, 1.164, 2.556, 2.84, 1.067),
)
_CLAUDE = (
    (0.029, 0.885, 0.69, 0.189, 0.27, 0.719, 0.908, 0.629, 0.614,
     0.05, 0.913, 0.0, 1.685, 0.304, 0.033, 0.0, 0.496, 0.092, 1.805, 0.994, 0.703),
    (0.91, 0.1, 0.928, 3.751, 0.2, 0.633, 1.758, 0.1, 0.69, 1.054, 3.16, 3.133, 3.319, 1.052, 2.845, 2.179, 2.1),
)
_LLAMA = (
    (0.046, 0.816, 0.708, 0.025, 0.449, 1.23, 1.179, 0.217, 0.572,
     0.046, 0.342, 0.16, 1.376, 0.322, 0.393, 0.494, 0.971, 1.046, 0.962, 0.516, 0.562),
    (0.756, 0.1, 0.636, 1.399, 0.2, 0.329, 0.622, 0.1, 0.704, 0.2, 1.049, 4.099, 1.808, 0.834, 1.093, 0.728, 0.488),
)
_DEEPSEEK = (
    (0.054, 0.764, 0.676, 0.009, 0.786, 0.906, 1.089, 0.322, 0.646,
     0.071, 0.576, 0.024, 1.78, 0.512, 0.25, 0.323, 0.917, 0.831, 1.555, 0.673, 0.569),
    (0.49, 0.1, 0.68, 1.823, 0.2, 0.2, 0.483, 0.1, 0.2, 0.2, 1.218, 5.048, 2.037, 0.827, 1.579, 1.331, 0.493),
)
_QWEN = (
    (0.061, 0.724, 0.698, 0.005, 0.172, 1.349, 2.113, 0.0, 1.56,
     0.055, 0.481, 0.002, 1.305, 0.179, 0.358, 0.416, 0.867, 0.916, 1.107, 0.403, 0.534),
    (0.536, 0.1, 0.562, 1.469, 0.2, 0.362, 0.907, 0.1, 1.317, 0.2, 1.134, 3.094, 1.968, 0.939, 1.982, 0.535, 0.621),
)
_MISTRAL = (
    (0.065, 0.7, 0.73, 0.08, 0.36, 1.235, 2.1, 0.0, 1.596,
     0.083, 0.555, 0.0, 1.866, 0.251, 0.346, 0.19, 0.961, 0.796, 1.58, 0.492, 0.582),
    (0.936, 0.103, 0.642, 1.08, 0.2, 0.205, 0.71, 0.1, 1.262, 0.2, 0.433, 3.842, 1.622, 0.7, 1.173, 0.871, 0.0),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Family:
    """Weights that estimate the tokens of a tokenizer family; no weight is negative."""

    name: str
    weights: tuple[float, ...]
    # What a service adds around a message and around a call: role, separators, ids.
    per_message: float = 4.0
    per_call: float = 8.0
    # An image of about a megapixel, until reported usage gives the real cost.
    image_tokens: float = 1_000.0

    def text_tokens(self, counts: Counts) -> float:
        if counts is NO_COUNTS:  # as the reasoning of most messages
            return 0.0
        tokens: float = sum(map(mul, self.weights, counts))
        return tokens

    def request_tokens(
        self, figures: TokenFeatures, *, image_tokens: float | None = None, sends_reasoning: bool = False
    ) -> float:
        """Return the tokens of text, framing and images, and of reasoning if the endpoint gets it back."""
        per_image = self.image_tokens if image_tokens is None else image_tokens
        tokens = self.text_tokens(figures.counts) + per_image * figures.images
        tokens += self.per_message * figures.messages + self.per_call * figures.calls
        return tokens + self.text_tokens(figures.reasoning) if sends_reasoning else tokens


def family_of(model: str | None) -> Family:
    """Return the tokenizer family of a model by its name, with or without a prefix (`anthropic/claude-…`)."""
    return _BY_NAME[model.lower()] if model else _FAMILIES[_USUAL]


def family_names() -> tuple[str, ...]:
    return tuple(_FAMILIES)


def _family(name: str, weights: _Weights, *, image_tokens: float = 1_000.0, scale: float = 1.0) -> Family:
    return Family(name, tuple(w * scale for w in weights[0] + weights[1]), image_tokens=image_tokens)


_FAMILIES = {
    family.name: family
    for family in (
        _family("o200k", _O200K, image_tokens=800.0),
        _family("cl100k", _CL100K, image_tokens=800.0),
        _family("claude", _CLAUDE, image_tokens=1_500.0, scale=1.1),
        _family("llama", _LLAMA),
        _family("deepseek", _DEEPSEEK),
        _family("qwen", _QWEN),
        _family("mistral", _MISTRAL),
        _family("gemini", (_MISTRAL[0], _O200K[1]), image_tokens=258.0),
    )
}

# A name of none of those below, or no name, is taken for the most common cut today.
_USUAL = "o200k"
# First match wins.
_NAMES: tuple[tuple[str, str], ...] = (
    (r"claude", "claude"),
    (r"deepseek", "deepseek"),
    (r"qwen|qwq|qvq", "qwen"),
    (r"llama", "llama"),
    (r"mistral|mixtral|ministral|codestral|devstral|magistral|pixtral", "mistral"),
    (r"gemini|gemma", "gemini"),
    (r"gpt-3\.5|gpt-35|gpt-4(?![o.\d])", "cl100k"),
)


def _family_by_name(model: str) -> Family:
    for pattern, name in _NAMES:
        if re.search(pattern, model):
            return _FAMILIES[name]
    return _FAMILIES[_USUAL]


_BY_NAME: Memo[str, Family] = Memo(_family_by_name, max_bytes=200_000, bytes_per_char=4)


# Parts that carry a picture, a sound or a document, whatever the service calls them: a fixed cost each, never text.
_ATTACHMENTS = ("image", "audio", "video", "file", "document", "media")
# Keys whose value is opaque: services do not bill the letters of signatures and ciphers.
_OPAQUE = frozenset(("signature", "encrypted_content", "data", "id", "type", "format", "index"))
# Keys under which services send thinking back in clear.
_REASONING_EXTRAS = ("reasoning_content", "thinking")

_MEMO_KEY = "perdure.models.text_stats"


def figures_of(message: Message) -> TokenFeatures:
    """Count the token features of one message; never raises, whatever odd values the message carries."""
    counts, images = NO_COUNTS, 0
    if isinstance(message.content, str):
        counts = count_text(message.content)
    else:
        for part in message.content or ():
            part_counts, part_images = _count_part(part)
            counts, images = add_counts(counts, part_counts), images + part_images
    calls = message.tool_calls
    for call in calls:
        counts = add_counts(add_counts(counts, count_text(call.name)), count_text(call.arguments))
    if message.name:
        counts = add_counts(counts, count_text(message.name))
    has_reasoning = message.reasoning_details or message.reasoning or message.extra
    return TokenFeatures(counts, _count_reasoning(message) if has_reasoning else NO_COUNTS, images, 1, len(calls))


def entry_figures(entry: Entry) -> TokenFeatures:
    """Return the token features of an entry's message, cached on the entry."""
    return entry.memo(_MEMO_KEY, figures_of)


def sum_figures(many: Iterable[TokenFeatures]) -> TokenFeatures:
    """Add up token features column by column, which is far cheaper than adding pairs."""
    listed = list(many)
    if not listed:
        return NO_FIGURES
    return TokenFeatures(
        counts=tuple(map(sum, zip(*(f.counts for f in listed), strict=True))),
        reasoning=tuple(map(sum, zip(*(f.reasoning for f in listed), strict=True))),
        images=sum(f.images for f in listed),
        messages=sum(f.messages for f in listed),
        calls=sum(f.calls for f in listed),
    )


def text_figures(text: str) -> TokenFeatures:
    """Count the token features of a system prompt or another text sent as a message of its own."""
    return TokenFeatures(count_text(text), messages=1) if text else NO_FIGURES


def tools_figures(tools: Iterable[Mapping[str, Any]] | None) -> TokenFeatures:
    """Count the token features of the tools schema, as the JSON text it is sent as."""
    return TokenFeatures(count_text(canonical_json(list(tools)))) if tools else NO_FIGURES


def _count_part(part: Part) -> tuple[Counts, int]:
    if isinstance(part, TextPart):
        return count_text(part.text), 0
    if isinstance(part, ImagePart):
        return NO_COUNTS, 1
    kind = str(part.raw.get("type", ""))
    if any(word in kind for word in _ATTACHMENTS):
        return NO_COUNTS, 1
    return _count_strings(part.raw), 0


def _count_reasoning(message: Message) -> Counts:
    """Count the readable reasoning of a message separately, also that inside `reasoning_details`."""
    if message.reasoning_details:
        return _sum_counts(_count_strings(detail) for detail in message.reasoning_details)
    if message.reasoning:
        return count_text(message.reasoning)
    counts = NO_COUNTS
    for key in _REASONING_EXTRAS:
        if isinstance(text := message.extra.get(key), str):
            counts = add_counts(counts, count_text(text))
    return counts


def _count_strings(raw: Any) -> Counts:
    return _sum_counts(count_text(text) for text in _readable(raw))


def _readable(raw: Any) -> Iterator[str]:
    """Yield every string of a JSON-like value that a model reads as text, without recursion: depth is not bounded."""
    waiting = [raw]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if not value.startswith("data:"):
                yield value
        elif isinstance(value, Mapping):
            waiting.extend(v for k, v in value.items() if k not in _OPAQUE)
        elif isinstance(value, list | tuple):
            waiting.extend(value)


def _sum_counts(many: Iterable[Counts]) -> Counts:
    total = NO_COUNTS
    for counts in many:
        total = add_counts(total, counts)
    return total


# A service that truncates silently, or that counts what we do not see, must not bend every later estimate.
RATIO_RANGE = (0.5, 2.0)
IMAGE_RANGE = (1.0, 20_000.0)
# Every call moves the ratio a little; a change below this moves no decision.
_RATIO_STEP = 0.02


@dataclass(frozen=True, slots=True)
class Calibration:
    """Corrections of the token estimate for one model: reported over estimated tokens, and tokens per image.

    Some services take thinking and leave it out of the prompt they build: the first prompts with any show it.
    """

    ratio: float = 1.0
    image_tokens: float | None = None
    is_reasoning_billed: bool = True


class CalibrationStore:
    """Calibrations of the token estimate by provider and model, persisted in a key-value store."""

    def __init__(self, state: KeyValue) -> None:
        self._state = state

    def get(self, provider: str, model: str) -> Calibration:
        """Return the stored calibration of a model; a neutral one if there is none or the record is damaged."""
        stored = self._state.get(_key(provider, model))
        if not isinstance(stored, Mapping):
            return Calibration()
        ratio = _within(stored.get("ratio"), RATIO_RANGE)
        image_tokens = _within(stored.get("image_tokens"), IMAGE_RANGE)
        is_billed = stored.get("is_reasoning_billed") is not False
        return Calibration(1.0 if ratio is None else ratio, image_tokens, is_reasoning_billed=is_billed)

    def learn(self, provider: str, model: str, learned: Calibration) -> None:
        """Persist a changed calibration for later conversations; skips negligible changes."""
        previous = self.get(provider, model)
        is_ratio_changed = abs(learned.ratio - previous.ratio) >= _RATIO_STEP
        if is_ratio_changed or learned != replace(previous, ratio=learned.ratio):
            self.keep(provider, model, learned)

    def keep(self, provider: str, model: str, calibration: Calibration) -> None:
        self._state.set(_key(provider, model), asdict(replace(calibration, ratio=round(calibration.ratio, 4))))


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
    """Tracks the size of a conversation's next request: the last reported prompt, and an estimate of what came since.

    Appending costs only the new text; a model switch costs a multiplication.
    """

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
        self._calibration = calibration or Calibration()
        self._fixed = NO_FIGURES
        self._history = NO_FIGURES
        # What the last real prompt held, what the call under way holds, and how large the former really was.
        self._measured = NO_FIGURES
        self._sent: TokenFeatures | None = None
        self._real_tokens: int | None = None
        # The newest estimate, with all that it was computed from.
        self._estimate: tuple[tuple[object, ...], int] | None = None
        self.set_fixed(system=system, tools=tools)

    @property
    def estimate(self) -> int:
        """Estimated prompt tokens of the next request."""
        measured, real_tokens = self._measured, self._real_tokens
        # It is read a dozen times in a turn, and changes two or three times.
        inputs = (
            *(self._fixed, self._history, measured, real_tokens),
            *(self._family, self._calibration, self._sends_reasoning),
        )
        if self._estimate is None or self._estimate[0] != inputs:
            if real_tokens is None:
                tokens = round(self._tokens(self._request))
            else:
                tokens = max(0, real_tokens + round(self._tokens(self._request - measured)))
            self._estimate = (inputs, tokens)
        return self._estimate[1]

    @property
    def last_prompt_tokens(self) -> int | None:
        """The prompt size that the provider reported last.

        None if it has not since the start, a compaction or a switch.
        """
        return self._real_tokens

    @property
    def appended_tokens(self) -> int:
        """The part of `estimate` that no provider has counted yet."""
        return self.estimate - (self._real_tokens or 0)

    @property
    def fixed_tokens(self) -> int:
        """Estimated tokens of system prompt and tools schema, which no compaction can shrink."""
        return round(self._tokens(self._fixed))

    def tokens_of(self, figures: TokenFeatures) -> int:
        """Return the calibrated tokens of some token features for the current model."""
        return round(self._tokens(figures))

    @property
    def calibration(self) -> Calibration:
        return self._calibration

    def set_fixed(self, *, system: str | Sequence[str] = "", tools: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Set the system prompt (a text or blocks) and the tools schema that are sent with every request."""
        blocks = (system,) if isinstance(system, str) else tuple(system)
        self._fixed = sum_figures([*(text_figures(b) for b in blocks), tools_figures(tools)])

    def append(self, entry: Entry) -> None:
        self.add(entry_figures(entry))

    def extend(self, entries: Iterable[Entry]) -> None:
        self.add(sum_figures(entry_figures(e) for e in entries))

    def add(self, figures: TokenFeatures) -> None:
        """Add anything that joins the request besides messages, such as recalled passages."""
        self._history = self._history + figures

    def begin_call(self) -> None:
        """Remember the size of the request being sent, so that `observe` compares the reported usage with it.

        A reply appended before its usage is known must not count as part of that request.
        """
        self._sent = self._request

    def observe(self, usage: CanonicalUsage) -> None:
        """Adopt the prompt size a provider reported and calibrate by it; without one, the estimate stays."""
        sent, self._sent = self._sent or self._request, None
        if not usage.reported or usage.prompt_tokens <= 0:
            return
        self._learn_reasoning(sent, usage.prompt_tokens)
        self._adopt(sent, usage.prompt_tokens)

    def restore(self, sent: TokenFeatures, prompt_tokens: int) -> None:
        """Adopt the reported prompt size of an earlier call with the messages `sent` after system prompt and tools."""
        self._adopt(self._fixed + sent, prompt_tokens)

    def match(self, tokens: int) -> None:
        """Correct the ratio so that the request has the size that another process counted; ignores one far from it."""
        images = self._per_image * self._request.images
        text = self._text_tokens(self._request)
        if text > 0 and abs(tokens - self.estimate) <= 2 * _RATIO_STEP * tokens:
            self._calibration = replace(self._calibration, ratio=_clamp((tokens - images) / text, RATIO_RANGE))

    def _adopt(self, sent: TokenFeatures, prompt_tokens: int) -> None:
        self._calibrate(sent, prompt_tokens)
        self._measured, self._real_tokens = sent, prompt_tokens

    def rebase(self, entries: Iterable[Entry]) -> None:
        """Start over with a new history, after a compaction; the calibration is kept."""
        self._history = sum_figures(entry_figures(e) for e in entries)
        self._measured, self._sent, self._real_tokens = NO_FIGURES, None, None

    def switch_model(
        self, model: str | None, *, sends_reasoning: bool | None = None, calibration: Calibration | None = None
    ) -> None:
        """Count for another model from now on: reported sizes and the old calibration no longer apply."""
        self._family = family_of(model)
        self._calibration = calibration or Calibration()
        self._measured, self._sent, self._real_tokens = NO_FIGURES, None, None
        if sends_reasoning is not None:
            self._sends_reasoning = sends_reasoning

    @property
    def _request(self) -> TokenFeatures:
        return self._fixed + self._history

    def _tokens(self, figures: TokenFeatures) -> float:
        return self._calibration.ratio * self._text_tokens(figures) + self._per_image * figures.images

    def _text_tokens(self, figures: TokenFeatures) -> float:
        """Return the uncalibrated tokens of everything but images."""
        counts_reasoning = self._sends_reasoning and self._calibration.is_reasoning_billed
        return self._family.request_tokens(figures, image_tokens=0.0, sends_reasoning=counts_reasoning)

    @property
    def _per_image(self) -> float:
        learned = self._calibration.image_tokens
        return self._family.image_tokens if learned is None else learned

    def _learn_reasoning(self, sent: TokenFeatures, real_tokens: int) -> None:
        """Find out whether the service counts the reasoning it is sent, from a prompt that added much of it."""
        if not self._sends_reasoning:
            return
        added = sent - self._measured
        reasoning = self._family.text_tokens(added.reasoning)
        other = self._family.request_tokens(added, image_tokens=0.0)
        if reasoning < max(_REASONING_MIN_TOKENS, _REASONING_MIN_SHARE * other):
            return
        expected = (self._real_tokens or 0) + self._calibration.ratio * other + self._per_image * added.images
        is_billed = real_tokens - expected > self._calibration.ratio * reasoning / 2
        self._calibration = replace(self._calibration, is_reasoning_billed=is_billed)

    def _calibrate(self, sent: TokenFeatures, real_tokens: int) -> None:
        old = self._calibration
        text = self._text_tokens(sent)
        image_tokens = self._learn_image(sent, real_tokens)
        per_image = self._family.image_tokens if image_tokens is None else image_tokens
        text_share = real_tokens - sent.images * per_image
        ratio = old.ratio
        if text >= _RATIO_MIN_TOKENS and text_share > 0:
            ratio = _clamp(text_share / text, RATIO_RANGE)
        self._calibration = replace(old, ratio=ratio, image_tokens=image_tokens)

    def _learn_image(self, sent: TokenFeatures, real_tokens: int) -> float | None:
        """Return the tokens of an image, from a call that added images to a prompt of known size."""
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


def estimate_text(text: str, model: str | None = None) -> int:
    """Estimate the tokens of one text for a model, without message framing."""
    return _whole(family_of(model).text_tokens(count_text(text)))


def estimate_message(message: Message, model: str | None = None) -> int:
    """Estimate the tokens of one message, its tool calls, images and framing included."""
    return estimate_figures(figures_of(message), model)


def estimate_figures(figures: TokenFeatures, model: str | None = None, *, sends_reasoning: bool = False) -> int:
    """Convert token features to tokens for a model, by arithmetic alone, without reading the text again."""
    return _whole(family_of(model).request_tokens(figures, sends_reasoning=sends_reasoning))


@check_arguments(messages=MESSAGES, system=optional(TEXT), tools=optional(TOOLS), model=optional(TEXT))
def estimate_tokens(
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    system: str | None = None,
    tools: Iterable[Mapping[str, Any]] | None = None,
    model: str | None = None,
) -> int:
    """Estimate the tokens of a whole request: history, system prompt and tools schema. Raises InvalidMessage."""
    history = sum_figures(figures_of(Message.from_dict(m)) for m in messages)
    return estimate_figures(sum_figures([history, text_figures(system or ""), tools_figures(tools)]), model)


def _whole(tokens: float) -> int:
    # Something is never nothing: a lone letter is one token.
    return max(1, round(tokens)) if tokens > 0 else 0
