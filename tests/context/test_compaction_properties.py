"""Random histories × windows × settings × summarisers: what must hold of every compaction, whatever comes in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perdure
from perdure.context.compressor import ContextCompressor
from perdure.core import rules
from perdure.core.messages import Message
from support.long_histories import histories
from support.summarisers import HOSTILE

CASES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WINDOWS = st.sampled_from([1_000, 2_000, 5_000, 9_000, 16_000, 24_000, 64_000])
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "target_ratio": st.sampled_from([0.1, 0.2, 0.5, 0.8]),
        "protect_last_n": st.sampled_from([1, 3, 20]),
        "protect_first_n": st.sampled_from([0, 1, 3, 6]),
        "head_decay": st.booleans(),
        "threshold": st.sampled_from([0.2, 0.5, 0.9]),
    },
)
TEMPERS = st.sampled_from([None, *HOSTILE])


def parsed(raw: list[dict[str, Any]]) -> list[Message]:
    return [Message.from_dict(m) for m in raw]


def newest_request(raw: list[dict[str, Any]]) -> str | None:
    texts = [m.text for m in parsed(raw) if m.is_real_user and m.text]
    return texts[-1] if texts else None


def must_stay(raw: list[dict[str, Any]], engine: ContextCompressor) -> int:
    """Tokens that no compaction may take away: system messages and the newest request."""
    messages = parsed(raw)
    lead = rules.leading_system(messages)
    newest = next((m for m in reversed(messages) if m.is_real_user), None)
    kept = [*messages[:lead], *([newest] if newest else [])]
    return perdure.estimate_tokens(kept)


@pytest.mark.spec("D2", "D3", "D4", "D7", "D8", "K1", "K2", "F4", "C9")
@CASES
@given(raw=histories(), window=WINDOWS, choices=CHOICES, temper=TEMPERS)
def test_every_compaction_is_valid_smaller_and_keeps_the_newest_request(
    raw: list[dict[str, Any]], window: int, choices: dict[str, Any], temper: str | None
) -> None:
    before = [dict(m) for m in raw]
    ask = HOSTILE[temper]() if temper else None
    report = perdure.compress(raw, context_length=window, summarize=ask, settings=choices)

    assert raw == before, "the input was changed"
    assert ask is None or ask.calls <= 7
    if report.outcome == "nothing_to_do":
        assert report.messages == raw
        return
    out = parsed(report.messages)
    assert rules.violations(out) == []
    assert report.after_tokens < report.before_tokens
    assert perdure.estimate_tokens(out) < perdure.estimate_tokens(rules.repair(parsed(raw)))
    wanted = newest_request(raw)
    after_handoff = report.messages[next(i for i, m in enumerate(out) if m.text.startswith("[PERDURE HANDOFF")) :]
    texts = [part for m in parsed(after_handoff) for part in ([p.text for p in m.parts if hasattr(p, "text")])]
    assert wanted is None or wanted in texts
    engine = ContextCompressor(context_length=window, settings=None)
    threshold = engine.budgets.threshold_tokens
    if report.after_tokens > threshold and "threshold" not in choices:
        assert must_stay(raw, engine) > 0.4 * threshold
        assert "still above the threshold" in report.message


@pytest.mark.spec("D8")
@CASES
@given(raw=histories(), window=WINDOWS, choices=CHOICES, temper=TEMPERS)
def test_a_second_compaction_without_new_content_changes_nothing(
    raw: list[dict[str, Any]], window: int, choices: dict[str, Any], temper: str | None
) -> None:
    ask = HOSTILE[temper]() if temper else None
    once = perdure.compress(raw, context_length=window, summarize=ask, settings=choices)
    twice = perdure.compress(once.messages, context_length=window, summarize=ask, settings=choices)
    assert twice.outcome == "nothing_to_do"
    assert twice.messages == once.messages
