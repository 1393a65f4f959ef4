"""What a streamed reply costs us: the reader and the mode alone, and a whole call over loopback HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from benchmarks.table import Row
from perdure.core.messages import Entry, user
from perdure.providers.http import HttpClient, HttpxClient, SseReader, url_of
from perdure.providers.http_asyncio import AsyncioHttpClient
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
MODES: dict[ApiMode, str] = {
    "chat_completions": "/v1/chat/completions",
    "codex_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
SERVER = f"""
from perdure.testing.simulator import Rules, Say, Simulator
rules = Rules(max_output=1_000_000, window=2_000_000)
burst = Say("twelve chars" * {CHUNKS}, chunk_chars=12)
paced = Say("twelve chars" * {PACED}, chunk_chars=12, chunk_delay_s=0.002)
sim = Simulator(rules, script=lambda asked: paced if "paced" in str(asked.body) else burst)
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
    """The gateway's HTTP client beside libraries that could replace it."""
    clients: dict[str, Callable[[], HttpClient]] = {"our own": AsyncioHttpClient, "httpx": HttpxClient}
    if importlib.util.find_spec("aiohttp") is not None:
        clients["aiohttp"] = AiohttpClient
    for text, chunks, runs in (("burst", CHUNKS, 8), ("paced", PACED, 4)):
        for name, make in clients.items():
            cost = asyncio.run(calls("chat_completions", root, text, chunks=chunks, runs=runs, make=make))
            yield Row(f"HTTP client {name}: {text}", cost / chunks * 1e6, "µs")


class AiohttpClient:
    """The same port over aiohttp, for comparison: no TLS settings, no decompression of our own."""

    def __init__(self) -> None:
        self._session: Any = None

    @asynccontextmanager
    async def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AsyncIterator[AiohttpResponse]:
        aiohttp: Any = import_module("aiohttp")
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=connect_s))
        async with self._session.post(url_of(endpoint.base_url, path), data=body, headers=headers) as response:
            yield AiohttpResponse(response)

    def failures(self) -> tuple[type[BaseException], ...]:
        return (OSError, import_module("aiohttp").ClientError)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


class AiohttpResponse:
    def __init__(self, response: Any) -> None:
        self._response = response

    @property
    def status_code(self) -> int:
        return int(self._response.status)

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self._response.headers.items()}

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        async for piece in self._response.content.iter_any():
            yield piece


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


def best(work: Callable[[], None], runs: int = 5) -> float:
    """The least CPU seconds of several runs: the machine is shared."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)
