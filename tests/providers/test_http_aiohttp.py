"""The gateway's HTTP client talks to every service that httpx does, and fails with the same messages."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.core.errors import ProviderError
from perdure.core.events import RetryScheduled, TextDelta
from perdure.providers.http_aiohttp import AiohttpClient
from perdure.providers.transport import Retries, Timeouts, Transport
from perdure.providers.types import ApiMode, Endpoint
from perdure.testing.simulator import Say, Simulator
from support.simulator import MODES, endpoint, request

REPLY = b'{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def transport(**timeouts: float) -> Transport:
    return Transport(client=AiohttpClient(), retries=Retries(attempts=1), timeouts=Timeouts(**timeouts))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_streaming", [True, False])
def test_every_mode_comes_through_whole_and_the_connection_is_used_again(mode: ApiMode, is_streaming: bool) -> None:
    async def calls(sim: Simulator) -> list[str]:
        way, heard = transport(), []
        for _ in range(3):
            asked = request("hello", is_streaming=is_streaming)
            reply = await way.send(endpoint(sim, mode), asked)
            heard.append(reply.message.text)
        await way.aclose()
        return heard

    with Simulator(script=lambda asked: Say("a reply of some length", thinking="hm")) as sim:
        assert asyncio.run(calls(sim)) == ["a reply of some length"] * 3
        assert sim.connections == 1
        assert sim.violations == []


def ask(serve: Serve, **timeouts: float) -> Any:
    """One call to a server made by hand: the reply's text, or how it failed."""

    async def run() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        way = transport(**timeouts)
        try:
            where = Endpoint("custom", f"http://127.0.0.1:{port}/v1", "chat_completions", "m", api_key="k")
            return [(await way.send(where, request("hello"))).message.text for _ in range(2)]
        except ProviderError as error:
            return error
        finally:
            await way.aclose()
            server.close()

    return asyncio.run(run())


def answering(*pieces: bytes, is_closing: bool = False) -> Serve:
    """Reads a request, then sends these bytes, one write each."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await reader.readuntil(b"\r\n\r\n")) and not reader.at_eof():
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
            if is_closing:
                writer.close()
                return

    return serve


def head(*lines: str) -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", "content-type: application/json", *lines, "", "")).encode()


def test_a_body_without_a_length_lasts_until_the_line_is_closed() -> None:
    assert ask(answering(head(), REPLY[:20], REPLY[20:], is_closing=True)) == ["hi", "hi"]


def test_a_body_torn_anywhere_is_put_together_again() -> None:
    whole = head(f"content-length: {len(REPLY)}") + REPLY
    assert ask(answering(*(whole[i : i + 1] for i in range(len(whole))))) == ["hi", "hi"]


def test_a_packed_body_is_unpacked_though_nobody_asked_for_it() -> None:
    packed = gzip.compress(REPLY)
    assert ask(answering(head("content-encoding: gzip", f"content-length: {len(packed)}") + packed)) == ["hi", "hi"]


def test_an_interim_answer_is_not_the_answer() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    assert ask(answering(interim + head(f"content-length: {len(REPLY)}") + REPLY)) == ["hi", "hi"]


def test_interim_answers_without_end_are_ended_by_the_timeout() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while True:
                writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 50)
                await writer.drain()

    error = ask(flood, first_token_s=0.5)
    assert "no reply within 0.5 s" in str(error)


def _hanging_up(reads: Callable[[asyncio.StreamReader], Awaitable[object]], heard: list[bytes]) -> Serve:
    """Answer the first request of a connection, promise to keep it, and hang up on the second one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await _read_request(reader))
        writer.write(head(f"content-length: {len(REPLY)}", "connection: keep-alive") + REPLY)
        await writer.drain()
        with contextlib.suppress(asyncio.IncompleteReadError):
            if second := await reads(reader):
                heard.append(bytes(second) if isinstance(second, bytes) else b"")
        writer.transport.abort()

    return serve


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    raw = await reader.readuntil(b"\r\n\r\n")
    return raw + await reader.readexactly(int(raw.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


def test_an_idle_connection_that_was_closed_is_replaced_without_a_word() -> None:
    async def calls(heard: list[bytes]) -> list[str]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await _read_request(reader))
            writer.write(head(f"content-length: {len(REPLY)}", "connection: keep-alive") + REPLY)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        where = Endpoint("custom", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", "chat_completions", "m")
        way, replies = transport(), []
        for _ in range(3):
            replies.append((await way.send(where, request("hello"))).message.text)
            await asyncio.sleep(0.05)
        await way.aclose()
        server.close()
        return replies

    heard: list[bytes] = []
    assert asyncio.run(calls(heard)) == ["hi"] * 3
    assert len(heard) == 3


@pytest.mark.parametrize("reads", [_read_request, lambda reader: reader.read(1)], ids=["whole", "first byte"])
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_request_that_may_have_arrived_is_sent_again_only_by_the_retries_that_are_reported(
    reads: Callable[[asyncio.StreamReader], Awaitable[object]], attempts: int
) -> None:
    async def calls(heard: list[bytes], events: list[object]) -> list[str]:
        server = await asyncio.start_server(_hanging_up(reads, heard), "127.0.0.1", 0)
        where = Endpoint("custom", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", "chat_completions", "m")
        way = Transport(client=AiohttpClient(), retries=Retries(attempts=attempts, base_s=0.01))
        try:
            first = await way.send(where, request("hello"))
            return [
                first.message.text,
                (await way.send(where, request("hello again"), on_event=events.append)).message.text,
            ]
        finally:
            await way.aclose()
            server.close()

    heard: list[bytes] = []
    events: list[object] = []
    if attempts == 1:
        with pytest.raises(ProviderError) as failure:
            asyncio.run(calls(heard, events))
        assert failure.value.may_be_billed
        assert len(heard) == 2
        return
    assert asyncio.run(calls(heard, events)) == ["hi", "hi"]
    assert len(heard) == 3
    assert [event.attempt for event in events if isinstance(event, RetryScheduled)] == [2]


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        (answering(b"no http at all\r\n\r\n"), "connection was lost"),
        (answering(head("content-length: 500") + REPLY, is_closing=True), "connection was lost"),
        (answering(head("transfer-encoding: chunked") + b"5\r\nabcde\r\n", is_closing=True), "connection was lost"),
    ],
)
def test_a_broken_answer_is_told_as_a_lost_connection(serve: Serve, words: str) -> None:
    failure = ask(serve)
    assert isinstance(failure, ProviderError)
    assert failure.verdict.kind == "transport"
    assert words in str(failure)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:9/v1", "nothing is listening there"),
        ("http://no-such-host.invalid/v1", "no such host"),
        ("ftp://127.0.0.1/v1", "is not a valid URL"),
        ("http://127.0.0.1:99999/v1", "is not a valid URL"),
    ],
)
def test_an_address_nobody_is_at_is_told_in_the_usual_words(address: str, words: str) -> None:
    async def call() -> None:
        where = Endpoint("custom", address, "chat_completions", "m", api_key="k")
        await transport().send(where, request("hello"))

    with pytest.raises(ProviderError, match=words):
        asyncio.run(call())


def test_a_service_that_says_nothing_is_not_waited_for_for_ever() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    failure = ask(silent, first_token_s=0.2)
    assert isinstance(failure, ProviderError)
    assert "no reply within" in str(failure)


def test_cancelling_a_call_closes_its_connection() -> None:
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head("transfer-encoding: chunked"))
        while await reader.read(1000):
            pass
        hung_up.set()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        where = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        call = asyncio.create_task(
            transport().send(Endpoint("custom", where, "chat_completions", "m", api_key="k"), request("hello"))
        )
        await asyncio.sleep(0.2)
        call.cancel()
        await asyncio.wait_for(hung_up.wait(), 3)
        server.close()

    asyncio.run(run())


# -- streams: pieces are handed over as they arrive --------------------------------------------------------------------


def events(*texts: str) -> bytes:
    chunks = [f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n' for text in texts]
    return "".join((*chunks, "data: [DONE]\n\n")).encode()


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))


STREAMED = head("transfer-encoding: chunked")


def test_a_stream_torn_anywhere_is_put_together_again() -> None:
    whole = STREAMED + chunked(events("one ", "two"))
    assert ask(answering(*(whole[i : i + 3] for i in range(0, len(whole), 3)))) == ["one two", "one two"]


def test_a_packed_stream_is_unpacked_as_it_comes() -> None:
    packed = gzip.compress(events("one ", "two"))
    whole = head("transfer-encoding: chunked", "content-encoding: gzip") + chunked(
        packed[:30], packed[30:60], packed[60:]
    )
    assert ask(answering(whole[:200], whole[200:])) == ["one two", "one two"]


def test_a_stream_that_never_says_it_is_done_ends_with_its_body() -> None:
    said = events("one ", "two").removesuffix(b"data: [DONE]\n\n")
    finish = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    assert ask(answering(STREAMED, chunked(said, finish))) == ["one two", "one two"]


def test_a_stream_cut_off_is_a_lost_connection_that_knows_what_was_said() -> None:
    piece = events("half of")[:60]
    half = events("one ").removesuffix(b"data: [DONE]\n\n")
    failure = ask(answering(STREAMED, b"%x\r\n%b\r\n" % (len(half), half), b"50\r\n" + piece, is_closing=True))
    assert isinstance(failure, ProviderError)
    assert failure.verdict.kind == "transport"
    assert failure.partial_text == "one "


def test_an_error_told_within_a_stream_reaches_the_caller_with_what_was_said() -> None:
    said = events("one ").removesuffix(b"data: [DONE]\n\n")
    trouble = b'data: {"error":{"message":"overloaded","type":"overloaded_error"}}\n\n'
    failure = ask(answering(STREAMED, chunked(said + trouble)))
    assert isinstance(failure, ProviderError)
    assert failure.partial_text == "one "
    assert "overloaded" in str(failure)


def test_words_that_arrive_together_are_told_together() -> None:
    heard: list[Any] = []

    async def run() -> None:
        server = await asyncio.start_server(
            answering(STREAMED, chunked(events("one ", "two ", "three"))), "127.0.0.1", 0
        )
        where = Endpoint(
            "custom", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", "chat_completions", "m", api_key="k"
        )
        way = transport()
        await way.send(where, request("hello", is_streaming=True), on_event=heard.append)
        await way.aclose()
        server.close()

    asyncio.run(run())
    assert heard == [TextDelta("one two three")]


def test_a_delta_is_delivered_in_the_callback_of_its_socket_with_the_context_of_the_caller() -> None:
    caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="")
    seen: list[tuple[bool, str]] = []
    stream = chunked(events("one ")[:-14], events("two ")[:-14], events("three"))
    pieces = [stream[i : i + 50] for i in range(0, len(stream), 50)]

    async def run() -> None:
        server = await asyncio.start_server(answering(STREAMED, *pieces), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        client = transport()
        caller.set("opened the connection")
        for name in ("first call", "second call"):
            caller.set(name)
            await client.send(
                Endpoint("custom", url, "chat_completions", "m", api_key="k"),
                request("hello", is_streaming=True),
                on_event=lambda event: seen.append((asyncio.current_task() is None, caller.get())),
            )
        await client.aclose()
        server.close()

    asyncio.run(run())
    # The first chunk of a body is read by the task, which learns from it whether the body is a stream.
    assert {name for _, name in seen} == {"first call", "second call"}
    assert seen.count((True, "first call")) == seen.count((True, "second call")) >= 2


def test_a_stream_that_is_cancelled_closes_its_connection() -> None:
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        writer.write(STREAMED)
        piece = events("one ")[:-14]
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing() and not reader.at_eof():
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()
        hung_up.set()

    async def run() -> None:
        server, deltas = await asyncio.start_server(serve, "127.0.0.1", 0), list[object]()
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        client = transport()
        call = asyncio.create_task(
            client.send(
                Endpoint("custom", url, "chat_completions", "m", api_key="k"),
                request("hello", is_streaming=True),
                on_event=deltas.append,
            )
        )
        while len(deltas) < 3:
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait_for(hung_up.wait(), 3)
        before = len(deltas)
        await asyncio.sleep(0.05)
        assert len(deltas) == before
        await client.aclose()
        server.close()

    asyncio.run(run())
