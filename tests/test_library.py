"""What a program that imports Perdure meets: tools, streams, results, exceptions, wrong arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.core.events import TextDelta, TurnFinished
from perdure.testing.simulator import Call, Fail, Say, Simulator

LONG = [
    {"role": "user" if i % 2 == 0 else "assistant", "content": f"turn {i}: " + f"the parser has rule {i} " * 40}
    for i in range(40)
]


def agent(sim: Simulator, folder: Path, **options: Any) -> Agent:
    return Agent(model="m-1", base_url=sim.base_url, home=folder, settings={}, store=folder / "perdure.db", **options)


def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def offered(one: Agent) -> set[str]:
    return {tool.name for tool in one.deps.tools.registry}


# -- tools -----------------------------------------------------------------------------------------------------------


def test_own_tools_are_offered_beside_the_default_ones(tmp_path: Path) -> None:
    with Simulator(script=[Say(calls=(Call("weather", {"city": "Oslo"}),)), "It rains."]) as sim:
        both = agent(sim, tmp_path, tools=["default", weather])
        assert {"weather", "terminal", "read_file"} <= offered(both)
        assert both.chat("How is Oslo?") == "It rains."
        assert offered(agent(sim, tmp_path, tools=[weather])) == {"weather"}
        assert offered(agent(sim, tmp_path, tools=["read_file", weather])) == {"weather", "read_file"}


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (["termnal"], "did you mean 'terminal'"),
        ([5], "5 is no tool"),
        ("terminal", "tools takes a list"),
        ([lambda x: x], "cannot be made a tool"),
    ],
)
def test_what_is_no_tool_is_refused_in_plain_words(tmp_path: Path, tools: Any, message: str) -> None:
    with Simulator() as sim, pytest.raises(perdure.ConfigError, match=message):
        agent(sim, tmp_path, tools=tools)


def test_two_own_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    def other() -> Callable[..., str]:
        def weather(day: str) -> str:
            """The weather on a day."""
            return "snow"

        return weather

    for beside in ([], ["default"]):
        with Simulator() as sim, pytest.raises(perdure.ConfigError, match="two tools in tools= are called 'weather'"):
            agent(sim, tmp_path, tools=[weather, other(), *beside])


def test_an_own_tool_in_the_place_of_a_built_in_one_is_reported(tmp_path: Path) -> None:
    def terminal(command: str) -> str:
        """My own."""
        return "mine"

    with Simulator(script=[Say(calls=(Call("terminal", {"command": "ls"}),)), "Done."]) as sim:
        one = agent(sim, tmp_path, tools=["default", terminal])
        assert [w for w in one.warnings if "your tool 'terminal' takes the place" in w]
        result = one.run_conversation("go")
        assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["mine"]
        for tools in ([terminal], ["read_file", terminal], ["default", weather]):
            assert not [w for w in agent(sim, tmp_path, tools=tools).warnings if "takes the place" in w]


# -- turns -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_read_with_for_and_with_async_for(tmp_path: Path) -> None:
    with Simulator(script=["One.", "Two."]) as sim, agent(sim, tmp_path, tools=()) as one:
        plain = list(one.stream("hello"))
        assert "".join(e.text for e in plain if isinstance(e, TextDelta)) == "One."
        assert isinstance(plain[-1], TurnFinished)

        async def read() -> list[Any]:
            return [event async for event in one.stream("again")]

        awaited = asyncio.run(read())
        assert "".join(e.text for e in awaited if isinstance(e, TextDelta)) == "Two."


def test_leaving_a_stream_early_interrupts_its_turn(tmp_path: Path) -> None:
    slow = Say("word " * 2_000, chunk_delay_s=0.2)
    with Simulator(script=[slow, "Next."]) as sim, agent(sim, tmp_path, tools=()) as one:
        for event in one.stream("hello"):
            if isinstance(event, TextDelta):
                break
        one.conversation.stop()
        assert one.chat("again") == "Next."


@pytest.mark.parametrize("wrong", [None, 5, ["hi"]])
def test_what_is_no_message_starts_no_turn(tmp_path: Path, wrong: Any) -> None:
    with Simulator() as sim, agent(sim, tmp_path, tools=()) as one:
        calls: list[Callable[[Any], Any]] = [one.chat, one.run_conversation, one.stream]
        for call in calls:
            with pytest.raises(perdure.InvalidMessage, match="text"):
                call(wrong)
        assert one.session_id is None


def test_a_closed_agent_says_how_to_go_on(tmp_path: Path) -> None:
    with Simulator(script=["One."]) as sim:
        with agent(sim, tmp_path, tools=()) as one:
            one.chat("hello")
        with pytest.raises(perdure.PerdureError, match=r"closed.*session_id"):
            one.chat("again")
        assert one.session_id is not None


def test_the_model_is_switched_by_its_name(tmp_path: Path) -> None:
    with Simulator() as sim, agent(sim, tmp_path, tools=()) as one:
        one.switch_model("m-2")
        assert (one.endpoint.model, one.endpoint.base_url) == ("m-2", sim.base_url)


def test_a_failed_turn_raises_an_exported_exception(tmp_path: Path) -> None:
    with (
        Simulator(script=[Fail(status=400, body={"error": {"message": "no"}})]) as sim,
        agent(sim, tmp_path, tools=()) as one,
    ):
        with pytest.raises(perdure.TurnFailed):
            one.chat("hello")
        assert issubclass(perdure.TurnFailed, perdure.PerdureError)


def test_an_unknown_callback_is_refused(tmp_path: Path) -> None:
    with Simulator() as sim:
        with pytest.raises(perdure.ConfigError, match="did you mean 'step_callback'"):
            agent(sim, tmp_path, callbacks={"step_calback": print})
        with pytest.raises(perdure.ConfigError, match="step_callback takes a function"):
            agent(sim, tmp_path, callbacks={"step_callback": "print"})


# -- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("P5")
def test_results_are_read_as_mappings_too(tmp_path: Path) -> None:
    with Simulator(script=["One."]) as sim, agent(sim, tmp_path, tools=()) as one:
        result = one.run_conversation("hello")
        assert result["final_response"] == result.final_response == "One."
        assert result["messages"][-1]["content"] == "One."
        assert result["usage"]["output_tokens"] == result.usage.output_tokens
        assert (result.get("nothing", 7), "error" in result, "nothing" in result) == (7, True, False)
        assert dict(result)["outcome"] == result.outcome
        with pytest.raises(KeyError, match="final_response"):
            result["response"]
    report = perdure.compress(LONG, context_length=16_000)
    assert report["outcome"] == report.outcome
    assert report["messages"] == report.messages


@pytest.mark.spec("P5")
def test_names_that_other_agents_have_are_there() -> None:
    assert perdure.AIAgent is perdure.Agent
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    marked = perdure.apply_anthropic_cache_control(messages, cache_ttl="1h")
    assert marked == perdure.apply_cache_control(messages, ttl="1h")


def test_the_handoff_of_a_compaction_is_text_whoever_made_it() -> None:
    report = perdure.compress(LONG, context_length=16_000)
    done = perdure.ContextCompressor(context_length=16_000).compress(LONG)
    assert isinstance(report.handoff, str)
    assert isinstance(done.handoff, str)
    assert all((report.handoff, done.handoff))


# -- compaction ------------------------------------------------------------------------------------------------------


def test_compaction_waits_for_the_threshold_where_it_is_asked_to() -> None:
    waits = perdure.compress_if_needed(LONG, context_length=200_000)
    assert (waits.outcome, waits.messages) == ("nothing_to_do", LONG)
    assert "compacts at" in waits.message
    assert perdure.compress_if_needed(LONG, context_length=16_000).outcome == "digest"
    assert perdure.compress_if_needed(LONG, context_length=200_000, prompt_tokens=150_000).outcome == "digest"
    assert asyncio.run(perdure.acompress_if_needed(LONG, context_length=16_000)).outcome == "digest"
    assert perdure.compress(LONG, context_length=200_000).outcome == "digest"  # at once, however little there is


def test_tools_count_for_the_threshold() -> None:
    huge = [{"type": "function", "function": {"name": "f", "description": "word " * 40_000, "parameters": {}}}]
    assert perdure.compress_if_needed(LONG, context_length=60_000).outcome == "nothing_to_do"
    assert perdure.compress_if_needed(LONG, context_length=60_000, tools=huge).outcome == "digest"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"summarize": "gpt-4"}, "summarize is a function"),
        ({"context_length": "8k"}, "context_length is the model's window"),
        ({"prompt_tokens": "many"}, "prompt_tokens is a number"),
        ({"focus": "tests"}, "did you mean 'focus_topic'"),
    ],
)
def test_wrong_arguments_of_a_compaction_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(perdure.ConfigError, match=message):
        perdure.compress_if_needed(LONG, **{"context_length": 16_000, **wrong})


def test_a_text_is_no_list_of_messages() -> None:
    with pytest.raises(perdure.InvalidMessage, match="messages is a list like"):
        perdure.estimate_tokens("hello world")  # type: ignore[arg-type]  # the mistake under test
    wrong: list[Any] = ["hello", {"role": "user", "content": "x"}, None, 5]
    for messages in wrong:
        for compact in (perdure.compress, perdure.compress_if_needed):
            with pytest.raises(perdure.InvalidMessage, match="messages is a list like"):
                compact(messages, context_length=8_000)
    texts: Any = ["hello"]
    assert perdure.compress_if_needed(texts, context_length=8_000).messages[0]["content"] == "hello"


def test_a_missing_key_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Agent("gpt-5-mini", "openai", home=tmp_path, settings={}, store=tmp_path / "perdure.db", tools=()) as one:
        line = one.run_conversation("hi").error or ""
    assert "no key for 'openai': pass api_key=" in line
    assert line.count("credentials.command") == 1


def test_an_agent_closes_itself_behind_async_with(tmp_path: Path) -> None:
    async def talk(sim: Simulator) -> Agent:
        async with agent(sim, tmp_path) as one:
            assert await one.achat("hi") == "Hello."
        return one

    with Simulator(script=["Hello."]) as sim:
        closed = asyncio.run(talk(sim))
        with pytest.raises(perdure.PerdureError, match="this agent is closed"):
            closed.chat("again")
