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
    (0.047, 0.792, 0.7, 0.067, 1.286, 1.254, 0.58, 0.045, 0.335,
     0.235, 1.434, 0.627, 0.431, 0.406, 1.112, 0.975, 1.417, 0.485, 0.617),
    (0.737, 0.1, 0.712, 0.971, 0.2, 0.254, 0.415, 0.1, 0.391, 0.2, 0.654, 4.624, 1.795, 0.681, 1.043, 0.752, 0.371),
)
_CL100K = (
    (0.038, 0.851, 0.729, 0.094, 1.382, 1.237, 0.545, 0.045, 0.302,
     0.208, 1.399, 0.362, 0.429, 0.491, 1.012, 1.105, 0.976, 0.477, 0.606),
    (1.144, 0.1, 0.937, 2.116, 0.2, 0.288, 1.201, 0.1, 0.59, 0.2, 1.95, 3.945, 2.937, 1.153, 2.57, 2.875, 0.985),
)
_CLAUDE = (
    (0.013, 0.959, 0.713, 0.269, 0.656, 1.093, 0.551, 0.051, 0.834,
     0.042, 1.784, 0.398, 0.136, 0.0, 0.569, 0.156, 1.763, 0.976, 0.751),
    (0.918, 0.1, 0.933, 3.687, 0.2, 0.641, 1.76, 0.1, 0.447, 1.046, 3.086, 3.857, 3.368, 1.027, 2.857, 2.171, 2.01),
)
_LLAMA = (
    (0.038, 0.85, 0.725, 0.094, 1.378, 1.237, 0.546, 0.045, 0.303,
     0.207, 1.391, 0.36, 0.427, 0.491, 1.011, 1.102, 0.976, 0.479, 0.605),
    (0.761, 0.1, 0.639, 1.43, 0.2, 0.327, 0.623, 0.1, 0.597, 0.2, 1.015, 4.342, 1.835, 0.826, 1.106, 0.744, 0.421),
)
_DEEPSEEK = (
    (0.041, 0.821, 0.703, 0.13, 1.191, 1.166, 0.62, 0.069, 0.509,
     0.101, 1.834, 0.578, 0.313, 0.313, 0.987, 0.912, 1.598, 0.614, 0.635),
    (0.493, 0.1, 0.683, 1.886, 0.2, 0.2, 0.486, 0.1, 0.0, 0.2, 1.216, 5.459, 2.09, 0.807, 1.604, 1.35, 0.423),
)
_QWEN = (
    (0.06, 0.725, 0.701, 0.025, 1.438, 2.106, 1.56, 0.056, 0.481,
     0.003, 1.306, 0.177, 0.365, 0.408, 0.874, 0.928, 1.114, 0.388, 0.541),
    (0.536, 0.1, 0.562, 1.489, 0.2, 0.357, 0.907, 0.1, 1.31, 0.2, 1.144, 3.079, 1.974, 0.939, 1.987, 0.565, 0.618),
)
_MISTRAL = (
    (0.063, 0.704, 0.736, 0.126, 1.418, 2.084, 1.603, 0.084, 0.556,
     0.0, 1.879, 0.247, 0.358, 0.171, 0.976, 0.817, 1.59, 0.46, 0.599),
    (0.936, 0.1, 0.642, 1.123, 0.2, 0.2, 0.711, 0.1, 1.247, 0.304, 0.432, 3.836, 1.64, 0.704, 1.181, 0.897, 0.0),
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
