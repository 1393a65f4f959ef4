"""What a streamed reply costs us: the reader and the mode alone, a whole call over loopback HTTP, and many at once."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import uvloop

from benchmarks.table import Row
from perdure.core.events import TextDelta
from perdure.core.messages import Entry, user
from perdure.providers.http import HttpClient, HttpxClient, SseReader
from perdure.providers.http_aiohttp import AiohttpClient
from perdure.providers.registry import mode_module
from perdure.providers.transport import Transport
from perdure.providers.types import ApiMode, Endpoint, ModelRequest
from perdure.testing.simulator import Say
from perdure.testing.simulator.rules import Issued, Rules
from perdure.testing.simulator.service import PROTOCOLS
from perdure.testing.simulator.turn import Scene, take_turn

TITLE = "Streaming: CPU per chunk"
CHUNKS = 4000
PACED = 400
# As many streams as the gateway's benchmark has turns in flight, at the same pace.
STREAMS = 200
PIECES = 80
PACE_S = 0.05
MANY_RUNS = 3
_STAMP = re.compile(r"@(\d{6,20}) ")
MODES: dict[ApiMode, str] = {
    "chat_completions": "/v1/chat/completions",
    "codex_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
SERVER = f"""
import uvloop
from perdure.testing.simulator import Rules, Say, Simulator
rules = Rules(max_output=1_000_000, window=2_000_000)
burst = Say("twelve chars" * {CHUNKS}, chunk_chars=12)
paced = Say("twelve chars" * {PACED}, chunk_chars=12, chunk_delay_s=0.002)
many = Say("twelve chars" * {PIECES}, chunk_chars=12, chunk_delay_s={PACE_S}, is_stamped=True)
replies = dict(paced=paced, burst=burst, many=many)
sim = Simulator(rules, script=lambda request: next(r for name, r in replies.items() if name in str(request.body)))
uvloop.install()
sim.serve_forever(lambda: print(sim.root_url, flush=True))
"""


def rows() -> Iterator[Row]:
    for mode in MODES:
        chunks = frames(mode)
        yield Row(f"{mode}: reader + feed", best(lambda m=mode, c=chunks: read(m, c)) / len(chunks) * 1e6, "µs", "< 60")
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            root = server.stdout.readline().strip() if server.stdout else ""
            for mode in MODES:
                cost = asyncio.run(calls(mode, root, "burst", chunks=CHUNKS, runs=8))
                yield Row(f"{mode}: whole call over loopback, httpx included", cost / CHUNKS * 1e6, "µs", "< 60")
            cost = asyncio.run(calls("chat_completions", root, "paced", chunks=PACED, runs=2))
            note = "each waits for the next: mostly waking up"
            yield Row("the same, a chunk every 2 ms", cost / PACED * 1e6, "µs", note=note)
            yield from compare_clients(root)
        finally:
            server.terminate()


def frames(mode: ApiMode) -> list[bytes]:
    """A long reply as the service streams it, one chunk each."""
    say = Say("twelve chars" * CHUNKS, chunk_chars=12)
    turn = take_turn(say, number=1, model="m", created_s=0, max_output=1_000_000, ending="length")
    scene = Scene({"model": "m", "stream_options": {"include_usage": True}}, Rules(), Issued())
    return list(PROTOCOLS[MODES[mode]].render_stream(turn, scene))


def read(mode: ApiMode, chunks: list[bytes]) -> None:
    reader, stream = SseReader(), mode_module(mode).make_stream()
    for chunk in chunks:
        for event in reader.feed(chunk):
            stream.feed(event)
    stream.finish()


def compare_clients(root: str) -> Iterator[Row]:
    """The gateway's HTTP client (aiohttp) beside that of every other process (httpx)."""
    clients: dict[str, Callable[[], HttpClient]] = {"aiohttp": AiohttpClient, "httpx": HttpxClient}
    for text, chunks, runs in (("burst", CHUNKS, 8), ("paced", PACED, 4)):
        for name, make in clients.items():
            cost = asyncio.run(calls("chat_completions", root, text, chunks=chunks, runs=runs, make=make))
            yield Row(f"HTTP client {name}: {text}", cost / chunks * 1e6, "µs")
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
    for _ in range(MANY_RUNS):  # in turns, as the machine is shared
        for name, make in clients.items():
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                measured[name].append(runner.run(many_streams(root, make)))
    for name, runs_of in measured.items():
        cost, p99_s = (min(figures) for figures in zip(*runs_of, strict=True))
        yield Row(f"HTTP client {name}: {STREAMS} streams", cost / STREAMS / PIECES * 1e6, "µs", note="per chunk")
        yield Row(f"HTTP client {name}: {STREAMS} streams, p99", p99_s * 1e3, "ms", note="sent until delivered")


async def calls(
    mode: ApiMode, root: str, text: str, *, chunks: int, runs: int, make: Callable[[], HttpClient] = HttpxClient
) -> float:
    """The least CPU seconds of several calls over one kept connection; the first one opens it."""
    base = root if mode == "anthropic_messages" else f"{root}/v1"
    request = ModelRequest("m", (Entry(0, user(text)),), max_tokens=100_000)
    way, found = Transport(client=make()), list[float]()
    for _ in range(runs):
        heard: list[object] = []
        start = time.process_time()
        reply = await way.send(Endpoint("custom", base, mode, "m"), request, on_event=heard.append)
        found.append(time.process_time() - start)
        if len(reply.message.text) != 12 * chunks:
            raise RuntimeError(f"{mode}: the reply is not whole")
    await way.aclose()
    return min(found)


async def many_streams(root: str, make: Callable[[], HttpClient]) -> tuple[float, float]:
    """CPU seconds of this process for many streams at once, and the p99 of a chunk's age when it is delivered."""
    endpoint = Endpoint("custom", f"{root}/v1", "chat_completions", "m")
    request = ModelRequest("m", (Entry(0, user("many")),), max_tokens=100_000)
    transport, ages_ns = Transport(client=make()), list[int]()

    def on_event(event: object) -> None:
        if isinstance(event, TextDelta):
            now_ns = time.monotonic_ns()
            ages_ns.extend(now_ns - int(stamp) for stamp in _STAMP.findall(event.text))

    async def one(number: int) -> None:
        # They begin one after the other, so that the service does not send every piece at the same moment.
        await asyncio.sleep(number * PACE_S / STREAMS)
        await transport.send(endpoint, request, on_event=on_event)

    start = time.process_time()
    await asyncio.gather(*(one(number) for number in range(STREAMS)))
    cost = time.process_time() - start
    await transport.aclose()
    if len(ages_ns) < STREAMS * PIECES:
        raise RuntimeError(f"{len(ages_ns)} of {STREAMS * PIECES} chunks arrived")
    return cost, sorted(ages_ns)[int(len(ages_ns) * 0.99)] / 1e9


def best(work: Callable[[], None], runs: int = 5) -> float:
    """The least CPU seconds of several runs: the machine is shared."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)
