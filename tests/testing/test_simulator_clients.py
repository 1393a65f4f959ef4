"""The official clients take the simulator for the real thing: typed replies, streams, tools, thinking, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.testing.simulator import Call, Fail, Say, Simulator, strict
from support.packages import package

anthropic = package("anthropic")
openai = package("openai")

CALLS = (Call("read", {"path": "a.txt"}, "call_a"), Call("read", {"path": "ü.txt"}, "call_b"))
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
USER = [{"role": "user", "content": "Read both."}]


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(strict()) as running:
        yield running
        assert running.violations == []


@pytest.fixture
def openai_client(sim: Simulator) -> Any:
    return openai.OpenAI(base_url=sim.base_url, api_key="k", max_retries=0)


@pytest.fixture
def anthropic_client(sim: Simulator) -> Any:
    return anthropic.Anthropic(base_url=sim.root_url, api_key="k", max_retries=0)


CHAT_TOOLS = [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]


def chat_usage(usage: Any) -> tuple[int, int, int, int]:
    details = usage.completion_tokens_details.reasoning_tokens
    return usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details.cached_tokens, details


def test_openai_chat_whole(sim: Simulator, openai_client: Any) -> None:
    sim.add(Say("On it.", thinking="Both.", calls=CALLS))
    reply = openai_client.chat.completions.create(model="gpt-x", messages=USER, tools=CHAT_TOOLS)
    choice, billed = reply.choices[0], sim.billed[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "On it.")
    assert choice.message.reasoning_content == "Both."
    assert [(c.id, json.loads(c.function.arguments)) for c in choice.message.tool_calls] == [
        ("call_a", {"path": "a.txt"}),
        ("call_b", {"path": "ü.txt"}),
    ]
    assert chat_usage(reply.usage) == (billed.prompt_tokens, billed.output_tokens, 0, billed.reasoning_tokens)


def test_openai_chat_stream_accumulates_to_the_same(sim: Simulator, openai_client: Any) -> None:
    sim.add(Say("A longer text, streamed in pieces.", calls=CALLS))
    with openai_client.chat.completions.stream(
        model="gpt-x", messages=USER, tools=CHAT_TOOLS, stream_options={"include_usage": True}
    ) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "A longer text, streamed in pieces."
    assert [c.function.arguments for c in final.choices[0].message.tool_calls] == [c.arguments_text for c in CALLS]
    assert chat_usage(final.usage)[:2] == (sim.billed[0].prompt_tokens, sim.billed[0].output_tokens)
    chunks = [e.chunk for e in events if e.type == "chunk"]
    assert [bool(c.choices) for c in chunks] == [True] * (len(chunks) - 1) + [False], (
        "usage comes in a chunk of its own"
    )
    assert all(c.usage is None for c in chunks[:-1])


def test_openai_chat_stream_without_the_option_carries_no_usage(sim: Simulator, openai_client: Any) -> None:
    chunks = list(openai_client.chat.completions.create(model="gpt-x", messages=USER, stream=True))
    assert all(c.usage is None and c.choices for c in chunks)


def test_openai_chat_refusal_and_length(sim: Simulator, openai_client: Any) -> None:
    sim.add(Say(refusal="I will not."), Say("word " * 100))
    create = openai_client.chat.completions.create
    assert create(model="gpt-x", messages=USER).choices[0].message.refusal == "I will not."
    cut = create(model="gpt-x", messages=USER, max_tokens=10)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 10)


RESPONSES_TOOLS = [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}]


def test_openai_responses_whole(sim: Simulator, openai_client: Any) -> None:
    sim.add(Say("On it.", thinking="Both.", calls=CALLS))
    reply = openai_client.responses.create(model="gpt-x", input=USER, tools=RESPONSES_TOOLS)
    assert [i.type for i in reply.output] == ["reasoning", "message", "function_call", "function_call"]
    assert (reply.status, reply.output_text) == ("completed", "On it.")
    assert reply.output[0].summary[0].text == "Both."
    assert reply.usage.total_tokens == sim.billed[0].total_tokens
    assert reply.usage.output_tokens_details.reasoning_tokens == sim.billed[0].reasoning_tokens


def test_openai_responses_stream_has_the_real_order(sim: Simulator, openai_client: Any) -> None:
    sim.add(Say(calls=(Call("read", {"path": "a"}),)), Say("streamed text of some length", thinking="thought"))
    with openai_client.responses.stream(model="gpt-x", input=USER, tools=RESPONSES_TOOLS) as stream:
        names = [e.type for e in stream]
    deltas = names.count("response.function_call_arguments.delta")
    assert names == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        *["response.function_call_arguments.delta"] * deltas,
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    with openai_client.responses.stream(model="gpt-x", input=USER) as stream:
        numbers = [e.sequence_number for e in stream]
        final = stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert final.output_text == "streamed text of some length"


def test_openai_responses_round_trip_with_reasoning_and_tools(sim: Simulator, openai_client: Any) -> None:
    sim.add(Say("", thinking="Think.", calls=CALLS), Say("Done."))
    create = openai_client.responses.create
    first = create(model="gpt-x", input=USER, store=False, include=["reasoning.encrypted_content"])
    items = [i.model_dump(exclude_none=True) for i in first.output]
    answers = [{"type": "function_call_output", "call_id": c.id, "output": "text"} for c in CALLS]
    assert create(model="gpt-x", input=[*USER, *items, *answers], store=False).output_text == "Done."


ANTHROPIC_TOOLS = [{"name": "read", "input_schema": SCHEMA}]
THINKING = {"type": "enabled", "budget_tokens": 1024}


def test_anthropic_whole_and_round_trip_with_thinking(sim: Simulator, anthropic_client: Any) -> None:
    sim.add(Say("On it.", thinking="Both.", calls=CALLS), Say("Done."))
    fixed = {"model": "claude-x", "max_tokens": 4000, "tools": ANTHROPIC_TOOLS, "thinking": THINKING}
    reply = anthropic_client.messages.create(messages=USER, **fixed)
    assert [b.type for b in reply.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert (reply.stop_reason, reply.content[3].input) == ("tool_use", {"path": "ü.txt"})
    assert reply.usage.output_tokens == sim.billed[0].output_tokens
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": "text"} for c in CALLS]
    history = [*USER, {"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
    assert anthropic_client.messages.create(messages=history, **fixed).content[0].text == "Done."


def test_anthropic_stream_accumulates_to_the_same(sim: Simulator, anthropic_client: Any) -> None:
    sim.add(Say("A longer text, streamed in pieces.", thinking="A thought.", calls=CALLS))
    with anthropic_client.messages.stream(model="claude-x", max_tokens=4000, messages=USER) as stream:
        list(stream)
        final = stream.get_final_message()
    assert [b.type for b in final.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert final.content[1].text == "A longer text, streamed in pieces."
    assert final.content[3].input == {"path": "ü.txt"}
    assert final.content[0].signature
    assert (final.usage.input_tokens, final.usage.output_tokens) == (
        sim.billed[0].input_tokens,
        sim.billed[0].output_tokens,
    )


def test_anthropic_raw_stream_has_the_real_order(sim: Simulator, anthropic_client: Any) -> None:
    sim.add(Say("Text."))
    fixed = {"model": "claude-x", "max_tokens": 100, "messages": USER}
    with anthropic_client.messages.with_streaming_response.create(stream=True, **fixed) as response:
        names = [line.removeprefix("event: ") for line in response.iter_lines() if line.startswith("event: ")]
    assert names == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_counts_and_models_as_the_clients_ask_for_them(
    sim: Simulator, openai_client: Any, anthropic_client: Any
) -> None:
    system = "Be brief."
    counted = anthropic_client.messages.count_tokens(model="claude-x", system=system, messages=USER)
    anthropic_client.messages.create(model="claude-x", max_tokens=10, system=system, messages=USER)
    assert counted.input_tokens == sim.billed[0].prompt_tokens
    assert [m.id for m in openai_client.models.list()] == ["simulator"]
    assert [m.id for m in anthropic_client.models.list()] == ["simulator"]


def test_errors_are_the_clients_own(sim: Simulator, openai_client: Any, anthropic_client: Any) -> None:
    sim.add(Fail("openai_rate_limit"), Fail("anthropic_overloaded"))
    with pytest.raises(openai.RateLimitError, match="tokens per min"):
        openai_client.chat.completions.create(model="gpt-x", messages=USER)
    with pytest.raises(anthropic.APIStatusError, match="Overloaded") as overloaded:
        anthropic_client.messages.create(model="claude-x", max_tokens=10, messages=USER)
    assert overloaded.value.status_code == 529
    sim.change(window=3)
    with pytest.raises(openai.BadRequestError, match="maximum context length is 3 tokens") as too_long:
        openai_client.chat.completions.create(model="gpt-x", messages=USER)
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 4 tokens > 3 maximum"):
        anthropic_client.messages.create(model="claude-x", max_tokens=10, messages=USER)


def test_the_async_clients_too(sim: Simulator) -> None:
    import asyncio

    async def main() -> tuple[str, str]:
        sim.add("one", "two")
        async with openai.AsyncOpenAI(base_url=sim.base_url, api_key="k") as client:
            chat = await client.chat.completions.create(model="gpt-x", messages=USER)
        async with anthropic.AsyncAnthropic(base_url=sim.root_url, api_key="k") as client:
            message = await client.messages.create(model="claude-x", max_tokens=10, messages=USER)
        return chat.choices[0].message.content, message.content[0].text

    assert asyncio.run(main()) == ("one", "two")
