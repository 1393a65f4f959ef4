"""Token usage of a model call in one form for all providers.

Context usage, compaction and cost are computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.datastructures import MappingAccess


@dataclass(frozen=True, slots=True)
class CanonicalUsage(MappingAccess):
    """Tokens of one or more model calls by class. `reported` distinguishes a real zero from missing usage."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    # Part of output_tokens, shown apart, never added again.
    reasoning_tokens: int = 0
    # Part of cache_write_tokens: one-hour writes cost more than five-minute ones.
    cache_write_1h_tokens: int = 0
    reported: bool = True

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of the prompt read from cache; None where there was no prompt."""
        return self.cache_read_tokens / self.prompt_tokens if self.prompt_tokens else None

    def __add__(self, other: CanonicalUsage) -> CanonicalUsage:
        """Return the sum; it counts as reported if either side is."""
        return CanonicalUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            reported=self.reported or other.reported,
        )


NOT_REPORTED = CanonicalUsage(reported=False)
# A request that was refused, or never sent, is known to have used nothing.
NOT_BILLED = CanonicalUsage()


def as_usage(value: CanonicalUsage | Mapping[str, Any] | None) -> CanonicalUsage:
    """Return usage from what a custom agent loop passes: usage, a dict with `prompt_tokens`, or None (not reported)."""
    if isinstance(value, CanonicalUsage):
        return value
    prompt = value.get("prompt_tokens") if isinstance(value, Mapping) else None
    if not isinstance(prompt, int) or isinstance(prompt, bool) or prompt < 0:
        return NOT_REPORTED
    return CanonicalUsage(input_tokens=prompt)
