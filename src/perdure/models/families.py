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
from functools import lru_cache
from operator import mul

from perdure.models.figures import Counts, Figures

_Weights = tuple[tuple[float, ...], tuple[float, ...]]  # of ASCII_COUNTS, of SCRIPT_COUNTS

# fmt: off
_O200K = (
    (0.048, 0.787, 0.698, 0.068, 1.27, 1.265, 0.578, 0.045, 0.339,
     0.228, 1.417, 0.634, 0.426, 0.395, 1.158, 0.954, 1.227, 0.57),
    (0.736, 0.538, 0.712, 0.967, 0.2, 0.257, 0.416, 0.1, 0.494, 0.2, 0.668, 4.599, 0.917, 1.047, 0.74, 0.395),
)
_CL100K = (
    (0.039, 0.848, 0.728, 0.095, 1.371, 1.245, 0.543, 0.045, 0.304,
     0.203, 1.394, 0.366, 0.426, 0.484, 1.041, 1.093, 0.877, 0.576),
    (1.143, 0.891, 0.937, 2.113, 0.2, 0.288, 1.201, 0.1, 0.63, 0.2, 1.957, 3.931, 1.341, 2.573, 2.874, 1.002),
)
_CLAUDE = (
    (0.015, 0.953, 0.711, 0.27, 0.633, 1.108, 0.545, 0.05, 0.838,
     0.028, 1.775, 0.409, 0.128, 0.0, 0.619, 0.137, 1.543, 0.691),
    (0.917, 0.8, 0.934, 3.686, 0.2, 0.644, 1.761, 0.1, 0.566, 1.031, 3.103, 3.767, 1.955, 2.863, 2.159, 2.036),
)
_LLAMA = (
    (0.039, 0.847, 0.723, 0.095, 1.367, 1.244, 0.544, 0.045, 0.306,
     0.203, 1.385, 0.365, 0.424, 0.484, 1.041, 1.09, 0.877, 0.574),
    (0.761, 0.633, 0.64, 1.431, 0.2, 0.328, 0.624, 0.1, 0.641, 0.2, 1.022, 4.488, 0.758, 1.108, 0.745, 0.433),
)
_DEEPSEEK = (
    (0.043, 0.815, 0.701, 0.131, 1.175, 1.177, 0.619, 0.069, 0.514,
     0.092, 1.821, 0.588, 0.308, 0.303, 1.037, 0.89, 1.395, 0.583),
    (0.492, 0.582, 0.685, 1.889, 0.2, 0.2, 0.487, 0.1, 0.0, 0.2, 1.226, 5.592, 1.151, 1.61, 1.356, 0.433),
)
_QWEN = (
    (0.062, 0.722, 0.7, 0.024, 1.423, 2.119, 1.558, 0.055, 0.483,
     0.0, 1.299, 0.185, 0.36, 0.398, 0.917, 0.907, 0.966, 0.498),
    (0.535, 0.731, 0.562, 1.488, 0.2, 0.359, 0.908, 0.1, 1.391, 0.2, 1.153, 3.168, 0.683, 1.992, 0.558, 0.631),
)
_MISTRAL = (
    (0.064, 0.699, 0.734, 0.127, 1.394, 2.102, 1.598, 0.084, 0.558,
     0.0, 1.864, 0.259, 0.349, 0.158, 1.036, 0.788, 1.394, 0.542),
    (0.936, 0.553, 0.644, 1.121, 0.2, 0.202, 0.712, 0.1, 1.355, 0.273, 0.441, 3.913, 0.717, 1.187, 0.896, 0.0),
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
        self, figures: Figures, *, image_tokens: float | None = None, sends_reasoning: bool = False
    ) -> float:
        """Text, framing and images; thinking only where the route sends it back."""
        per_image = self.image_tokens if image_tokens is None else image_tokens
        tokens = self.text_tokens(figures.counts) + per_image * figures.images
        tokens += self.per_message * figures.messages + self.per_call * figures.calls
        return tokens + self.text_tokens(figures.reasoning) if sends_reasoning else tokens


def family_of(model: str | None) -> Family:
    """The family of a model by its name, whatever a route puts before it (`anthropic/claude-…`)."""
    return _family_by_name((model or "").lower())


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

# First match wins; a name of none of them is taken for o200k, the most common cut today.
_NAMES: tuple[tuple[str, str], ...] = (
    (r"claude", "claude"),
    (r"deepseek", "deepseek"),
    (r"qwen|qwq|qvq", "qwen"),
    (r"llama", "llama"),
    (r"mistral|mixtral|ministral|codestral|devstral|magistral|pixtral", "mistral"),
    (r"gemini|gemma", "gemini"),
    (r"gpt-3\.5|gpt-35|gpt-4(?![o.\d])", "cl100k"),
)


@lru_cache(maxsize=256)
def _family_by_name(model: str) -> Family:
    for pattern, name in _NAMES:
        if re.search(pattern, model):
            return _FAMILIES[name]
    return _FAMILIES["o200k"]
