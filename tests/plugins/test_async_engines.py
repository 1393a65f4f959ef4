"""Engines of somebody else's in a real agent, as plain and as coroutine functions: each gets services that suit it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from support.noting_engines import AwaitedNoting, Noting, PlainNoting

NOTE = "They talked about the parser."


def answer(request: ScriptRequest) -> Any:
    last = request.body["messages"][-1]
    if "note it down" in str(last["content"]):
        return NOTE
    return Say(calls=(Call("look_up", {}),)) if "look" in str(last["content"]) and last["role"] == "user" else "Noted."


@pytest.mark.spec("M1", "M2")
@pytest.mark.parametrize("make", [PlainNoting, AwaitedNoting])
def test_an_engine_asks_for_a_summary_and_offers_a_tool_in_its_own_way(tmp_path: Path, make: type[Noting]) -> None:
    folder = tmp_path / "plugins" / "context_engine" / "noting"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f"from support.noting_engines import {make.__name__} as plugin\n")
    make.threads.clear()
    settings = {"model": {"context_length": 20_000}, "context": {"engine": "noting"}}
    loop_threads: set[int] = set()
    with (
        Simulator(script=answer) as sim,
        perdure.Agent(
            model="m-1",
            provider="custom",
            base_url=sim.base_url,
            api_key="k",
            store=tmp_path / "perdure.db",
            home=tmp_path,
            tools=(),
            settings=settings,
        ) as agent,
    ):
        agent.events.tap(lambda event: loop_threads.add(threading.get_ident()))
        for n in range(4):
            agent.chat(f"question {n} about the parser")
        report = agent.compress()
        assert report.outcome == "compacted", report.message
        assert report.messages[0]["content"] == f"(notes: {NOTE})"
        agent.chat("look it up")
        assert [m["content"] for m in sim.requests[-1].body["messages"] if m["role"] == "tool"] == ["looked up"]
    assert len(loop_threads) == 1
    assert all((ident in loop_threads) == (make is AwaitedNoting) for ident in make.threads)
    assert len(make.threads) == 2
