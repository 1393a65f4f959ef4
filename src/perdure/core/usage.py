"""Token usage of a model call in one form for all providers.

Context usage, compaction and cost are computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

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


# The names of the prompt's size. Anthropic's `input_tokens` leaves out what came from its cache or went into it.
_PROMPT = ("prompt_tokens", "input_tokens")
_CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")


def as_usage(value: object) -> CanonicalUsage:
    """Return usage from what a custom agent loop passes: usage, a dict, an SDK's object, or None (not reported)."""
    if isinstance(value, CanonicalUsage):
        return value
    usage = as_mapping(value)
    prompt = next((usage[name] for name in _PROMPT if usage.get(name) is not None), None)
    if not _is_count(prompt):
        return NOT_REPORTED
    cached = sum(usage[name] for name in _CACHED if _is_count(usage.get(name))) if "prompt_tokens" not in usage else 0
    return CanonicalUsage(input_tokens=prompt + cached)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def as_mapping(raw: object) -> Mapping[str, Any]:
    """Return the fields of a dict, an SDK object or any object with attributes; none where reading them raises."""
    if isinstance(raw, Mapping):
        return raw
    if raw is None or isinstance(raw, str | bytes | int | float | list | tuple | type):
        return {}
    try:
        return _fields_of(raw)
    except Exception:  # foreign code: attributes of a lazy proxy, of a record without its session
        return {}


def _fields_of(raw: object) -> Mapping[str, Any]:
    # The fields themselves rather than `model_dump`, which warns about values of a wrong type; extra keys included.
    fields = {**getattr(raw, "__dict__", {})}
    extra = getattr(raw, "__pydantic_extra__", None)
    if isinstance(extra, Mapping):
        fields |= extra
    slots = getattr(type(raw), "__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        if not name.startswith("__") and hasattr(raw, name):
            fields.setdefault(name, getattr(raw, name))
    return fields
