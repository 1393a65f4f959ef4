"""The usage record adds up, and the event union names every event there is."""

from __future__ import annotations

import dataclasses
import inspect
from typing import get_args

import pytest

from perdure.core import events
from perdure.core.usage import NOT_REPORTED, CanonicalUsage


@pytest.mark.spec("A1", "A8")
def test_prompt_and_total_follow_from_the_classes() -> None:
    usage = CanonicalUsage(input_tokens=21_000, cache_read_tokens=60_000, output_tokens=3_000, reasoning_tokens=900)
    assert usage.prompt_tokens == 81_000
    assert usage.total_tokens == 84_000
    assert usage.cache_hit_rate == pytest.approx(60 / 81)


@pytest.mark.spec("A3")
def test_an_unreported_call_does_not_hide_the_reported_ones() -> None:
    known = CanonicalUsage(input_tokens=5, output_tokens=1)
    assert (known + NOT_REPORTED) == known
    assert not (NOT_REPORTED + NOT_REPORTED).reported
    assert NOT_REPORTED.cache_hit_rate is None


def test_sums_add_every_class() -> None:
    one = CanonicalUsage(1, 2, 3, 4, 5, 6)
    assert one + one == CanonicalUsage(2, 4, 6, 8, 10, 12)


def test_the_event_union_is_complete_and_frozen() -> None:
    defined = {c for _, c in inspect.getmembers(events, inspect.isclass) if c.__module__ == events.__name__}
    assert defined == set(get_args(events.Event))
    assert all(c.__dataclass_params__.frozen for c in defined if dataclasses.is_dataclass(c))
