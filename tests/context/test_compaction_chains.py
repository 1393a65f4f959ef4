"""Conversations in a log, compacted again and again as they grow: what must hold after every step of the chain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.config.sections import CompressionSettings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, EngineServices
from perdure.core import rules
from perdure.core.messages import Entry, Message
from perdure.core.ports import Summary
from support.compaction import HeldClock, Shelf
from support.long_histories import histories
from support.summarisers import GOOD, HOSTILE

SAMPLE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SOAK = settings(max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "target_ratio": st.sampled_from([0.1, 0.4, 0.8]),
        "protect_last_n": st.sampled_from([1, 5, 20]),
        "protect_first_n": st.sampled_from([0, 3]),
        "head_decay": st.booleans(),
        "threshold": st.sampled_from([0.2, 0.9]),
    },
)
CHAIN = given(
    rounds=st.lists(histories(max_groups=14), min_size=1, max_size=4),
    window=st.sampled_from([1_000, 3_000, 9_000, 16_000, 32_000]),
    choices=CHOICES,
    temper=st.sampled_from([None, "slow", *HOSTILE]),
)


class Slow:
    """Answers well, but only after longer than anyone waits, by the clock handed in."""

    def __init__(self, clock: HeldClock) -> None:
        self._clock = clock

    def __call__(self, prompt: str, *, max_tokens: int) -> Summary:
        self._clock.pass_s(100)
        return Summary(GOOD, model="slow-1")


@dataclass
class Conversation:
    """A log that only grows, and the view of it that a chain of compactions leaves."""

    engine: ContextCompressor
    log: list[Entry] = field(default_factory=list)
    view: list[Entry] = field(default_factory=list)
    sessions: int = 0

    def add(self, messages: list[Message]) -> None:
        for message in messages:
            self.log.append(Entry(len(self.log), message))
            self.view.append(self.log[-1])

    def compact(self) -> Compaction:
        done = self.engine.compress(self.view)
        if done.is_noop:
            assert done.apply(self.view) == self.view
            return done
        view = []
        for item in done.apply(self.view):
            if isinstance(item, Message):
                self.log.append(Entry(len(self.log), item))
                item = self.log[-1]
            view.append(item)
        self.view = view
        self.sessions += 1
        self.engine.on_session_start(f"s_{self.sessions}", reason="compression", previous=f"s_{self.sessions - 1}")
        return done


def started(window: int, choices: dict[str, Any], temper: str | None) -> Conversation:
    clock, chosen = HeldClock(), CompressionSettings(**choices)
    ask = Slow(clock) if temper == "slow" else HOSTILE[temper]() if temper else None
    engine = ContextCompressor(context_length=window, settings=chosen, clock=clock)
    services = EngineServices(summarize=ask, state=Shelf(), settings=chosen, clock=clock)
    engine.on_session_start("s_0", services=services)
    return Conversation(engine)


def nothing_is_lost(talk: Conversation, done: Compaction) -> None:
    """Whatever was said is in view or behind the address of the one handoff in view, and never both."""
    handoffs = [e for e in talk.view if e.message.kind == "handoff"]
    assert len(handoffs) == 1
    assert done.handoff_data is not None
    covered = {seq for lo, hi in done.handoff_data.covers for seq in range(lo, hi + 1)}
    said = {e.seq for e in talk.log if e.message.kind != "handoff"}
    shown = {e.seq for e in talk.view} - {handoffs[0].seq}
    assert covered | shown == said
    assert not covered & shown
    assert done.handoff_data.message_count == len(covered)


def newest_request_stands_behind_it(talk: Conversation) -> None:
    newest = next((e for e in reversed(talk.log) if e.message.is_request), None)
    at = next(i for i, e in enumerate(talk.view) if e.message.kind == "handoff")
    assert newest is None or newest in talk.view[at:]


def holds_of_a_chain(
    rounds: list[list[dict[str, Any]]], window: int, choices: dict[str, Any], temper: str | None
) -> None:
    talk = started(window, choices, temper)
    for raw in rounds:
        talk.add([Message.from_dict(m) for m in raw])
        done = talk.compact()
        if done.is_noop:
            assert done.message
            continue
        assert rules.violations(done.messages) == []
        assert done.after_tokens < done.before_tokens
        nothing_is_lost(talk, done)
        newest_request_stands_behind_it(talk)
        assert talk.compact().is_noop, "a second pass without new content"


@pytest.mark.spec("D3", "D4", "D7", "D8", "D9", "E5", "E11", "F1", "F4")
@SAMPLE
@CHAIN
def test_whatever_was_said_stays_in_view_or_behind_one_address(**case: Any) -> None:
    holds_of_a_chain(**case)


@pytest.mark.soak
@SOAK
@CHAIN
def test_chains_over_thousands_of_conversations(**case: Any) -> None:
    holds_of_a_chain(**case)
