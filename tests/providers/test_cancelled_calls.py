"""A call may be cancelled at any moment, once or twice: its connection is closed or used again, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from perdure.core.errors import PerdureError
from perdure.core.events import TextDelta
from perdure.providers.http import HttpClient, HttpxClient
from perdure.providers.http_aiohttp import AiohttpClient
from perdure.providers.transport import Retries, Timeouts, Transport
from perdure.providers.types import Endpoint
from perdure.testing.simulator import Fail, Simulator
from support.agents import bench
from support.simulator import endpoint, request

# More than the moments of a whole call, so that every stage is met: connecting, sending, reading, draining, closing.
STEPS = 70
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
both_wires = pytest.mark.parametrize("make_wire", [HttpxClient, AiohttpClient], ids=["httpx", "aiohttp"])


class QuickService:
    """Streams a short reply in the test's own event loop, and counts who is connected."""

    def __init__(self) -> None:
        self.connected = 0
        self.served = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                self.served += 1
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for piece in (PIECE, PIECE, END):
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    await asyncio.sleep(0)
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.connected -= 1
            writer.close()


async def cancel_after(call: asyncio.Task[object], steps: int, again_after: int | None) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
    call.cancel()
    if again_after is not None:
        for _ in range(again_after):
            await asyncio.sleep(0)
        call.cancel()
    with suppress(asyncio.CancelledError):
        await call


@pytest.mark.spec("J4")
@both_wires
@pytest.mark.parametrize("again_after", [None, 0, 1, 2, 4], ids=lambda n: f"again-{n}")
def test_a_cancel_at_every_step_leaves_no_connection_behind(
    make_wire: Callable[[], HttpClient], again_after: int | None
) -> None:
    async def run() -> None:
        service = QuickService()
        server = await asyncio.start_server(service, "127.0.0.1", 0)
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        where = Endpoint("custom", base, "chat_completions", "m", api_key="k")
        way = Transport(client=make_wire(), retries=Retries(attempts=1), timeouts=Timeouts(first_token_s=5))
        for steps in range(STEPS):
            call: asyncio.Task[object] = asyncio.create_task(way.send(where, request("hello")))
            await cancel_after(call, steps, again_after)
        assert service.served > STEPS // 2, "the later cancels met a call under way"
        assert (await way.send(where, request("hello"))).message.text == "word word "
        async with asyncio.timeout(2):
            while service.connected > 1:
                await asyncio.sleep(0.01)
        await way.aclose()
        async with asyncio.timeout(2):
            while service.connected:
                await asyncio.sleep(0.01)
        server.close()

    asyncio.run(run())


@pytest.mark.spec("J4")
def test_leaving_a_stream_early_many_times_does_not_wear_the_agent_out(tmp_path: Path) -> None:
    async def leave_early(text: str) -> None:
        async with aclosing(b.agent.stream(text)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break

    async def run() -> None:
        left = 0
        while left < 45:
            try:
                await leave_early(f"hi {left}")
                left += 1
            except PerdureError:  # the turn that was left is still being taken down
                await asyncio.sleep(0.002)
        await asyncio.sleep(0.1)

    with bench(tmp_path, lambda asked: "a short answer here", window=200_000) as b:
        asyncio.run(run())
        assert b.agent.run_conversation("a plain turn").outcome == "completed"


@pytest.mark.spec("J4")
@both_wires
def test_an_idle_connection_is_used_again_also_after_a_refusal(make_wire: Callable[[], HttpClient]) -> None:
    async def run(sim: Simulator) -> None:
        way = Transport(client=make_wire(), retries=Retries(attempts=3, base_s=0.0))
        for _ in range(4):
            await way.send(endpoint(sim, "chat_completions"), request("hello"))
        await way.aclose()

    refused = Fail(status=429, body={"error": {"message": "slow down"}})
    with Simulator(script=["one", refused, "two", "three", "four"]) as sim:
        asyncio.run(run(sim))
        assert len(sim.requests) == 5
        assert sim.connections == 1
