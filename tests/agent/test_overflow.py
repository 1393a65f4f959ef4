"""A call that the service refuses as too long: what is tried, what is never sent twice, and what the person reads."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perdure.config.settings import Settings
from perdure.core.events import CompactionFinished, Event, Recovered, TurnFinished
from perdure.testing.simulator import Fail
from support.agents import Bench, bench
from support.long_histories import working_session

# "prompt is too long", in a wording that states no limit.
UNSTATED = Fail(status=400, body={"error": {"message": "prompt is too long", "type": "invalid_request_error"}})
STATED = Fail("openai_overflow")


async def events_of(b: Bench, text: str) -> list[Event]:
    return [event async for event in b.agent.stream(text)]


def bodies(b: Bench) -> list[Any]:
    return [request.body["messages"] for request in b.sim.requests]


@pytest.mark.spec("G4", "D8")
@pytest.mark.parametrize("refusal", [UNSTATED, STATED])
def test_a_request_that_nothing_could_be_taken_from_is_not_sent_again(tmp_path: Path, refusal: Fail) -> None:
    with bench(tmp_path, *[refusal] * 9, window=200_000) as b:
        heard = asyncio.run(events_of(b, "Hello?"))
        assert len(b.sim.requests) == 1
        (end,) = [e for e in heard if isinstance(e, TurnFinished)]
        assert end.outcome == "failed"
        for wanted in ("Nothing more could be compacted.", "/undo", "/model", "Nothing of the conversation is lost"):
            assert wanted in (end.error or "")
        told = [e for e in heard if isinstance(e, CompactionFinished)]
        assert 1 <= len(told) <= 3
        assert {e.outcome for e in told} == {"nothing_to_do"}
        assert sum(isinstance(e, Recovered) for e in heard) == 1


@pytest.mark.spec("G3", "G4")
def test_without_a_stated_limit_the_window_steps_down_until_something_gives_way(tmp_path: Path) -> None:
    with bench(tmp_path, UNSTATED, "Done.", window=200_000) as b:
        result = b.agent.run_conversation("And now?", conversation_history=working_session(24))
        assert result.final_response == "Done."
        first, second = bodies(b)
        assert len(second) < len(first)
        assert b.models.learned == [], "a guess is not kept"


@pytest.mark.spec("G3")
def test_with_compaction_off_a_stated_limit_is_learned_all_the_same(tmp_path: Path) -> None:
    off = Settings.model_validate({"compression": {"enabled": False}})
    with bench(tmp_path, STATED, settings=off, window=2_000_000) as b:
        heard = asyncio.run(events_of(b, "Hello?"))
        (end,) = [e for e in heard if isinstance(e, TurnFinished)]
        assert end.outcome == "failed"
        assert len(b.sim.requests) == 1
        assert not any(isinstance(e, CompactionFinished) for e in heard)
        (limit,) = b.models.learned
        assert b.agent.gauge.window == limit < 2_000_000


@pytest.mark.spec("G4")
def test_no_refused_request_is_ever_sent_twice(tmp_path: Path) -> None:
    with bench(tmp_path, *[UNSTATED] * 9, window=64_000) as b:
        result = b.agent.run_conversation("And now?", conversation_history=working_session(24))
        assert result.outcome == "failed"
        sent = bodies(b)
        assert 2 <= len(sent) <= 4
        assert all(one != other for one, other in pairwise(sent))
        assert len(b.agent.run_conversation("Still there?").messages) > 0


@pytest.mark.spec("G4")
def test_a_message_that_alone_exceeds_the_window_is_reported_before_it_is_sent(tmp_path: Path) -> None:
    with bench(tmp_path, "Done.", window=8_000) as b:
        problem = b.agent.describe_oversize("row 1, row 2\n" * 5_000)
        assert problem is not None
        assert "has room for 7,741. It was not sent." in problem
        assert "Put the text into a file" in problem
        assert b.agent.describe_oversize("row 1, row 2\n" * 500) is None
        assert b.sim.requests == []
        assert b.agent.session_id is None, "nothing is stored of it"
