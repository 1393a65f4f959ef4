"""The one counter: last real prompt plus what was appended, calibrated, never moved by output."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.messages import Entry, Message, assistant, user
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.models.tokens import Calibration, CalibrationStore, TokenCounter, estimate_tokens, family_of

T = TypeVar("T")
WORDS = "the next step is to read the file and to run its tests "
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}


class Memory:
    """A key-value store in memory."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    def get(self, key: str) -> Any:
        return self._state.get(key)

    def set(self, key: str, value: Any) -> None:
        self._state[key] = value


def prompt(tokens: int, *, output: int = 0, cached: int = 0) -> CanonicalUsage:
    return CanonicalUsage(input_tokens=tokens - cached, cache_read_tokens=cached, output_tokens=output)


def entries(texts: list[str], start: int = 0) -> list[Entry]:
    return [Entry(start + i, user(t)) for i, t in enumerate(texts)]


def long_history(n: int = 20) -> list[Entry]:
    return entries([f"{i}: {WORDS * 10}" for i in range(n)])


@pytest.mark.spec("B1", "B2")
def test_before_any_reply_the_whole_request_is_estimated() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    counter = TokenCounter("gpt-5", system="Be brief.", tools=tools)
    counter.extend(entries([WORDS] * 3))
    expected = estimate_tokens([user(WORDS)] * 3, system="Be brief.", tools=tools, model="gpt-5")
    assert counter.estimate == pytest.approx(expected, abs=1)
    assert counter.last_prompt_tokens is None


@pytest.mark.spec("B2", "A6", "C4")
def test_after_a_reply_it_is_the_real_prompt_plus_what_was_appended() -> None:
    counter = TokenCounter("gpt-5")
    counter.extend(long_history())
    guess = counter.estimate
    counter.observe(prompt(round(guess * 1.1), cached=500))
    assert counter.estimate == counter.last_prompt_tokens == round(guess * 1.1)
    counter.append(Entry(99, assistant(WORDS * 30)))
    added = estimate_tokens([assistant(WORDS * 30)], model="gpt-5") * 1.1
    assert counter.estimate == pytest.approx(round(guess * 1.1) + added, abs=2)
    assert counter.appended_tokens == pytest.approx(added, abs=2)


@pytest.mark.spec("B6")
def test_output_and_reasoning_never_count() -> None:
    counter = TokenCounter("gpt-5")
    counter.extend(long_history())
    counter.observe(CanonicalUsage(input_tokens=3_000, output_tokens=90_000, reasoning_tokens=80_000))
    assert counter.estimate == 3_000


@pytest.mark.spec("A3", "B6", "C5")
@pytest.mark.parametrize("usage", [NOT_REPORTED, CanonicalUsage(), CanonicalUsage(output_tokens=12)])
def test_a_reply_without_a_prompt_size_leaves_the_estimate_standing(usage: CanonicalUsage) -> None:
    counter = TokenCounter("gpt-5")
    counter.extend(long_history())
    counter.observe(prompt(4_000))
    counter.append(Entry(99, user(WORDS)))
    before = counter.estimate
    counter.observe(usage)
    assert counter.estimate == before > 4_000


@pytest.mark.spec("C4")
def test_a_reply_appended_before_its_usage_is_read_is_not_taken_for_part_of_the_prompt() -> None:
    early, late = TokenCounter("gpt-5"), TokenCounter("gpt-5")
    for counter in (early, late):
        counter.extend(long_history())
        counter.begin_call()
    early.observe(prompt(4_000))
    early.append(Entry(50, assistant(WORDS * 20)))
    late.append(Entry(50, assistant(WORDS * 20)))
    late.observe(prompt(4_000))
    assert early.estimate == late.estimate > 4_000


@pytest.mark.spec("B2")
def test_the_cost_of_an_image_is_learned_from_usage() -> None:
    counter = TokenCounter("gpt-5")
    counter.extend(long_history())
    counter.observe(prompt(counter.estimate))
    known = counter.estimate
    counter.append(Entry(50, Message.from_dict(IMAGE)))
    assert counter.estimate - known == pytest.approx(family_of("gpt-5").image_tokens, abs=6)
    counter.observe(prompt(known + 1_404))
    assert counter.calibration.image_tokens == pytest.approx(1_400, abs=3)
    counter.append(Entry(51, Message.from_dict(IMAGE)))
    assert counter.estimate - (known + 1_404) == pytest.approx(1_404, abs=6)


@pytest.mark.spec("B2")
def test_an_absurd_prompt_size_does_not_bend_every_later_estimate() -> None:
    counter = TokenCounter("gpt-5")
    counter.extend(long_history())
    counter.observe(prompt(7))
    assert counter.calibration.ratio == 0.5
    counter.observe(prompt(9_000_000))
    assert counter.calibration.ratio == 2.0


@pytest.mark.spec("B2", "C5")
def test_a_compaction_starts_from_a_calibrated_estimate() -> None:
    counter = TokenCounter("gpt-5", system="Be brief. " * 50)
    history = long_history(40)
    counter.extend(history)
    counter.observe(prompt(round(counter.estimate * 1.2)))
    kept = history[-5:]
    counter.rebase(kept)
    raw = estimate_tokens([e.message for e in kept], system="Be brief. " * 50, model="gpt-5")
    assert counter.last_prompt_tokens is None
    assert counter.estimate == pytest.approx(raw * 1.2, rel=0.01)
    counter.observe(prompt(777))
    assert counter.estimate == 777


@pytest.mark.spec("B2", "C3")
def test_a_model_switch_forgets_what_the_old_model_taught() -> None:
    counter = TokenCounter("gpt-5")
    counter.extend(long_history())
    counter.observe(prompt(round(counter.estimate * 1.5)))
    counter.switch_model("claude-sonnet-4-5")
    expected = estimate_tokens([e.message for e in long_history()], model="claude-sonnet-4-5")
    assert counter.estimate == pytest.approx(expected, abs=1)
    assert counter.last_prompt_tokens is None
    assert counter.calibration.ratio == 1.0


@pytest.mark.spec("B2")
def test_what_was_learned_about_a_model_is_there_for_the_next_conversation() -> None:
    state: dict[str, Any] = {}
    kept = CalibrationStore(Memory(state))
    counter = TokenCounter("gpt-5")
    counter.extend(long_history())
    raw = counter.estimate
    counter.observe(prompt(round(raw * 1.2)))
    kept.keep("openai", "gpt-5", counter.calibration)
    fresh = TokenCounter("gpt-5", calibration=CalibrationStore(Memory(state)).get("OpenAI", "GPT-5"))
    fresh.extend(long_history())
    assert fresh.estimate == pytest.approx(raw * 1.2, rel=0.01)
    assert kept.get("openai", "gpt-5-mini") == Calibration()


@pytest.mark.parametrize("stored", [7, "x", {}, {"ratio": "1"}, {"ratio": 99}, {"ratio": True}, {"image_tokens": -1}])
def test_a_damaged_calibration_is_the_neutral_one(stored: object) -> None:
    kept = CalibrationStore(Memory({"calibration:openai:gpt-5": stored}))
    assert kept.get("openai", "gpt-5") == Calibration()


@pytest.mark.spec("B1")
def test_a_changed_system_prompt_or_tool_list_moves_the_estimate() -> None:
    counter = TokenCounter("gpt-5")
    counter.extend(long_history())
    counter.observe(prompt(4_000))
    counter.set_fixed(system=("You are careful. " * 40, "Turns were compacted."))
    assert counter.estimate > 4_100
    assert counter.fixed_tokens > 100
    counter.set_fixed()
    assert counter.estimate == 4_000


def test_reasoning_counts_only_where_it_is_sent_back() -> None:
    thinking = Message(role="assistant", content="Done.", reasoning=WORDS * 50, kind="assistant")
    silent, chatty = TokenCounter("gpt-5"), TokenCounter("deepseek-chat", sends_reasoning=True)
    for counter in (silent, chatty):
        counter.append(Entry(0, thinking))
    assert silent.estimate < 10
    assert chatty.estimate > 400


@pytest.mark.spec("B2b")
@pytest.mark.parametrize(("reported", "is_billed"), [(1_500, True), (1_030, False)])
def test_a_service_that_leaves_reasoning_out_of_its_count_is_noticed(reported: int, is_billed: bool) -> None:
    counter = TokenCounter("deepseek-chat", sends_reasoning=True)
    counter.append(Entry(0, Message(role="user", content=WORDS * 100)))
    counter.observe(prompt(1_000))
    thinking = Message(role="assistant", content="Done.", reasoning=WORDS * 50, kind="assistant")
    counter.append(Entry(1, thinking))
    assert counter.estimate > 1_300
    counter.observe(prompt(reported))
    assert counter.estimate == reported
    counter.append(Entry(2, thinking))
    assert (counter.estimate > reported + 300) is is_billed


@pytest.mark.spec("B3")
def test_appending_looks_only_at_what_is_new() -> None:
    measured: list[int] = []

    class Watched(Entry):
        __slots__ = ()

        def memo(self, key: Hashable, compute: Callable[[Message], T]) -> T:
            def noted(message: Message) -> T:
                measured.append(self.seq)
                return compute(message)

            return super().memo(key, noted)

    counter = TokenCounter("gpt-5")
    history = [Watched(i, user(WORDS)) for i in range(10_000)]
    counter.extend(history)
    assert len(measured) == 10_000
    measured.clear()
    counter.append(Watched(10_000, user(WORDS)))
    assert counter.estimate > 0
    counter.switch_model("claude-opus-4-8")
    assert counter.estimate > 0
    counter.rebase(history[-50:])
    assert measured == [10_000]


@pytest.mark.spec("B2", "B6")
@given(
    st.lists(
        st.tuples(st.text(max_size=60), st.none() | st.integers(-5, 10**7), st.booleans()), min_size=1, max_size=12
    )
)
def test_whatever_services_report_the_estimate_is_a_sane_number(steps: list[tuple[str, int | None, bool]]) -> None:
    counter = TokenCounter("gpt-5", system="x")
    for seq, (text, reported, has_image) in enumerate(steps):
        counter.append(Entry(seq, Message.from_dict(IMAGE) if has_image else user(text)))
        counter.begin_call()
        counter.observe(NOT_REPORTED if reported is None else CanonicalUsage(input_tokens=reported))
        assert counter.estimate >= 0
        if reported is not None and reported > 0:
            assert counter.estimate == reported
        assert 0.5 <= counter.calibration.ratio <= 2.0


def test_the_estimate_follows_every_change_though_it_is_computed_once_for_each() -> None:
    def reasoned(number: int) -> Message:
        return replace(assistant(f"{WORDS} {number}"), reasoning=WORDS)

    def after(*changes: Callable[[TokenCounter], object], reads_between: bool) -> int:
        counter = TokenCounter("gpt-5", system="Be brief.")
        for change in changes:
            change(counter)
            if reads_between:
                assert counter.estimate == counter.estimate
        return counter.estimate

    changes: list[Callable[[TokenCounter], object]] = [
        lambda counter: counter.append(Entry(1, user(WORDS))),
        lambda counter: counter.begin_call(),
        lambda counter: counter.append(Entry(2, reasoned(2))),
        lambda counter: counter.observe(prompt(9_000)),
        lambda counter: counter.set_fixed(system="Be brief. " + WORDS),
        lambda counter: counter.switch_model("claude-sonnet-4-5", sends_reasoning=True),
        lambda counter: counter.extend([Entry(3, user(WORDS)), Entry(4, reasoned(4))]),
        lambda counter: counter.rebase([Entry(5, user(WORDS))]),
    ]
    for end in range(1, len(changes) + 1):
        assert after(*changes[:end], reads_between=True) == after(*changes[:end], reads_between=False)
