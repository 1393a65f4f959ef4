"""Which model is sent the history to be summarised: the one that answers now, never one the person has left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.providers.routes import EndpointChain
from perdure.store import open_store
from perdure.testing.simulator import Fail, Say, ScriptRequest, Simulator
from support.summarisers import GOOD

WINDOW = 20_000
HISTORY = [
    {"role": role, "content": f"{role} {n}: " + "words about the parser " * 60}
    for n in range(20)
    for role in ("user", "assistant")
]
WRONG_KEY = Fail(status=401, body={"error": {"message": "invalid api key"}})


def is_summary(asked: ScriptRequest) -> bool:
    return "hand-over notes" in str(asked.body["messages"][-1])


def good(asked: ScriptRequest) -> str:
    return GOOD if is_summary(asked) else "Noted."


def summaries_of(sim: Simulator, model: str | None = None) -> list[ScriptRequest]:
    return [r for r in sim.requests if is_summary(r) and model in (None, r.body["model"])]


@contextmanager
def agent_at(sim: Simulator, folder: Path, **settings: Any) -> Iterator[Agent]:
    agent = Agent(
        model="m-1",
        provider="custom",
        base_url=sim.base_url,
        api_key="k",
        store=folder / "perdure.db",
        home=folder,
        tools=(),
        system_prompt="Be brief.",
        settings={"model": {"context_length": WINDOW, "max_tokens": 500}, **settings},
    )
    try:
        yield agent
    finally:
        agent.close()


@pytest.mark.spec("F2", "J10")
def test_after_a_fallback_the_model_that_answers_is_asked_for_summaries(tmp_path: Path) -> None:
    with Simulator(script=lambda a: WRONG_KEY) as broken, Simulator(script=good) as spare:
        fallback = {"provider": "custom", "model": "m-2", "base_url": spare.base_url}
        with agent_at(broken, tmp_path, fallback_providers=[fallback]) as agent:
            agent.run_conversation("And now?", conversation_history=HISTORY[:8])
            refused = len(broken.requests)
            for n in range(12):
                agent.run_conversation(f"round {n}: " + "words about the parser " * 60)
            report = agent.compress()
        assert report.outcome == "compacted"
        assert summaries_of(spare)
        assert len(broken.requests) == refused
        assert not summaries_of(broken)


@pytest.mark.spec("F2", "J10")
def test_a_compaction_asks_the_fallback_when_the_main_model_has_just_died(tmp_path: Path) -> None:
    is_dead = False

    def main(asked: ScriptRequest) -> Fail | str:
        return Fail(status=500, body={"error": {"message": "gone"}}) if is_dead else good(asked)

    with Simulator(script=main) as sim, Simulator(script=good) as spare:
        fallback = {"provider": "custom", "model": "m-2", "base_url": spare.base_url}
        with agent_at(sim, tmp_path, fallback_providers=[fallback]) as agent:
            agent.run_conversation("And now?", conversation_history=HISTORY[:24])
            is_dead = True
            report = agent.compress()
        assert report.outcome == "compacted", report.message
        assert summaries_of(sim), "the main model comes first"
        assert summaries_of(spare, "m-2")


@pytest.mark.spec("F2")
def test_after_a_switch_no_history_goes_to_the_model_before(tmp_path: Path) -> None:
    with Simulator(script=good) as old, Simulator(script=good) as new, agent_at(old, tmp_path) as agent:
        agent.run_conversation("And now?", conversation_history=HISTORY[:24])
        asked_before = len(old.requests)
        agent.switch_model(EndpointChain((replace(agent.endpoint, model="local-1", base_url=new.base_url),)))
        agent.run_conversation("Go on: " + "words about the parser " * 60)
        assert agent.compress().outcome == "compacted"
        assert len(old.requests) == asked_before
        assert summaries_of(new, "local-1")


@pytest.mark.spec("F2", "C10")
def test_a_summary_being_written_is_cancelled_by_a_switch_and_not_retried_there(tmp_path: Path) -> None:
    asked = threading.Event()

    def busy(request: ScriptRequest) -> Any:
        if not is_summary(request):
            return "Noted."
        asked.set()
        # The transport would wait and try again at the same place.
        return Fail(status=503, headers={"retry-after": "0.3"})

    with Simulator(script=busy) as old, Simulator(script=good) as new, agent_at(old, tmp_path) as agent:
        agent.run_conversation("And now?", conversation_history=HISTORY[:24])
        run = threading.Thread(target=agent.compress)
        run.start()
        assert asked.wait(10)
        agent.switch_model(EndpointChain((replace(agent.endpoint, model="local-1", base_url=new.base_url),)))
        count = len(old.requests)
        run.join(10)
        assert not run.is_alive()
        assert len(old.requests) == count
        assert agent.compress().outcome in ("compacted", "nothing_to_do"), "nothing has to cool down"


_OF_SOMETHING_ELSE = (
    "## Goal\nTranslate the employee handbook into Polish.\n## Completed Actions\n"
    "1. Chapters one to five are translated and reviewed by Agnieszka.\n2. Agreed upon a glossary of 130 terms.\n"
    "## Key Decisions\nFormal address throughout, as in the contract with the works council.\n"
    "## Remaining Work\nChapters six to nine, and the table of public holidays."
)


@pytest.mark.spec("F2", "F4")
@pytest.mark.parametrize(
    "answer",
    [
        "",
        _OF_SOMETHING_ELSE,
        "I'm sorry, but I can't help with summarising that.",
        "<html><body>502 Bad Gateway</body></html> please try again later",
    ],
)
def test_an_answer_that_is_no_summary_goes_once_to_the_main_model(tmp_path: Path, answer: str) -> None:
    def script(request: ScriptRequest) -> Any:
        return Say(answer) if request.body["model"] == "small-1" else good(request)

    with (
        Simulator(script=script) as sim,
        agent_at(sim, tmp_path, auxiliary={"compression": {"model": "small-1"}}) as agent,
    ):
        agent.run_conversation("And now?", conversation_history=HISTORY[:24])
        report = agent.compress()
        assert report.outcome == "compacted"
        assert report.handoff_data is not None
        assert report.handoff_data.model.startswith("m-1")
        assert len(summaries_of(sim, "small-1")) == 1
        assert len(summaries_of(sim, "m-1")) == 1


@pytest.mark.spec("F2")
def test_a_main_model_whose_own_summary_was_refused_is_not_asked_twice(tmp_path: Path) -> None:
    def script(request: ScriptRequest) -> Any:
        return Say("I am sorry, but I cannot help with summarising this.") if is_summary(request) else "Noted."

    with Simulator(script=script) as sim, agent_at(sim, tmp_path) as agent:
        agent.run_conversation("And now?", conversation_history=HISTORY[:24])
        report = agent.compress()
        assert report.outcome == "digest"
        assert "refused" in report.message
        assert len(summaries_of(sim)) == 1


def test_a_summary_that_is_under_way_when_the_agent_is_closed_is_in_the_ledger(tmp_path: Path) -> None:
    def reply(asked: ScriptRequest) -> Say:
        return Say("late", delay_s=20) if is_summary(asked) else Say("reply " + "word " * 400)

    with Simulator(window=WINDOW, script=reply) as sim:
        settings = {"model": {"context_length": WINDOW}}
        agent = Agent("m", "custom", base_url=sim.base_url, store=tmp_path / "p.db", tools=(), settings=settings)
        for n in range(12):
            agent.chat(f"question {n} " + "blah " * 300)
            give_up = time.monotonic() + 1
            while not summaries_of(sim) and n >= 6 and time.monotonic() < give_up:
                time.sleep(0.02)
            if summaries_of(sim):
                break
        agent.close()
        sent = len(sim.requests)
        assert len(summaries_of(sim)) == 1
    with closing(open_store(tmp_path / "p.db")) as store:
        conversation = store.conversations.list().conversations[0]
        assert store.ledger.totals(conversation.tip_session_id).calls == sent
