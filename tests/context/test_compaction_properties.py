"""Random histories × windows × settings × summarisers: what must hold of every compaction, whatever comes in."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.secret_samples import Sample, keys
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perdure
from perdure.config.sections import CompressionSettings
from perdure.context.compressor import ContextCompressor
from perdure.context.retention import find_unread
from perdure.core import rules
from perdure.core.messages import HANDOFF_FIRST_LINE, Message, Part
from support.long_histories import histories, step
from support.summarisers import HOSTILE, Scripted, transcript_of

SAMPLE = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SOAK = settings(max_examples=3_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


ANYTHING = given(raw=histories(), window=WINDOWS, choices=CHOICES, temper=TEMPERS)


def parsed(raw: list[dict[str, Any]]) -> list[Message]:
    return [Message.from_dict(m) for m in raw]


def newest_request(raw: list[dict[str, Any]]) -> tuple[Part, ...]:
    """Every part of the last message a person sent that has something in it."""
    return next((m.parts for m in reversed(parsed(raw)) if m.is_request), ())


def must_stay(raw: list[dict[str, Any]]) -> int:
    """Tokens that no compaction may take away: system messages and the newest request."""
    messages = rules.repair(parsed(raw))
    lead = rules.leading_system(messages)
    newest = next((m for m in reversed(messages) if m.is_request), None)
    kept = [*messages[:lead], *([newest] if newest else [])]
    return perdure.estimate_tokens(kept)


def unread_tokens(raw: list[dict[str, Any]]) -> int:
    """Tokens of the results that the model has not read: they stay whole beyond the threshold."""
    messages = rules.repair(parsed(raw))
    start = find_unread(messages)
    return perdure.estimate_tokens(messages[start:]) if start is not None else 0


def holds_of_every_compaction(
    raw: list[dict[str, Any]], window: int, choices: dict[str, Any], temper: str | None
) -> None:
    """Valid, smaller, the input untouched, the newest request kept, within the threshold or honest about it."""
    before = [dict(m) for m in raw]
    ask = HOSTILE[temper]() if temper else None
    report = perdure.compress(raw, context_length=window, summarize=ask, settings=choices)

    assert raw == before, "the input was changed"
    assert ask is None or ask.calls <= 7
    out = parsed(report.messages)
    assert report.outcome == "nothing_to_do" or rules.repair_open(out) == out
    engine = ContextCompressor(context_length=window, settings=CompressionSettings(**choices))
    threshold = engine.budgets.threshold_tokens
    if report.after_tokens - unread_tokens(raw) > threshold:
        # Only what nobody may take away can be too much: system messages, the newest request, the shortest handoff, and
        # the quarter of a tail that shows what was done about a request which fills the window by itself.
        least = (160 if engine.budgets.is_small else 600) + engine.budgets.tail_tokens // 4
        assert must_stay(raw) + least > threshold
        assert "still above the threshold" in report.message or report.outcome == "nothing_to_do"
    if report.outcome == "nothing_to_do":
        assert report.messages == raw
        assert report.message
        return
    assert report.after_tokens < report.before_tokens
    assert perdure.estimate_tokens(out) < perdure.estimate_tokens(rules.repair(parsed(raw)))
    at = next(i for i, m in enumerate(out) if m.text.startswith(HANDOFF_FIRST_LINE))
    behind = [part for m in out[at:] for part in m.parts]
    assert all(part in behind for part in newest_request(raw))


def holds_of_two_in_a_row(raw: list[dict[str, Any]], window: int, choices: dict[str, Any], temper: str | None) -> None:
    """Without new content the second changes nothing."""
    ask = HOSTILE[temper]() if temper else None
    once = perdure.compress(raw, context_length=window, summarize=ask, settings=choices)
    twice = perdure.compress(once.messages, context_length=window, summarize=ask, settings=choices)
    assert twice.outcome == "nothing_to_do"
    assert twice.messages == once.messages


@pytest.mark.spec("D2", "D3", "D4", "D7", "D8", "K1", "K2", "F4", "C9")
@SAMPLE
@ANYTHING
def test_every_compaction_is_valid_smaller_and_keeps_the_newest_request(**case: Any) -> None:
    holds_of_every_compaction(**case)


@pytest.mark.spec("D7", "C9")
@pytest.mark.parametrize("digits", range(700, 1_000, 20))
def test_a_last_exchange_that_leaves_no_room_for_a_handoff_is_compacted_too(digits: int) -> None:
    """In a tiny window the note, the seal and the shortest handoff are a large share: they count beforehand."""
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    raw: list[dict[str, Any]] = [
        {"role": "system", "content": "Be of help."},
        {"role": "user", "content": "fix the build"},
        *step(1, chars=1_400),
        {"role": "assistant", "content": "7" * digits, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "content": "[turn ended]"},
        {"role": "user", "content": ""},
    ]
    holds_of_every_compaction(raw, 1_000, {}, None)


@pytest.mark.spec("D8")
@SAMPLE
@ANYTHING
def test_a_second_compaction_without_new_content_changes_nothing(**case: Any) -> None:
    holds_of_two_in_a_row(**case)


@pytest.mark.soak
@SOAK
@ANYTHING
def test_every_compaction_over_thousands_of_histories(**case: Any) -> None:
    holds_of_every_compaction(**case)


@pytest.mark.soak
@SOAK
@ANYTHING
def test_two_in_a_row_over_thousands_of_histories(**case: Any) -> None:
    holds_of_two_in_a_row(**case)


SECRETS = [sample for seed in range(4) for sample in keys(seed) if len(sample.secret) >= 12]
SLOTS = st.sampled_from(["user", "reply", "arguments", "result", "note"])


def carrying(slot: str, n: int, text: str) -> list[dict[str, Any]]:
    """A stretch of history that holds a text in one of the places where a secret may turn up."""
    if slot == "arguments":
        return step(n, chars=400, command=f"deploy job_{n} <<E\n{text}\nE")
    if slot == "result":
        asking, result = step(n, chars=300)
        return [asking, {**result, "content": f"error in job_{n}\n{text}\n{result['content']}"}]
    role = {"user": "user", "reply": "assistant", "note": "system"}[slot]
    return [{"role": role, "content": f"Always use this for job_{n}:\n{text}"}]


@st.composite
def leaky_histories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[Sample]]:
    """A history with secrets anywhere in it, and which ones."""
    held = draw(st.lists(st.sampled_from(SECRETS), min_size=1, max_size=6))
    raw: list[dict[str, Any]] = []
    for n, sample in enumerate(held):
        raw += draw(histories(max_groups=6))
        raw += carrying(draw(SLOTS), 5_000 + n, sample.text)
    return [*raw, *draw(histories(max_groups=6))], held


LEAKY = given(leaky=leaky_histories(), window=WINDOWS, choices=CHOICES, temper=st.sampled_from([None, "leak", "echo"]))


def holds_of_secrets(
    leaky: tuple[list[dict[str, Any]], list[Sample]], window: int, choices: dict[str, Any], temper: str | None
) -> None:
    """None is in the handoff or in what a summariser reads, not even most of one, whatever comes back."""
    raw, held = leaky
    told = "## Goal\nRun all jobs as before.\n## Critical Context\n" + "\n".join(s.text for s in held)
    asks = {"leak": Scripted(told), "echo": Scripted(transcript_of)}
    ask = asks[temper] if temper else None
    report = perdure.compress(raw, context_length=window, summarize=ask, settings=choices)
    for sample in held:
        for text in (report.handoff, *(ask.prompts if ask else ())):
            assert sample.secret not in text, sample.kind
            assert sample.secret[6:] not in text, sample.kind


@pytest.mark.spec("E9")
@SAMPLE
@LEAKY
def test_no_secret_in_any_handoff_or_prompt_wherever_it_turned_up(**case: Any) -> None:
    holds_of_secrets(**case)


@pytest.mark.soak
@SOAK
@LEAKY
def test_no_secret_over_thousands_of_histories(**case: Any) -> None:
    holds_of_secrets(**case)


@pytest.mark.spec("E9")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("temper", [None, "leaking"])
def test_no_secret_of_the_corpus_is_in_any_handoff_or_prompt(seed: int, temper: str | None) -> None:
    samples = [s for s in keys(seed) if len(s.secret) >= 12]
    raw: list[dict[str, Any]] = []
    for n, sample in enumerate(samples):
        raw.append({"role": "user", "content": f"Please always use this for job_{n}:\n{sample.text}"})
        raw += step(n, chars=600, command=f"deploy job_{n} <<E\n{sample.text}\nE")
        raw.append({"role": "tool", "tool_call_id": f"late_{n}", "content": f"error in job_{n}\n{sample.text}"})
        raw.append({"role": "assistant", "content": f"job_{n} runs with\n{sample.text}"})
    raw.append({"role": "user", "content": f"Now run the last one again with\n{samples[0].text}"})
    leak = "## Goal\nRun all jobs as before.\n## Critical Context\n" + "\n".join(s.text for s in samples)
    ask = Scripted(leak) if temper else None
    report = perdure.compress(raw, context_length=64_000, summarize=ask)
    assert report.outcome != "nothing_to_do"
    for sample in samples:
        for text in (report.handoff, *(ask.prompts if ask else ())):
            assert sample.secret not in text, sample.kind
