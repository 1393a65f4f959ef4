"""Vision, web extraction and session search use the chains of their settings, and their calls are in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.core.events import Event, Notice
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator

PIXEL = "data:image/png;base64,iVBORw0KGgo="
QUESTION = {
    "role": "user",
    "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL}}],
}
DOWN = Fail(status=500, body={"error": {"message": "down"}})


def _route(sim: Simulator, model: str) -> dict[str, Any]:
    return {"provider": "custom", "model": model, "base_url": sim.base_url}


@contextmanager
def _agent(sim: Simulator, folder: Path, *, model: str = "m-1", tools: Any = (), **settings: Any) -> Iterator[Agent]:
    agent = Agent(
        model=model,
        provider="custom",
        base_url=sim.base_url,
        api_key="k",
        store=folder / "perdure.db",
        home=folder,
        tools=tools,
        system_prompt="Be brief.",
        settings={"model": {"context_length": 20_000}, **settings},
    )
    try:
        yield agent
    finally:
        agent.close()


def _image_parts(request: ScriptRequest) -> int:
    return str(request.body["messages"]).count(PIXEL)


def _tasks(agent: Agent) -> dict[str, int]:
    rows = agent.deps.store.ledger.usage("task", since_ms=0)
    return {row.group: row.totals.calls for row in rows}


@pytest.mark.spec("P1", "J10")
def test_an_image_is_described_once_for_a_model_that_takes_none(tmp_path: Path) -> None:
    with (
        Simulator(script=lambda a: "A red square.") as main,
        Simulator(script=lambda a: "A red square, 1 pixel.") as eyes,
    ):
        with _agent(main, tmp_path, auxiliary={"vision": _route(eyes, "eyes-1")}) as agent:
            agent.run_conversation(QUESTION)
            agent.run_conversation("And its colour?")
            session = agent.session_id
            assert _tasks(agent) == {"main": 2, "vision": 1}
        with _agent(main, tmp_path, auxiliary={"vision": _route(eyes, "eyes-1")}) as agent:
            agent.run_conversation(QUESTION)
            stored = agent.deps.store.history(session or "").entries
        assert len(eyes.requests) == 1
        assert _image_parts(eyes.requests[0]) == 1
        assert [_image_parts(r) for r in main.requests] == [0, 0, 0]
        assert "A red square, 1 pixel." in str(main.requests[0].body["messages"])
        sent = [r.body["messages"] for r in main.requests]
        assert sent[1][: len(sent[0])] == sent[0]
        assert stored[0].message.to_dict()["content"] == QUESTION["content"]


@pytest.mark.spec("P1", "J10")
def test_the_vision_chain_falls_back_and_a_failure_is_noted(tmp_path: Path) -> None:
    with (
        Simulator(script=lambda a: "ok") as main,
        Simulator(script=lambda a: DOWN) as broken,
        Simulator(script=lambda a: "A cat.") as spare,
    ):
        chain = {**_route(broken, "eyes-1"), "fallback": [_route(spare, "eyes-2")]}
        with _agent(main, tmp_path, auxiliary={"vision": chain}) as agent:
            agent.run_conversation(QUESTION)
        assert "A cat." in str(main.requests[0].body["messages"])
        heard: list[Event] = []
        other = tmp_path / "other"
        other.mkdir()
        with _agent(main, other, auxiliary={"vision": _route(broken, "eyes-1")}) as agent:
            agent.events.tap(heard.append)
            assert agent.run_conversation(QUESTION).outcome == "completed"
        assert "could not be described" in str(main.requests[-1].body["messages"])
        assert any(isinstance(e, Notice) and "could not be described" in e.text for e in heard)


def test_a_model_that_takes_images_gets_them(tmp_path: Path) -> None:
    with Simulator(script=lambda a: "ok") as main, Simulator(script=lambda a: "never") as eyes:
        settings: dict[str, Any] = {"auxiliary": {"vision": _route(eyes, "eyes-1")}}
        with _agent(main, tmp_path, model="gpt-4o", **settings) as agent:
            agent.run_conversation(QUESTION)
        override = [{"model": "m-1", "takes_images": True}]
        with _agent(main, tmp_path, model_overrides=override, **settings) as agent:
            agent.run_conversation(QUESTION)
        with _agent(main, tmp_path) as agent:
            agent.run_conversation(QUESTION)
        assert [_image_parts(r) for r in main.requests] == [1, 1, 1]
        assert not eyes.requests


@pytest.mark.spec("P1", "J10")
def test_a_session_search_is_answered_by_its_own_chain_and_recorded(tmp_path: Path) -> None:
    calls = Say(calls=(Call("session_search", {"query": "which port does the database use", "answer": True}),))
    script = iter(["Noted.", calls, "5432."])
    with (
        Simulator(script=lambda a: next(script)) as main,
        Simulator(script=lambda a: "The port is 5432 [m:1].") as reader,
        _agent(
            main, tmp_path, tools=["session_search"], auxiliary={"session_search": _route(reader, "small-1")}
        ) as agent,
    ):
        agent.run_conversation("The database uses port 5432, keep that in mind.")
        result = agent.run_conversation("Which port was it?")
        answer = next(m for m in result.messages if m["role"] == "tool")["content"]
        assert "The port is 5432 [m:1]." in answer
        assert "[m:1]" in str(reader.requests[0].body["messages"])
        assert _tasks(agent) == {"main": 3, "session_search": 1}


def test_nothing_is_asked_where_no_auxiliary_model_is_configured(tmp_path: Path) -> None:
    with Simulator(script=lambda a: "ok") as main, _agent(main, tmp_path, tools=["default"]) as agent:
        agent.run_conversation("hello")
        offered = {t["function"]["name"]: t["function"] for t in main.requests[0].body["tools"]}
        assert "answer" not in offered["session_search"]["parameters"]["properties"]
        assert "question" not in offered["web_extract"]["parameters"]["properties"]
