"""An engine's own tools and notices reach the model and the person through the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.agent.runner import LoopThread
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import EngineServices
from perdure.core.errors import ToolError
from perdure.core.events import Event, Notice, ToolFinished
from perdure.testing.simulator import Call, Say
from perdure.tools.runtime import ToolRuntime
from perdure.tools.tool import ToolRegistry
from support.agents import Bench, bench


class Finder(ContextCompressor):
    """Offers a tool to look things up in what was compacted, and one no service would take."""

    name = "finder"

    def get_tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        parameters = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        grep = {"name": "grep_log", "description": "Looks a word up.", "parameters": parameters}
        return [{"type": "function", "function": grep}, {"type": "function", "function": {"name": "not a name"}}]

    def handle_tool_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if arguments["word"] == "nothing":
            raise ToolError("nothing was found")
        return f"{name} found {arguments['word']}"


def _agent(b: Bench, *tools: Any) -> ConversationAgent:
    runtime = ToolRuntime(ToolRegistry(tools), clock=b.deps.clock)
    deps = replace(b.deps, engine=Finder(), tools=runtime)
    return ConversationAgent(deps, LoopThread(), services=lambda live: EngineServices())


def _events(agent: ConversationAgent, message: str) -> list[Event]:
    heard: list[Event] = []
    stop = agent.events.listen(heard.append)
    agent.chat(message)
    stop()
    return heard


@pytest.mark.spec("M1", "J7")
def test_the_engines_tools_are_offered_answered_and_seen_like_any_other(tmp_path: Path) -> None:
    script = [Say(calls=(Call("grep_log", {"word": "zebra"}),)), Say(calls=(Call("grep_log", {"word": "nothing"}),))]
    with bench(tmp_path, *script, "Done.") as b:
        heard = _events(_agent(b), "look it up")
        offered = [t["function"]["name"] for t in b.sim.requests[0].body["tools"]]
        results = [m["content"] for m in b.sim.requests[-1].body["messages"] if m["role"] == "tool"]
        assert offered == ["grep_log"]
        assert results == ["grep_log found zebra", "Error: nothing was found"]
        assert [e.call.name for e in heard if isinstance(e, ToolFinished)] == ["grep_log", "grep_log"]
        assert any("left out" in e.text for e in heard if isinstance(e, Notice))
        assert b.sim.violations == []


@pytest.mark.spec("M1")
def test_a_tool_of_the_users_keeps_its_name(tmp_path: Path) -> None:
    def grep_log(word: str) -> str:
        """Looks a word up elsewhere."""
        return f"mine: {word}"

    with bench(tmp_path, Say(calls=(Call("grep_log", {"word": "zebra"}),)), "Done.") as b:
        _events(_agent(b, grep_log), "look it up")
        results = [m["content"] for m in b.sim.requests[-1].body["messages"] if m["role"] == "tool"]
        assert results == ["mine: zebra"]


@pytest.mark.spec("C6")
def test_the_raised_threshold_is_told_once_with_the_way_to_turn_it_off(tmp_path: Path) -> None:
    with bench(tmp_path, window=272_000, provider="openai-codex", model="gpt-5.5") as b:
        told = [e.text for m in ("hello", "again") for e in _events(b.agent, m) if isinstance(e, Notice)]
        assert len(told) == 1
        assert "perdure config set compression.codex_gpt55_autoraise false" in told[0]
        assert b.agent.gauge.threshold == 231_200
