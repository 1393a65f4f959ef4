"""The simulator's two caches: what is read, what is written, and that the bill adds up to the last token."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.usage import CanonicalUsage
from perdure.testing.simulator import Say, ScriptRequest, Simulator, count_text
from perdure.testing.simulator.tokens import MarkCache, PrefixCache, PromptBlock, cut_text, segment
from support.simulator import FakeClock, http

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HEADERS = {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}
SYSTEM = "s" * 8000  # 2,000 tokens, and one for the role


def post(sim: Simulator, path: str, body: Any) -> dict[str, Any]:
    response = http().post(f"{sim.root_url}{path}", json=body, headers=HEADERS)
    assert response.status_code == 200, response.text
    return response.json()


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]
    return {"model": "m", "messages": [{"role": "system", "content": SYSTEM}, *messages], **fields}


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2), ("é" * 2, 1)])
def test_a_token_is_four_bytes(text: str, tokens: int) -> None:
    assert count_text(text) == tokens


@given(st.text(max_size=60), st.integers(0, 20))
def test_a_cut_text_never_costs_more_than_it_may(text: str, tokens: int) -> None:
    cut = cut_text(text.encode("utf-8", "ignore").decode(), tokens)
    assert count_text(cut) <= tokens


def test_chat_reads_its_prefix_in_steps_of_128_from_1024_on() -> None:
    with Simulator() as sim:
        assert post(sim, CHAT, chat("hello"))["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        again = post(sim, CHAT, chat("hello", "hi", "more"))["usage"]
        # 2,001 tokens of system prompt and 3 of "hello" were sent before: 15 whole steps of 128.
        assert again["prompt_tokens_details"]["cached_tokens"] == 1920
        assert again["prompt_tokens"] == sim.requests[1].prompt_tokens == 2001 + 3 + 2 + 2
        assert sim.billed[1] == CanonicalUsage(88, sim.billed[1].output_tokens, 1920)


def test_one_changed_byte_early_on_loses_everything_behind_it() -> None:
    with Simulator() as sim:
        post(sim, CHAT, chat("hello"))
        changed = chat("hello")
        changed["messages"][0]["content"] = "S" + SYSTEM[1:]
        assert post(sim, CHAT, changed)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_nothing_below_1024_tokens_is_cached() -> None:
    body = {"model": "m", "input": "x" * 4 * 1000}
    with Simulator() as sim:
        for _ in range(2):
            assert post(sim, RESPONSES, body)["usage"]["input_tokens_details"]["cached_tokens"] == 0


def test_newest_models_report_what_they_write() -> None:
    with Simulator(reports_cache_writes=True) as sim:
        usage = post(sim, RESPONSES, {"model": "m", "input": SYSTEM})["usage"]
        assert usage["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 1920}
        assert sim.billed[0].prompt_tokens == usage["input_tokens"] == 2001


def native(*blocks: Any, system: Any = "Be brief.", model: str = "claude-x", **fields: Any) -> dict[str, Any]:
    content = [b if isinstance(b, dict) else {"type": "text", "text": b} for b in blocks]
    messages = [{"role": "user", "content": content}]
    return {"model": model, "max_tokens": 100, "system": system, "messages": messages, **fields}


def mark(text: str, ttl: str | None = None) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}


def counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    return usage["input_tokens"], usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]


@pytest.mark.spec("L1")
def test_marks_write_once_and_are_read_afterwards() -> None:
    with Simulator() as sim:
        system = [mark(SYSTEM)]
        assert counts(post(sim, MESSAGES, native("one", system=system))["usage"]) == (2, 2001, 0)
        assert counts(post(sim, MESSAGES, native("other", system=system))["usage"]) == (3, 0, 2001)


def test_no_mark_no_cache_and_below_the_minimum_nothing_silently() -> None:
    with Simulator(cache_minimum=4096) as sim:
        for body in (native("one", system=SYSTEM), native("one", system=[mark(SYSTEM)])):
            for _ in range(2):
                assert counts(post(sim, MESSAGES, body)["usage"])[1:] == (0, 0)


@pytest.mark.parametrize(("blocks", "is_found"), [(19, True), (20, False)])
def test_a_lookup_walks_back_twenty_blocks_and_no_further(blocks: int, is_found: bool) -> None:
    with Simulator() as sim:
        post(sim, MESSAGES, native(mark(SYSTEM)))
        row = [{"type": "text", "text": SYSTEM}, *(f"b{n}" for n in range(blocks - 1)), mark("end")]
        read = counts(post(sim, MESSAGES, native(*row))["usage"])[2]
        assert (read > 0) is is_found


@pytest.mark.spec("L3")
def test_entries_live_five_minutes_or_an_hour_from_their_last_use() -> None:
    clock = FakeClock()
    with Simulator(now_s=clock) as sim:

        def read(ttl: str | None) -> int:
            return counts(post(sim, MESSAGES, native("x", system=[mark(SYSTEM + str(ttl), ttl)]))["usage"])[2]

        assert (read(None), read("1h")) == (0, 0)
        clock.now_s += 299
        assert read(None) > 0
        clock.now_s += 299
        assert read(None) > 0, "reading renews"
        clock.now_s += 301
        assert (read(None) > 0, read("1h") > 0) == (False, True)
        clock.now_s += 3601
        assert read("1h") == 0


def test_one_hour_writes_are_billed_apart() -> None:
    with Simulator() as sim:
        usage = post(sim, MESSAGES, native("x", mark("y" * 400), system=[mark(SYSTEM, "1h")]))["usage"]
        assert usage["cache_creation"] == {"ephemeral_1h_input_tokens": 2001, "ephemeral_5m_input_tokens": 102}
        assert (sim.billed[0].cache_write_tokens, sim.billed[0].cache_write_1h_tokens) == (2103, 2001)


TOOL = {"name": "read", "input_schema": {"type": "object", "description": "d" * 8000}}
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://h/cat.png"}}


@pytest.mark.parametrize(
    ("change", "survivors"),
    [
        ({}, {"tools", "system", "messages"}),
        ({"tools": [{**TOOL, "name": "write", "cache_control": {"type": "ephemeral"}}]}, set()),
        ({"system": [mark("T" + SYSTEM)]}, {"tools"}),
        ({"tool_choice": {"type": "any"}}, {"tools", "system"}),
        ({"image": True}, {"tools", "system"}),
    ],
    ids=["nothing", "tools", "system", "tool_choice", "images"],
)
def test_a_change_invalidates_its_own_level_and_those_behind_it(change: dict[str, Any], survivors: set[str]) -> None:
    fixed: dict[str, Any] = {"tools": [{**TOOL, "cache_control": {"type": "ephemeral"}}], "system": [mark(SYSTEM)]}
    change = dict(change)
    extra = [IMAGE] if change.pop("image", False) else []
    with Simulator() as sim:
        first = native(mark("m" * 8000), **fixed)
        post(sim, MESSAGES, first)
        ends = {"tools": sim.count(MESSAGES, {**fixed, "system": "", "messages": []})}
        ends["system"] = sim.count(MESSAGES, {**fixed, "messages": []})
        ends["messages"] = sim.requests[0].prompt_tokens
        usage = post(sim, MESSAGES, native(mark("m" * 8000), *extra, **{**fixed, **change}))["usage"]
        assert usage["cache_read_input_tokens"] == max((ends[s] for s in survivors), default=0)


def test_an_entry_is_readable_once_the_first_response_has_begun() -> None:
    body = native("x", system=[mark(SYSTEM)])
    with Simulator(script=[Say("slow", delay_s=0.5), "quick", "late"]) as sim:
        first = threading.Thread(target=post, args=(sim, MESSAGES, body))
        first.start()
        while not sim.requests:
            time.sleep(0.005)
        assert counts(post(sim, MESSAGES, native("y", system=[mark(SYSTEM)]))["usage"])[2] == 0
        first.join()
        assert counts(post(sim, MESSAGES, body)["usage"])[2] == 2001


def test_claude_behind_a_chat_endpoint_is_cached_by_marks() -> None:
    def body(text: str) -> dict[str, Any]:
        made = chat(text, model="anthropic/claude-x")
        made["messages"][0]["content"] = [mark(SYSTEM)]
        return made

    with Simulator() as sim:
        first = post(sim, CHAT, body("one"))["usage"]["prompt_tokens_details"]
        second = post(sim, CHAT, body("two"))["usage"]["prompt_tokens_details"]
        assert (first["cached_tokens"], first["cache_write_tokens"]) == (0, 2001)
        assert (second["cached_tokens"], second["cache_write_tokens"]) == (2001, 0)


@given(st.lists(st.tuples(st.binary(max_size=3000), st.booleans()), max_size=12), st.integers(0, 11))
def test_what_is_read_and_written_never_exceeds_the_prompt(rows: list[tuple[bytes, bool]], keep: int) -> None:
    blocks = [PromptBlock(segment(data.hex()), mark="5m" if is_marked else None) for data, is_marked in rows]
    size = sum(b.tokens for b in blocks)
    marks, prefixes = MarkCache(lambda: 0.0), PrefixCache(lambda: 0.0)
    for row in (blocks[:keep], blocks, blocks):
        for use, cache in (
            (marks.look_up(row, minimum=512, messages_seed=b""), marks),
            (prefixes.look_up(row), prefixes),
        ):
            total = sum(b.tokens for b in row)
            assert 0 <= use.read_tokens + use.write_tokens <= total <= size
            cache.keep(use)
    again = marks.look_up(blocks, minimum=512, messages_seed=b"")
    assert again.write_tokens == 0, "what was written a moment ago is written again"


def test_every_answer_is_billed_as_it_was_counted() -> None:
    def answer(asked: ScriptRequest) -> Say:
        return Say("word " * 9 * asked.number, thinking="hm " * asked.number)

    async def many(sim: Simulator) -> None:
        async with httpx.AsyncClient(trust_env=False, headers=HEADERS, timeout=20) as client:
            bodies = [(CHAT, chat("a" * n)) for n in range(5)] + [(RESPONSES, {"model": "m", "input": "x"})] * 3
            bodies += [(MESSAGES, native("x" * (n + 1))) for n in range(5)]
            await asyncio.gather(*(client.post(f"{sim.root_url}{p}", json=b) for p, b in bodies))

    with Simulator(script=answer) as sim:
        asyncio.run(many(sim))
        assert len(sim.billed) == 13
        for request in sim.requests:
            assert request.usage is not None
            assert request.usage.prompt_tokens == sim.count(request.path, request.body)
            said = count_text("word " * 9 * request.number) + count_text("hm " * request.number)
            assert request.usage.output_tokens == min(said, 100 if request.path == MESSAGES else 16_384)
        assert sim.total == sum(sim.billed, CanonicalUsage())
