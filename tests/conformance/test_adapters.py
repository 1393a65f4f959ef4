"""One conversation over three wires, streamed or not, through official clients or our own transport: one history.

Text, thinking, two parallel tools, an image, an overflow, and on. The simulator, at its strictest, finds nothing wrong.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.core import rules
from perdure.core.errors import ProviderError
from perdure.core.messages import ImagePart, Message, TextPart, assistant, tool_result, user
from perdure.providers.sdk_client import SdkTransport, endpoint_of
from perdure.providers.transport import Retries, Transport
from perdure.providers.types import ApiMode, Endpoint, ModelRequest, Quirks
from perdure.testing.simulator import Call, Say, Simulator, strict
from support.simulator import MODES, PATHS, TOOL, endpoint, once, request

PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
SYSTEM = ("You are a careful assistant. " * 220,)
SCRIPT = (
    Say("Good morning. What is it about?"),
    Say(
        "Two looks at once.",
        thinking="Both files matter; I will read them together.",
        calls=(Call("read", {"path": "a.txt"}, "call_1"), Call("read", {"path": "ü/b.txt", "n": 2}, "call_2")),
    ),
    Say("", thinking="One more.", calls=(Call("read", {"path": "c.txt"}, "call_3"),)),
    Say("They agree, 喵."),
    Say("A cat, one pixel wide.", thinking="A very small picture."),
    Say("Gladly."),
)
LOOK = Message(role="user", content=(TextPart("And what is this?"), ImagePart(PICTURE)), kind="user")
ASKED: tuple[Message, ...] = (user("Good morning."), user("Compare the files."), LOOK, user("Go on after that."))

forms = pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
modes = pytest.mark.parametrize("mode", MODES)


def same(message: Message) -> dict[str, Any]:
    """What every mode must agree on: all but what a service signed or numbered for itself."""
    calls = tuple((c.id, c.name, json.loads(c.arguments)) for c in message.tool_calls)
    return {"role": message.role, "content": message.content, "reasoning": message.reasoning, "calls": calls}


def asking(history: Sequence[Message], **fields: Any) -> ModelRequest:
    given = {"system": SYSTEM, "tools": (TOOL,), "reasoning_effort": "low", "max_tokens": 8000, **fields}
    return request(*history, **given)


async def converse(way: Transport, place: Endpoint, sim: Simulator, **fields: Any) -> list[Message]:
    """The whole conversation; before its last turn the window shrinks once, and what it says is recognised."""
    history: list[Message] = []
    for asked in ASKED:
        history.append(asked)
        if asked is ASKED[-1]:
            await overflow(way, place, sim, history, fields)
        while True:
            reply = await way.send(place, asking(history, model=place.model, **fields))
            history.append(reply.message)
            history += [tool_result(c.id, f"contents of {c.arguments}", c.name) for c in reply.message.tool_calls]
            if not reply.message.tool_calls:
                break
    return history


async def overflow(
    way: Transport, place: Endpoint, sim: Simulator, history: Sequence[Message], fields: dict[str, Any]
) -> None:
    sim.change(window=900)
    with pytest.raises(ProviderError) as caught:
        await way.send(place, asking(history, model=place.model, **fields))
    sim.change(window=200_000)
    assert caught.value.verdict.kind == "prompt_too_long"
    is_stated = place.api_mode != "codex_responses"
    assert caught.value.verdict.context_limit == (900 if is_stated else None)


def expected() -> list[dict[str, Any]]:
    """The history any mode must give, written down from the script alone."""
    steps = iter(SCRIPT)
    history: list[Message] = []
    for asked in ASKED:
        history.append(asked)
        while True:
            say = next(steps)
            calls = [{"id": c.id, "function": {"name": c.name, "arguments": c.arguments_text}} for c in say.calls]
            raw = {"role": "assistant", "content": say.text or None, "reasoning": say.thinking or None}
            history.append(Message.from_dict({**raw, **({"tool_calls": calls} if calls else {})}))
            history += [tool_result(str(c.id), f"contents of {c.arguments_text}", c.name) for c in say.calls]
            if not calls:
                break
    return [same(m) for m in history]


def cut_alike(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A result's text repeats the arguments as the mode spells them; spacing is the service's own."""
    return [
        {**m, "content": str(m["content"]).replace(" ", "") if m["role"] == "tool" else m["content"]} for m in history
    ]


@pytest.mark.spec("J3", "J12", "K1", "K2", "G1")
@forms
@modes
def test_the_same_conversation_gives_the_same_history(mode: ApiMode, is_streaming: bool) -> None:
    with Simulator(strict(), script=SCRIPT) as sim:
        history = asyncio.run(converse(once(), endpoint(sim, mode), sim, is_streaming=is_streaming))
        assert cut_alike([same(m) for m in history]) == cut_alike(expected())
        assert rules.is_valid(history)
        assert sim.violations == []
        assert [r.status for r in sim.requests] == [200, 200, 200, 200, 200, 400, 200]


@pytest.mark.spec("J3")
@forms
@pytest.mark.parametrize("name", ["AsyncOpenAI", "OpenAI", "AsyncAnthropic", "Anthropic"])
def test_and_so_it_does_through_an_official_client(name: str, is_streaming: bool) -> None:
    package = pytest.importorskip("openai" if "OpenAI" in name else "anthropic", reason="its package is not installed")
    with Simulator(strict(), script=SCRIPT) as sim:
        base_url = sim.base_url if "OpenAI" in name else sim.root_url
        client = getattr(package, name)(base_url=base_url, api_key="k")
        way = Transport(client=SdkTransport(client), retries=Retries(attempts=1))
        history = asyncio.run(converse(way, endpoint_of(client, "m-1"), sim, is_streaming=is_streaming))
        assert cut_alike([same(m) for m in history]) == cut_alike(expected())
        assert sim.violations == []


@pytest.mark.spec("A1", "A2")
@modes
def test_every_call_costs_what_the_service_billed(mode: ApiMode) -> None:
    with Simulator(strict(), script=SCRIPT) as sim:
        replies = []

        async def main() -> None:
            way, place = once(), endpoint(sim, mode)
            for n in range(3):
                replies.append(await way.send(place, asking([user("x" * 100 * n + "y")])))

        asyncio.run(main())
        assert [r.usage for r in replies] == sim.billed


def body_parts(mode: ApiMode, raw: bytes) -> list[Any]:
    """What is sent before and within the messages, in order, without cache marks."""
    body = unmarked(json.loads(raw))
    row = body.get("input") or body["messages"]
    return [body.get("tools"), body.get("system") or body.get("instructions"), *row]


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
        return kept
    return [unmarked(v) for v in value] if isinstance(value, list) else value


@pytest.mark.spec("L4")
@modes
def test_the_sent_prefix_is_identical_from_call_to_call(mode: ApiMode) -> None:
    with Simulator(strict(), script=SCRIPT) as sim:
        asyncio.run(
            converse(once(), endpoint(sim, mode), sim, cache_ttl="5m" if mode == "anthropic_messages" else None)
        )
        sent = [body_parts(mode, r.raw) for r in sim.requests]
        for before, after in itertools.pairwise(sent):
            assert after[: len(before)] == before


@pytest.mark.spec("L1", "L4")
@pytest.mark.parametrize(
    ("mode", "model", "ttl"),
    [
        ("chat_completions", "gpt-x", None),
        ("codex_responses", "gpt-x", None),
        ("anthropic_messages", "claude-x", "5m"),
        ("anthropic_messages", "claude-x", "1h"),
        ("chat_completions", "anthropic/claude-x", "5m"),
    ],
)
def test_each_call_reads_the_previous_one_from_the_services_cache(mode: ApiMode, model: str, ttl: Any) -> None:
    quirks = Quirks(reasoning_field="reasoning_content", supports_cache_control=ttl is not None)
    # The picture comes first: the service drops its messages' entries when images appear at all.
    opening = [LOOK]
    with Simulator(strict(), script=lambda asked: f"Reply {asked.number}, at some length.") as sim:

        async def main() -> None:
            way, place, history = once(), endpoint(sim, mode, model=model), list[Message](opening)
            for n in range(6):
                asked = asking(history, model=model, cache_ttl=ttl, quirks=quirks, reasoning_effort=None)
                history += [(await way.send(place, asked)).message, user(f"Next, number {n}.")]

        asyncio.run(main())
        assert sim.violations == []
        for before, after in zip(sim.billed, sim.billed[1:], strict=False):
            if ttl is None:
                assert after.cache_read_tokens == before.prompt_tokens // 128 * 128 >= 1024
            else:
                assert after.cache_read_tokens == before.prompt_tokens
                assert after.cache_write_tokens == after.prompt_tokens - before.prompt_tokens
                assert after.cache_write_1h_tokens == (after.cache_write_tokens if ttl == "1h" else 0)
        assert {r.path for r in sim.requests} == {PATHS[mode]}


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    ("mode", "model", "ttl"),
    [
        ("chat_completions", "gpt-x", None),
        ("codex_responses", "gpt-x", None),
        ("anthropic_messages", "claude-x", "5m"),
        ("chat_completions", "anthropic/claude-x", "5m"),
    ],
)
def test_after_a_compaction_the_system_prompt_is_still_cached_and_the_rest_within_a_turn(
    mode: ApiMode, model: str, ttl: Any
) -> None:
    quirks = Quirks(supports_cache_control=ttl is not None)
    long = [user("The beginning. " * 40), *(m for n in range(4) for m in (assistant(f"Reply {n}."), user(f"Ask {n}.")))]
    compacted = [user("What happened so far, in short. " * 20), assistant("Reply 3."), user("And now?")]
    further = [*compacted, assistant("Now this."), user("And then?")]
    with Simulator(strict(), script=lambda asked: "Fine.") as sim:

        async def main() -> None:
            way, place = once(), endpoint(sim, mode, model=model)
            for history in (long, compacted, further):
                asked = asking(history, model=model, cache_ttl=ttl, quirks=quirks, reasoning_effort=None)
                await way.send(place, asked)

        asyncio.run(main())
        fixed = unmarked(json.loads(sim.requests[0].raw))
        key = "input" if mode == "codex_responses" else "messages"
        fixed[key] = [m for m in fixed[key] if m.get("role") == "system"]
        kept = sim.count(PATHS[mode], fixed)
        _, second, third = sim.billed
        if ttl is None:
            # The automatic cache goes by steps: what is left of the system prompt's last one is read anew.
            assert kept - 128 < second.cache_read_tokens <= kept + 128
            assert third.cache_read_tokens == second.prompt_tokens // 128 * 128
        else:
            assert second.cache_read_tokens == kept
            assert third.cache_read_tokens == second.prompt_tokens
        assert sim.violations == []
