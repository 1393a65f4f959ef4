"""How many tokens each count of `figures` stands for, by family of tokenizers, and which model is of which family.

The weights were fitted by `python -m benchmarks.fit_tokens <vocabulary>`, one run a family, over recorded sessions,
Python's sources and other languages' message catalogues; a row can be made again at any time. Median errors lie between
2 and 4% for English, code, JSON, Chinese, Japanese and Korean in every fitted family.

| family   | vocabulary it was fitted on                     | models |
|----------|-------------------------------------------------|--------|
| o200k    | o200k_base                                      | GPT-4o and later, o-series, Codex; anything unknown |
| cl100k   | cl100k_base                                     | GPT-4, GPT-3.5 |
| claude   | the one Anthropic published, for Claude 2       | Claude; newer ones cut finer, hence its scale |
| llama    | Llama 3                                         | Llama |
| deepseek | DeepSeek V3                                     | DeepSeek |
| qwen     | Qwen                                            | Qwen, QwQ |
| mistral  | Tekken                                          | Mistral, Devstral, Codestral … |
| gemini   | none is published: Tekken's single digits, o200k's scripts | Gemini, Gemma |

A wrong family costs a few percent until the first reply; from then on real usage calibrates (`counter`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import mul

from perdure.core.memo import Memo
from perdure.models.figures import Counts, TokenFeatures

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
    """Tokenizers that cut alike. All weights are at least 0, so that more text is never fewer tokens."""

    name: str
    weights: tuple[float, ...]
    # What a service adds around a message and around a call: role, separators, ids.
    per_message: float = 4.0
    per_call: float = 8.0
    # An image of about a megapixel, until real usage says what one costs here.
    image_tokens: float = 1_000.0

    def text_tokens(self, counts: Counts) -> float:
        tokens: float = sum(map(mul, self.weights, counts))
        return tokens

    def request_tokens(
        self, figures: TokenFeatures, *, image_tokens: float | None = None, sends_reasoning: bool = False
    ) -> float:
        """Text, framing and images; thinking only where the route sends it back."""
        per_image = self.image_tokens if image_tokens is None else image_tokens
        tokens = self.text_tokens(figures.counts) + per_image * figures.images
        tokens += self.per_message * figures.messages + self.per_call * figures.calls
        return tokens + self.text_tokens(figures.reasoning) if sends_reasoning else tokens


def family_of(model: str | None) -> Family:
    """The family of a model by its name, whatever a route puts before it (`anthropic/claude-…`)."""
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
