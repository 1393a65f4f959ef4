"""Estimate the tokens of a request before the provider reports them.

A text is looked at once (`figures`), what of a message is sent is decided in `sizes`, what it costs under a model in
`families`; `counter` keeps the running sum of a conversation and corrects it by real usage. This file is the way in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.core.messages import Message
from perdure.models.counter import Calibration, TokenCounter
from perdure.models.estimate import (
    Family,
    entry_figures,
    family_of,
    figures_of,
    sum_figures,
    text_figures,
    tools_figures,
)
from perdure.models.text_stats import NO_FIGURES, TokenFeatures, count_text

__all__ = [
    "NO_FIGURES",
    "Calibration",
    "Family",
    "TokenCounter",
    "TokenFeatures",
    "entry_figures",
    "estimate_figures",
    "estimate_message",
    "estimate_text",
    "estimate_tokens",
    "family_of",
    "figures_of",
    "sum_figures",
]


def estimate_text(text: str, model: str | None = None) -> int:
    """The tokens of one text."""
    return _whole(family_of(model).text_tokens(count_text(text)))


def estimate_message(message: Message, model: str | None = None) -> int:
    """The tokens of one message, its calls, images and framing included."""
    return estimate_figures(figures_of(message), model)


def estimate_figures(figures: TokenFeatures, model: str | None = None, *, sends_reasoning: bool = False) -> int:
    """Convert features to tokens: arithmetic only, so that a model switch re-estimates a history at once."""
    return _whole(family_of(model).request_tokens(figures, sends_reasoning=sends_reasoning))


def estimate_tokens(
    messages: Iterable[Message | Mapping[str, Any]],
    *,
    system: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    model: str | None = None,
) -> int:
    """The size of a whole request: history, system prompt and tools schema."""
    history = sum_figures(figures_of(Message.from_dict(m)) for m in messages)
    return estimate_figures(sum_figures([history, text_figures(system or ""), tools_figures(tools)]), model)


def _whole(tokens: float) -> int:
    # Something is never nothing: a lone letter is one token.
    return max(1, round(tokens)) if tokens > 0 else 0
