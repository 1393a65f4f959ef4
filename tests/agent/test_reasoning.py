"""Reasoning that is sent back: only what the service needs, all of it counted, none that compaction cannot mend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.core.messages import Message, ToolCall
from perdure.providers.codec import ReasoningRule
from perdure.providers.types import Endpoint
from perdure.testing.simulator import Call, Say, ScriptRequest
from support.agents import Bench, bench

FIELDS = ("reasoning", "reasoning_content", "reasoning_details")


def look(what: str) -> str:
    """Looks at something."""
    return f"{what} is fine."


def thinks(tokens: int) -> str:
    return "think " * tokens


def sent(b: Bench, call: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = b.sim.requests[call].body["messages"]
    return messages


def thinking_in(messages: list[dict[str, Any]]) -> int:
    return sum(any(field in m for field in FIELDS) for m in messages)


def step(what: str, tokens: int = 500) -> Say:
    return Say(thinking=thinks(tokens), calls=(Call("look", {"what": what}),))


@pytest.mark.spec("B2b", "B6")
@pytest.mark.parametrize("provider", ["custom", "deepseek", "zai", "vllm", "openrouter"])
def test_the_thinking_of_finished_turns_does_not_fill_the_window(tmp_path: Path, provider: str) -> None:
    with bench(tmp_path, *[Say("Short answer.", thinking=thinks(4_000))] * 12, window=32_000, provider=provider) as b:
        for turn in range(12):
            result = b.agent.run_conversation(f"Question {turn}?")
            assert result.outcome == "completed"
        assert max(call.prompt_tokens for call in b.sim.billed) < 2_000
        assert b.agent.gauge.tokens < 2_000
        assert result.entries[1].message.reasoning, "the log keeps it"


@pytest.mark.spec("B2b", "L4")
def test_a_tool_loop_gets_its_thinking_back_until_it_ends(tmp_path: Path) -> None:
    script = (step("a"), step("b"), Say("Both are fine.", thinking=thinks(500)), "You are welcome.")
    with bench(tmp_path, *script, tools=[look]) as b:
        b.agent.run_conversation("Look at a and b.")
        assert [thinking_in(sent(b, i)) for i in range(3)] == [0, 1, 2]
        for i in (0, 1):
            assert sent(b, i + 1)[: len(sent(b, i))] == sent(b, i), "the prefix stays the same within a turn"
        b.agent.run_conversation("Thanks.")
        assert thinking_in(sent(b, 3)) == 0
        plain = [{k: v for k, v in m.items() if k not in FIELDS} for m in sent(b, 2)]
        assert sent(b, 3)[: len(plain)] == plain, "nothing else changes when it goes"


@pytest.mark.spec("B2b", "B1")
def test_thinking_that_is_sent_is_counted_before_the_service_counts_it(tmp_path: Path) -> None:
    script = (step("a", 3_000), Say("Fine.", thinking=thinks(3_000)), "Yes.")
    with bench(tmp_path, *script, tools=[look], window=200_000) as b:
        b.agent.run_conversation("Look at a.")
        assert b.agent.session_id is not None
        calls = b.store.ledger.calls(b.agent.session_id)
        assert calls[1].estimate_tokens == pytest.approx(calls[1].usage.prompt_tokens, rel=0.35)
        assert b.agent.gauge.tokens < 1_000, "the loop is over: the next request has none of it"
        b.agent.run_conversation("Sure?")
        last = b.store.ledger.calls(b.agent.session_id)[-1]
        assert last.estimate_tokens == pytest.approx(last.usage.prompt_tokens, abs=150)


@pytest.mark.spec("B2b", "C4")
def test_a_long_loop_of_thinking_is_compacted_and_goes_on(tmp_path: Path) -> None:
    def answer(asked: ScriptRequest) -> Say:
        done = len(b.sim.requests)
        return step(f"part {done}", 2_500) if done < 30 else Say("All parts are fine.")

    with bench(tmp_path, answer, tools=[look], window=32_000) as b:
        result = b.agent.run_conversation("Look at all the parts.")
        assert (result.outcome, result.final_response) == ("completed", "All parts are fine.")
        assert max(call.prompt_tokens for call in b.sim.billed) < 20_000
        assert len(b.sim.billed) == 30, "none was refused"


@pytest.mark.spec("B2b", "G4")
@pytest.mark.parametrize(("believed", "real"), [(5_000, 64_000), (64_000, 5_000)], ids=["foreseen", "refused"])
def test_thinking_larger_than_the_window_does_not_end_the_conversation(
    tmp_path: Path, believed: int, real: int
) -> None:
    def shrink() -> str:
        """Makes the window smaller."""
        b.sim.change(window=real)
        return "Done."

    script = (Say(thinking=thinks(5_500), calls=(Call("shrink", {}),)), "Fine.")
    with bench(tmp_path, *script, tools=[shrink], window=believed, sim_window=64_000) as b:
        assert b.agent.run_conversation("Do it.").final_response == "Fine."
        (called,) = [m for m in sent(b, len(b.sim.requests) - 1) if m["role"] == "assistant"]
        assert len(called["reasoning_content"]) < 1_000
        assert "reasoning omitted" in called["reasoning_content"]


def thought(*details: dict[str, Any], text: str | None = "because") -> Message:
    return Message(
        "assistant",
        "",
        tool_calls=(ToolCall("a", "look"),),
        reasoning=text,
        reasoning_details=details,
        kind="assistant",
    )


SIGNED = {"type": "reasoning.text", "text": "because", "signature": "c2ln"}
UNSIGNED = {"type": "reasoning.text", "text": "because"}


@pytest.mark.spec("B2b")
@pytest.mark.parametrize(
    ("provider", "mode", "now", "later"),
    [
        ("openai", "chat_completions", (None, ()), (None, ())),
        ("deepseek", "chat_completions", ("because", ()), (None, ())),
        ("openrouter", "chat_completions", ("because", (SIGNED, UNSIGNED)), (None, (SIGNED,))),
        ("minimax", "chat_completions", ("because", ()), ("because", ())),
        ("anthropic", "anthropic_messages", (None, (SIGNED, UNSIGNED)), (None, (SIGNED, UNSIGNED))),
    ],
)
def test_each_route_sends_what_its_service_needs(provider: str, mode: Any, now: Any, later: Any) -> None:
    rule = ReasoningRule.of(Endpoint(provider, "http://127.0.0.1", mode, "m"))
    for expected, is_current in ((now, True), (later, False)):
        message = rule.filter_message(thought(SIGNED, UNSIGNED), is_current=is_current)
        assert (message.reasoning, message.reasoning_details) == expected


def test_a_message_without_reasoning_is_passed_on_as_it_is() -> None:
    plain = Message("assistant", "Done.", kind="assistant")
    assert ReasoningRule("chat_completions", "reasoning").filter_message(plain, is_current=False) is plain


@pytest.mark.spec("B2b")
@pytest.mark.parametrize("provider", ["nous", "xai", "deepseek", "zai", "vllm", "openrouter", "groq", "minimax"])
def test_services_of_thinking_models_get_the_reasoning_of_the_running_tool_loop(tmp_path: Path, provider: str) -> None:
    with bench(tmp_path, step("a", 50), step("b", 50), "Both are fine.", tools=[look], provider=provider) as b:
        assert b.agent.run_conversation("Look at a and b.").outcome == "completed"
        assert b.sim.violations == []
