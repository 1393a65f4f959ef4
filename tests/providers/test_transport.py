"""Sending a request and reading the reply: both forms, all three modes, and every way it can go wrong."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from perdure.core import rules
from perdure.core.errors import ConfigError, ProviderError
from perdure.core.events import ReasoningDelta, RetryScheduled, TextDelta, ToolCallParsed
from perdure.core.messages import ToolCall, assistant, tool_result, user
from perdure.providers.errors.body import MAX_WAIT_S
from perdure.providers.errors.classify import classify_error
from perdure.providers.errors.messages import EndpointLabel
from perdure.providers.http import HttpxClient, url_of
from perdure.providers.http_aiohttp import AiohttpClient
from perdure.providers.transport import Retries, Timeouts, Transport
from perdure.providers.types import ApiMode, Endpoint
from perdure.testing.simulator import Call, Drop, Fail, Raw, Say, Simulator, strict
from support.simulator import MODES, TOOL, endpoint, once, request, send

both_forms = pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
all_modes = pytest.mark.parametrize("mode", MODES)


def failure(sim: Simulator, mode: ApiMode, *, transport: Transport | None = None, **fields: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        send(sim, mode, request("hi", **fields), transport=transport)
    return caught.value


class Naps:
    """A sleep that only writes down how long it should have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.mark.spec("J3", "J12", "A2")
@both_forms
@all_modes
def test_a_reply_comes_back_whole_with_its_usage_and_its_deltas(mode: ApiMode, is_streaming: bool) -> None:
    step = Say("Reading both now.", thinking="Two files.", calls=(Call("read", {"path": "a"}, "call_1"),))
    with Simulator(strict(), script=[step]) as sim:
        events: list[Any] = []
        asked = request("hi", tools=(TOOL,), is_streaming=is_streaming)
        reply = send(sim, mode, asked, on_event=events.append)
        assert (reply.message.text, reply.message.reasoning) == ("Reading both now.", "Two files.")
        assert [(c.name, c.parsed_arguments()) for c in reply.message.tool_calls] == [("read", {"path": "a"})]
        assert (reply.finish, reply.usage) == ("tool_calls", sim.billed[0])
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Reading both now."
        assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "Two files."
        assert [e.call for e in events if isinstance(e, ToolCallParsed)] == list(reply.message.tool_calls)
        assert sim.violations == []


@all_modes
def test_a_plain_answer_to_a_stream_request_and_the_reverse_are_understood(mode: ApiMode) -> None:
    with Simulator(script=[Say("one", form="plain"), Say("two", form="stream")]) as sim:
        said: list[Any] = []
        assert send(sim, mode, request("hi"), on_event=said.append).message.text == "one"
        assert said == [TextDelta("one")]
        assert send(sim, mode, request("hi", is_streaming=False)).message.text == "two"


@pytest.mark.spec("J4")
@both_forms
@all_modes
def test_cancelling_closes_the_call_at_once_and_leaves_the_transport_usable(mode: ApiMode, is_streaming: bool) -> None:
    slow = Say("word " * 50, chunk_delay_s=0.2) if is_streaming else Say("late", delay_s=20)
    with Simulator(script=[slow, "after"]) as sim:

        async def interrupt() -> tuple[float, str]:
            way, said = once(), []
            call = asyncio.create_task(
                way.send(endpoint(sim, mode), request("hi", is_streaming=is_streaming), on_event=said.append)
            )
            while not sim.requests or (is_streaming and not said):
                await asyncio.sleep(0.005)
            start = time.monotonic()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            took_s = time.monotonic() - start
            while not sim.requests[0].was_abandoned:
                assert time.monotonic() - start < 5, "the service was left talking"
                await asyncio.sleep(0.005)
            reply = await way.send(endpoint(sim, mode), request("again"))
            await way.aclose()
            return took_s, reply.message.text

        took_s, text = asyncio.run(interrupt())
        assert took_s < 2
        assert text == "after"


@pytest.mark.spec("J4", "G1")
@all_modes
def test_a_dropped_stream_is_a_transport_verdict_that_carries_what_was_said(mode: ApiMode) -> None:
    text = "The first words arrive. " * 10
    with Simulator(script=[Say(text, drop_after=12)]) as sim:
        error = failure(sim, mode)
        assert error.verdict.kind == "transport"
        assert error.partial_text
        assert text.startswith(error.partial_text)
        assert len(sim.requests) == 1, "a call that had begun was tried again"


@pytest.mark.spec("G1")
@all_modes
def test_an_error_inside_a_stream_is_a_verdict_that_carries_what_was_said(mode: ApiMode) -> None:
    with Simulator(script=[Say("Some words came. " * 10, fail_after=9)]) as sim:
        error = failure(sim, mode)
        assert error.verdict.kind in ("overloaded", "transport")
        assert "Some words" in error.partial_text


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Raw(b"<html><body>Welcome to nginx</body></html>", content_type="text/html"), "a web page"),
        (Raw(b'{"choices": [{"message": {"content": "half'), "cut off"),
        (Raw(b""), "not a model's reply"),
        (Raw(b"data: {not json\n\n", content_type="text/event-stream"), "invalid JSON"),
        (Raw(b"\x00\xff\x13garbage"), ""),
        (Raw(b"[]"), ""),
        (Raw(b'{"unexpected": true}'), ""),
    ],
)
@all_modes
def test_what_is_no_reply_becomes_a_transport_verdict_in_one_line(mode: ApiMode, step: Raw, words: str) -> None:
    with Simulator(script=[step]) as sim:
        error = failure(sim, mode)
        assert error.verdict.kind == "transport"
        assert words in str(error)
        assert "\n" not in str(error)


@pytest.mark.spec("G1")
def test_bad_key_wrong_model_and_wrong_address_each_say_what_where_and_what_to_try() -> None:
    with Simulator(api_key="right", models=("m-known",)) as sim:
        host = sim.root_url.removeprefix("http://")
        error = failure(sim, "chat_completions")
        assert error.verdict.kind == "auth"
        assert str(error).startswith(f"{host}: the key was refused (401)")
        assert "stores another key" in str(error)
        sim.change(api_key=None)
        error = failure(sim, "anthropic_messages")
        assert "no model 'm-1' here (404)" in str(error)
        assert f"{sim.root_url}/v1/models" in str(error)
        assert "`perdure models`" in str(error)
        wrong = Endpoint("custom", f"{sim.root_url}/nowhere", "chat_completions", "m-known")
        with pytest.raises(ProviderError, match=r"nothing at this address.*Check `model.base_url`"):
            asyncio.run(once().send(wrong, request("hi")))
        without_path = Endpoint("custom", sim.root_url, "chat_completions", "m-known")
        with pytest.raises(ProviderError, match=rf"Most end in /v1: try {sim.root_url}/v1\."):
            asyncio.run(once().send(without_path, request("hi")))


@pytest.mark.parametrize(
    ("base_url", "words"),
    [
        ("http://127.0.0.1:9/v1", "nothing is listening there: start the server"),
        ("http://no-such-host.invalid/v1", "no such host, or no network"),
        ("ftp://127.0.0.1/v1", "not a valid URL"),
        ("127.0.0.1:80/v1", "not a valid URL"),
        ("", "not a valid URL"),
        ("http://[::1/v1", "not a valid URL"),
        ("http://h:99999/v1", "no address a call can go to|no such host"),
    ],
)
def test_no_network_and_wrong_hosts_are_said_in_one_line(base_url: str, words: str) -> None:
    with pytest.raises(ProviderError, match=words) as caught:
        asyncio.run(once().send(Endpoint("custom", base_url, "chat_completions", "m"), request("hi")))
    assert caught.value.verdict.kind == "transport"
    assert "\n" not in str(caught.value)


def test_a_stand_in_for_a_key_is_not_taken_out_of_ordinary_words() -> None:
    told = {
        key: EndpointLabel.of(Endpoint("custom", "http://h/v1", "chat_completions", "m", api_key=key))
        for key in ("k", "none")
    }
    assert {place.quote("a key is none of 10 tokens") for place in told.values()} == {"a key is none of 10 tokens"}
    real = EndpointLabel.of(Endpoint("custom", "http://h/v1", "chat_completions", "m", api_key="9f8e7d6c5b4a3210"))
    assert real.quote("bad key 9f8e7d6c5b4a3210") == "bad key [key]"


@pytest.mark.parametrize("key", ["sk-pasted\n", "sk-with blank ", "sk-“quoted”", "sk-\x00"])
@all_modes
def test_a_key_that_cannot_be_sent_is_said_without_showing_it(mode: ApiMode, key: str) -> None:
    place = Endpoint("custom", "http://127.0.0.1:9/v1", mode, "m", api_key=key)
    with pytest.raises(ProviderError, match=r"`perdure login http://127\.0\.0\.1:9/v1` stores another key") as caught:
        asyncio.run(once().send(place, request("hi")))
    assert caught.value.verdict.kind == "auth"
    assert "sk-" not in repr(caught.value)


def test_a_refused_key_of_the_environment_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-from-the-environment")
    with Simulator(api_key="right") as sim:
        place = Endpoint("anthropic", sim.root_url, "anthropic_messages", "m-1", api_key="sk-from-the-environment")
        with pytest.raises(ProviderError, match="of the variable ANTHROPIC_API_KEY, which goes before a stored one"):
            asyncio.run(once().send(place, request("hi")))


def test_a_header_that_cannot_be_sent_is_named() -> None:
    place = Endpoint("custom", "http://127.0.0.1:9/v1", "chat_completions", "m", headers={"x-team": "münchen\n"})
    with pytest.raises(ProviderError, match="the header 'x-team' contains a character"):
        asyncio.run(once().send(place, request("hi")))


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("key", ["sk-proj-abcdef123456", "my own abcdef key"])
def test_a_key_never_appears_in_an_error(key: str, status: int) -> None:
    said = {"error": {"message": f"Incorrect API key provided: {key}.", "type": "invalid_request_error"}}
    page = Raw(f"<html>{key}</html>".encode(), status=status)
    with Simulator(script=[Fail(status=status, body=said), page]) as sim:
        place = Endpoint("custom", sim.base_url.replace("://", "://me:abcdef@"), "chat_completions", "m", api_key=key)
        for _ in range(2):
            with pytest.raises(ProviderError) as caught:
                asyncio.run(once().send(place, request("hi")))
            assert "abcdef" not in repr(caught.value)
            assert "abcdef" not in caught.value.verdict.message


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([Drop(), "second"], "second"),
        ([Fail("anthropic_overloaded"), Fail("openai_server_error"), "third"], "third"),
        ([Fail("openai_rate_limit"), "second"], "second"),
        ([Fail("proxy_bad_gateway"), "second"], "second"),
    ],
)
def test_a_call_that_got_no_reply_is_tried_again_with_jitter(steps: list[Any], text: str) -> None:
    naps = Naps()
    with Simulator(script=steps) as sim:
        way = Transport(sleep=naps, random=lambda: 0.5, retries=Retries(base_s=1.0))
        assert send(sim, "chat_completions", request("hi"), transport=way).message.text == text
    assert len(naps.seconds) == len(steps) - 1
    assert len({r.raw for r in sim.requests}) == 1, "the body changed between attempts"


def test_waits_grow_are_capped_and_spread() -> None:
    policy = Retries(attempts=9, base_s=1.0, cap_s=8.0)
    low = [policy.wait_s(n, retry_after_s=None, random=0.0) for n in range(1, 6)]
    high = [policy.wait_s(n, retry_after_s=None, random=1.0) for n in range(1, 6)]
    assert low == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert high == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert policy.wait_s(9, retry_after_s=None, random=0.0) is None


def test_a_retry_is_announced_with_its_wait_before_it_begins() -> None:
    naps, heard = Naps(), []
    with Simulator(script=[Fail("openai_rate_limit", headers={"retry-after": "7"}), "ok"]) as sim:
        way = Transport(sleep=naps, random=lambda: 0.0)
        asyncio.run(way.send(endpoint(sim, "chat_completions"), request("hi"), on_event=heard.append))
    assert isinstance(heard[0], RetryScheduled)
    assert (heard[0].verdict.kind, heard[0].wait_s, heard[0].attempt) == ("rate_limit", 7.0, 2)


def test_retry_after_is_honoured_and_never_undercut() -> None:
    naps = Naps()
    with Simulator(script=[Fail("openai_rate_limit", headers={"retry-after": "7"}), "ok"]) as sim:
        send(sim, "chat_completions", request("hi"), transport=Transport(sleep=naps, random=lambda: 0.0))
    assert naps.seconds == [7.0]


@pytest.mark.parametrize(
    "step",
    [
        Fail("openai_rate_limit", headers={"retry-after": "3600"}),
        Fail("openai_quota"),
        Fail("openai_bad_key"),
        Fail("openai_overflow"),
        Fail("proxy_bare_400"),
        Say("half " * 20, drop_after=5),
    ],
)
def test_what_waiting_cannot_mend_is_left_to_the_caller(step: Any) -> None:
    naps = Naps()
    with Simulator(script=[step, "never asked for"]) as sim:
        failure(sim, "chat_completions", transport=Transport(sleep=naps))
        assert len(sim.requests) == 1
    assert naps.seconds == []


def test_retries_are_bounded() -> None:
    naps = Naps()
    with Simulator(script=lambda asked: Drop()) as sim:
        failure(sim, "chat_completions", transport=Transport(sleep=naps, retries=Retries(attempts=4)))
        assert (len(sim.requests), len(naps.seconds)) == (4, 3)


@pytest.mark.parametrize(
    ("step", "timeouts", "is_streaming", "words"),
    [
        (Say("late", delay_s=30), Timeouts(first_token_s=0.5), True, "no reply within 0.5 s"),
        (Say("late", delay_s=30), Timeouts(reply_s=0.5), False, "no reply within 0.5 s"),
        (Say("word " * 20, chunk_delay_s=0.4), Timeouts(idle_s=0.2), True, "nothing arrived for 0.2 s"),
    ],
    ids=["first token", "whole reply", "idle"],
)
def test_time_outs_end_a_call_that_hangs(step: Say, timeouts: Timeouts, is_streaming: bool, words: str) -> None:
    with Simulator(script=[step]) as sim:
        start = time.monotonic()
        error = failure(sim, "anthropic_messages", transport=Transport(timeouts=timeouts), is_streaming=is_streaming)
        assert time.monotonic() - start < 10
        assert error.verdict.kind == "transport"
        assert words in str(error)
        assert len(sim.requests) == 1


def test_keep_alive_comments_are_no_first_token() -> None:
    signal = b": still thinking\n\nevent: ping\ndata: {}\n\n"
    timeouts = Timeouts(first_token_s=0.2, queued_s=0.6, idle_s=0.1)
    error, seconds = _run_dead_stream("anthropic_messages", b"", signal, timeouts)
    match = re.search(r"no reply within ([\d.]+) s, only keep-alive signals", str(error))
    assert match is not None
    assert float(match[1]) >= 0.6
    assert 0.6 <= seconds < 5


@pytest.mark.parametrize("signal", [b": keep-alive\n\n", b"event: ping\ndata: {}\n\n", b"\n", b": spl"])
@pytest.mark.parametrize("wire", [HttpxClient, AiohttpClient])
def test_keep_alive_signals_behind_the_first_token_hold_a_dead_stream_only_so_long(signal: bytes, wire: Any) -> None:
    error, seconds = _run_dead_stream("chat_completions", _FIRST_WORDS["chat_completions"], signal, KEPT_ALIVE, wire)
    assert "nothing arrived but keep-alive signals" in str(error)
    assert error.partial_text == "half a "
    assert 0.25 < seconds < 10


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _chunk(delta: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


_FIRST_WORDS: dict[ApiMode, bytes] = {
    "chat_completions": _chunk({"content": "half a "}),
    "anthropic_messages": _event("message_start", message={"id": "m", "content": []})
    + _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + _event("content_block_delta", index=0, delta={"type": "text_delta", "text": "half a "}),
    "codex_responses": _event("response.created", response={"id": "r", "status": "in_progress"})
    + _event("response.output_text.delta", output_index=0, delta="half a "),
}
_USAGE = {"prompt_tokens": 5, "completion_tokens": 1}
_EMPTY_EVENTS: list[tuple[str, ApiMode, bytes]] = [
    ("empty data", "chat_completions", b"data:\n\n"),
    ("no choices", "chat_completions", b'data: {"choices":[]}\n\n'),
    ("empty delta", "chat_completions", _chunk({})),
    ("empty content", "chat_completions", _chunk({"content": ""})),
    ("null content", "chat_completions", _chunk({"content": None})),
    ("role only", "chat_completions", _chunk({"role": "assistant", "content": ""})),
    ("empty reasoning", "chat_completions", _chunk({"reasoning_content": "", "reasoning_details": [{"text": ""}]})),
    ("empty arguments", "chat_completions", _chunk({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]})),
    ("usage only", "chat_completions", b'data: {"choices":[],"usage":' + json.dumps(_USAGE).encode() + b"}\n\n"),
    ("unknown event", "anthropic_messages", _event("progress")),
    ("empty text", "anthropic_messages", _event("content_block_delta", delta={"type": "text_delta", "text": ""})),
    ("same block", "anthropic_messages", _event("content_block_start", index=0, content_block={"type": "text"})),
    ("in progress", "codex_responses", _event("response.in_progress", response={"id": "r"})),
    ("empty text", "codex_responses", _event("response.output_text.delta", output_index=0, delta="")),
]


KEPT_ALIVE = Timeouts(idle_s=0.1, keep_alive_s=0.3)
# How many times as long the limits may become on a busy machine.
_SCALES = (1, 2, 4, 8, 16, 32)


def _run_dead_stream(
    mode: ApiMode, first: bytes, signal: bytes, timeouts: Timeouts, wire: Callable[[], Any] = HttpxClient
) -> tuple[ProviderError, float]:
    """Send to a server that repeats `signal` behind the first words for ever; return the error and its time.

    On a busy machine the server itself may be silent for longer than the stream may: then all limits are doubled. The
    time is that of the limits asked for.
    """
    for scale in _SCALES:
        limits = Timeouts(
            first_token_s=timeouts.first_token_s * scale,
            queued_s=timeouts.queued_s * scale,
            idle_s=timeouts.idle_s * scale,
            keep_alive_s=timeouts.keep_alive_s * scale,
        )
        error, seconds, silence_s, first_s = asyncio.run(_dead_stream(mode, first, signal, limits, wire))
        if silence_s < min(limits.idle_s, limits.first_token_s) / 2 and first_s < limits.first_token_s / 2:
            return error, seconds / scale
    pytest.fail("the machine is too busy for a server that sends something every 20 ms")


async def _dead_stream(
    mode: ApiMode, first: bytes, signal: bytes, timeouts: Timeouts, wire: Callable[[], Any]
) -> tuple[ProviderError, float, float, float]:
    """Return the error, its time, the longest silence of the server, and when it sent the first signal."""
    sent_s: list[float] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + first)
        while not writer.is_closing():
            sent_s.append(time.monotonic())
            writer.write(signal)
            await asyncio.sleep(0.02)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    target = Endpoint("custom", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", mode, "m")
    transport = Transport(client=wire(), timeouts=timeouts)
    start = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        async with asyncio.timeout(20):
            await transport.send(target, request("hi"))
    end = time.monotonic()
    server.close()
    await transport.aclose()
    silence_s = max((after - before for before, after in pairwise((*sent_s, end))), default=0.0)
    return caught.value, end - start, silence_s, (sent_s[0] if sent_s else end) - start


@pytest.mark.parametrize(
    ("mode", "signal"), [e[1:] for e in _EMPTY_EVENTS], ids=[f"{e[1]}: {e[0]}" for e in _EMPTY_EVENTS]
)
def test_events_without_content_do_not_keep_a_dead_stream_alive(mode: ApiMode, signal: bytes) -> None:
    error, seconds = _run_dead_stream(mode, _FIRST_WORDS[mode], signal, KEPT_ALIVE)
    assert "nothing arrived but keep-alive signals" in str(error)
    assert error.partial_text == "half a "
    assert 0.25 < seconds < 10


def test_an_event_that_never_ends_does_not_keep_a_dead_stream_alive() -> None:
    first = _FIRST_WORDS["chat_completions"] + b'data: {"a":"'
    error, seconds = _run_dead_stream("chat_completions", first, b"x", KEPT_ALIVE)
    assert "nothing arrived but keep-alive signals" in str(error)
    assert 0.25 < seconds < 10


def test_a_role_without_content_is_no_first_token() -> None:
    signal = _chunk({"role": "assistant", "content": ""})
    timeouts = Timeouts(first_token_s=0.1, queued_s=0.3, idle_s=5)
    error, seconds = _run_dead_stream("chat_completions", signal, signal, timeouts)
    assert "only keep-alive signals" in str(error)
    assert seconds < 10


def test_a_long_event_that_comes_in_small_pieces_is_no_dead_stream() -> None:
    async def main() -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            for piece in (b'data: {"choices":[{"index":0,"delta":{"content":"', *[b"word "] * 20, b'"}}]}\n\n'):
                writer.write(piece)
                await asyncio.sleep(0.05)
            writer.write(b"data: [DONE]\n\n")
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        place = Endpoint("custom", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "chat_completions", "m")
        reply = await Transport(timeouts=Timeouts(idle_s=0.8, keep_alive_s=10)).send(place, request("hi"))
        server.close()
        return reply.message.text

    assert asyncio.run(main()) == "word " * 20


def test_a_service_that_never_closes_its_stream_is_not_waited_for() -> None:
    async def main() -> tuple[str, float]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            writer.write(b': OPENROUTER PROCESSING\n\ndata: {"choices":[{"index":0,"delta":{"content":"done"},')
            writer.write(b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
            await writer.drain()
            await asyncio.sleep(30)

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        start = time.monotonic()
        place = Endpoint("custom", f"http://127.0.0.1:{port}/v1", "chat_completions", "m")
        reply = await once().send(place, request("hi"))
        server.close()
        return reply.message.text, time.monotonic() - start

    text, took_s = asyncio.run(main())
    assert text == "done"
    assert took_s < 5


def test_calls_share_a_connection_and_construction_opens_none() -> None:
    async def main(sim: Simulator) -> int:
        way = once()
        ports = set()
        for _ in range(3):
            await way.send(endpoint(sim, "chat_completions"), request("hi"))
            ports.add(sim.connections)
        await way.aclose()
        return max(ports)

    with Simulator() as sim:
        Transport()
        assert sim.connections == 0
        assert asyncio.run(main(sim)) == 1


def test_a_proxy_in_the_environment_does_not_come_between_us_and_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with Simulator() as sim:
        assert send(sim, "chat_completions", request("hi")).message.text.startswith("Simulated")


def test_a_proxy_that_cannot_be_used_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "nonsense://127.0.0.1:9")
    place = Endpoint("custom", "http://example.invalid/v1", "chat_completions", "m")
    with pytest.raises(ConfigError, match=r"the proxy named in the environment cannot be used: .*nonsense"):
        asyncio.run(once().send(place, request("hi")))


def test_one_transport_serves_several_event_loops() -> None:
    with Simulator() as sim:
        way = once()
        for _ in range(2):
            reply = asyncio.run(way.send(endpoint(sim, "codex_responses"), request("hi")))
            assert reply.message.text.startswith("Simulated reply")


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("http://h/v1/", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h", "/v1/messages", "http://h/v1/messages"),
        ("http://h/v1", "/v1/messages", "http://h/v1/messages"),
        ("http://h/api", "/v1/messages", "http://h/api/v1/messages"),
    ],
)
def test_a_version_is_named_once(base: str, path: str, url: str) -> None:
    assert url_of(base, path) == url


@pytest.mark.spec("G1")
def test_an_overflow_inside_a_stream_is_one() -> None:
    with Simulator(window=50, overflows_in_stream=True) as sim:
        error = failure(sim, "codex_responses", system=("x" * 1000,))
        assert error.verdict.kind == "prompt_too_long"
        assert [r.status for r in sim.requests] == [200]


@pytest.mark.spec("G1")
@all_modes
def test_a_bare_400_means_too_long_only_after_a_huge_request(mode: ApiMode) -> None:
    with Simulator(window=10_000_000, script=[Fail("proxy_bare_400")] * 2) as sim:
        assert failure(sim, mode).verdict.kind != "prompt_too_long"
        assert failure(sim, mode, system=("word " * 400_000,)).verdict.kind == "prompt_too_long"


@pytest.mark.spec("G1")
@all_modes
def test_a_full_window_as_a_stop_reason_comes_back_as_the_replys_end(mode: ApiMode) -> None:
    with Simulator(window=60, sum_overflow="stop_reason", script=["y" * 4000]) as sim:
        reply = send(sim, mode, request("hi", max_tokens=1000 if mode == "anthropic_messages" else None))
        expected = "context_overflow" if mode == "anthropic_messages" else "length"
        assert (reply.finish, reply.usage.output_tokens) == (expected, 60 - reply.usage.prompt_tokens)


@pytest.mark.parametrize(
    ("wait", "words"),
    [("1000000000", "more than 31 days"), ("31536000", "more than 31 days"), ("7200", "2 hours"), ("90", "90 seconds")]
    + [(huge, "more than 31 days") for huge in ("9" * 26, "1e12", "inf", "1000000000000")],
)
def test_a_wait_longer_than_anybody_sits_through_ends_the_call_at_once(wait: str, words: str) -> None:
    naps = Naps()
    refused = Fail(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after": wait})
    with Simulator(script=[refused] * 9) as sim:
        error = failure(sim, "chat_completions", transport=Transport(sleep=naps))
        assert (len(sim.requests), naps.seconds) == (1, [])
        assert f"asks to wait {words}" in str(error)


def test_a_wait_stated_in_the_body_counts_too_and_a_moment_of_the_calendar_is_no_duration() -> None:
    now_s = 1_800_000_000.0
    stated = {"error": {"message": "slow down", "retry_after": 10**12}}
    assert classify_error(429, stated, now_s=now_s).retry_after_s == MAX_WAIT_S
    moment = {"retry-after": str(int(now_s) + 12)}
    assert classify_error(429, "slow down", headers=moment, now_s=now_s).retry_after_s == 12


@pytest.mark.spec("K2")
@all_modes
def test_calls_whose_ids_share_a_half_reach_every_service_as_two(mode: ApiMode) -> None:
    asking = assistant(None, (ToolCall("a|b1", "read"), ToolCall("a|b2", "read")))
    history = [user("go"), asking, tool_result("a|b2", "second"), tool_result("a|b1", "first")]
    with Simulator(strict()) as sim:
        send(sim, mode, request(*rules.repair(history)))
        assert sim.violations == []


def test_a_prompt_refused_with_status_500_costs_nothing() -> None:
    body = {"error": {"code": 500, "message": "context shift is disabled", "type": "server_error"}}
    with Simulator(script=[Fail(status=500, body=body)]) as sim:
        error = failure(sim, "chat_completions")
    assert error.verdict.kind == "prompt_too_long"
    assert not error.may_be_billed


@pytest.mark.parametrize("client", [HttpxClient, AiohttpClient])
@all_modes
def test_no_header_is_sent_twice(mode: ApiMode, client: Callable[[], Any]) -> None:
    own = {"Content-Type": "application/json", "AUTHORIZATION": "Bearer mine", "User-Agent": "own"}
    with Simulator(strict(), script=["hi", "hi"]) as sim:

        async def call() -> None:
            transport = Transport(client=client(), retries=Retries(attempts=1))
            try:
                await transport.send(endpoint(sim, mode), request("hi"))
                await transport.send(replace(endpoint(sim, mode), headers=own), request("hi"))
            finally:
                await transport.aclose()

        asyncio.run(call())
        assert sim.violations == []
        assert sim.requests[0].headers["content-type"] == "application/json"
        assert sim.requests[1].headers["authorization"] == "Bearer mine"
        assert sim.requests[1].headers["user-agent"] == "own"


def test_the_simulator_refuses_a_header_that_is_sent_twice() -> None:
    with Simulator(script=["hi"]) as sim:
        host, _, port = sim.root_url.removeprefix("http://").rpartition(":")
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"content-type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(head.encode() + body)
            answer = connection.recv(4096).decode()
        assert answer.startswith("HTTP/1.1 400")
        assert [v.rule for v in sim.violations] == ["headers"]
