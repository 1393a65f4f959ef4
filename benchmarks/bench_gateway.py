"""What the gateway adds to a stream, and what an idle conversation costs it.

Three processes: the simulator (a stamped piece of text every 50 ms in each stream), the gateway, and this one, which
holds the connections. Every piece says when the simulator sent it, on the one stopwatch all processes of a machine
share. What a client measures through the gateway, less what the same client measures straight from the simulator under
the same load, is the gateway's own overhead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

from benchmarks.table import Row

TITLE = "Gateway: 1,000 conversations open, 200 turns in flight, 20 pieces a second each"
CONVERSATIONS = 1_000
IN_FLIGHT = 200
PIECES = 240
PACE_S = 0.05
SECONDS = 15.0
_STAMP = re.compile(rb"@(\d{6,20}) ")

SIMULATOR = f"""
import uvloop
from perdure.testing.simulator import Rules, Say, Simulator
paced = Say("twelve char " * {PIECES}, chunk_chars=12, chunk_delay_s={PACE_S}, is_stamped=True)
rules = Rules(max_output=1_000_000, window=2_000_000)
sim = Simulator(rules, script=lambda asked: "Noted." if "briefly" in str(asked.body["messages"][-1]) else paced)
uvloop.install()
sim.serve_forever(lambda: print(sim.root_url, flush=True))
"""

GATEWAY = """
import os, sys
from pathlib import Path
from perdure.config.settings import Settings
from perdure.core.visibility import User
from perdure.gateway.auth.principal import SCOPES, Principal
from perdure.gateway.server import GatewayConfig, run
from perdure.store.store import open_store

class Anybody:
    is_fresh = True
    def authenticate(self, token):
        return Principal(User(token or "somebody"), frozenset(("chat", "read")))

folder, url = Path(sys.argv[1]), sys.argv[2]
os.environ["OPENAI_API_KEY"] = "k"
limits = {"requests_per_minute": None, "max_live_agents": 5_000}
settings = Settings.model_validate({
    "model": {"name": "m-1", "provider": "openai", "base_url": url, "context_length": 2_000_000},
    "gateway": {"port": 0, "log": "off", **limits},
})
run(GatewayConfig(settings, folder, open_store(folder / "perdure.db"), Anybody(),
         on_ready=lambda host, port: print(f"http://{host}:{port}", flush=True)))
"""


def rows() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory() as folder,
        _process(SIMULATOR) as (simulator, other),
        _process(GATEWAY, folder, f"{simulator}/v1") as (gateway, pid),
        # What stands around the gateway should leave it the two cores.
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        yield from runner.run(_measured(simulator, gateway, pid, other))


async def _measured(simulator: str, gateway: str, pid: int, other: int) -> list[Row]:
    found: list[Row] = []
    straight, _ = await _load(simulator, None)
    before_kb = memory_kb(pid)
    started = time.perf_counter()
    await _open_all(gateway)
    opened_s = time.perf_counter() - started
    idle_kb = (memory_kb(pid) - before_kb) / CONVERSATIONS
    cpu = [cpu_s(p) for p in (pid, other, os.getpid())]
    began = time.perf_counter()
    through, starts = await _load(gateway, "somebody")
    took_s = time.perf_counter() - began
    rate = len(through) / SECONDS
    ours, sims, clients = ((cpu_s(p) - c) / took_s for p, c in zip((pid, other, os.getpid()), cpu, strict=True))
    for share_of, name in ((0.50, "p50"), (0.99, "p99")):
        added = (quantile(through, share_of) - quantile(straight, share_of)) / 1e6
        bar = "< 50" if name == "p99" else None
        found.append(Row(f"added to a piece of text, {name}", added, "ms", bar, f"{len(through):,} pieces"))
    note = f"straight from the simulator: {quantile(straight, 0.99) / 1e6:.1f} ms"
    found.append(Row("a piece through the gateway, p99", quantile(through, 0.99) / 1e6, "ms", note=note))
    note = "post to the first event of the turn, the message stored before it"
    found.append(Row("a turn's start, p99", quantile(starts, 0.99) / 1e6, "ms", note=note))
    found.append(Row("memory of an idle conversation, its agent ready", idle_kb, "KB", "< 150"))
    note = f"the simulator {sims:.2f}, the clients {clients:.2f}"
    found.append(Row("the gateway's processor time meanwhile", ours, "cores", note=note))
    found.append(Row("pieces a second", rate, "", note=f"{IN_FLIGHT / PACE_S:,.0f} if nobody ever waited"))
    found.append(Row("opening one conversation (a whole turn each)", opened_s / CONVERSATIONS * 1e3, "ms"))
    return found


# -- the load ----------------------------------------------------------------------------------------------------------


async def _open_all(gateway: str) -> None:
    """A turn in each conversation, so that each has an agent and a history."""
    gate = asyncio.Semaphore(20)

    async def one(number: int) -> None:
        async with gate:
            body = {"chat": f"chat-{number}", "content": f"Answer briefly: what is {number}?"}
            await _streamed(gateway, "/api/messages", body, token="somebody")

    await asyncio.gather(*(one(n) for n in range(CONVERSATIONS)))


async def _load(base: str, token: str | None) -> tuple[list[int], list[int]]:
    """Two hundred streams at a time; how old each piece was when it came, and how long each turn took to begin.

    They begin one after the other, so that turns do not end all at once. What is counted comes between the moment when
    the last has begun and the moment when the first stops.
    """
    ages: list[int] = []
    starts: list[int] = []
    streams: list[tuple[int, list[tuple[int, bytes]]]] = []
    full = time.monotonic() + PACE_S * PIECES
    end = full + SECONDS

    async def worker(number: int) -> None:
        await asyncio.sleep(number * PACE_S * PIECES / IN_FLIGHT)
        turn = 0
        while time.monotonic() < end:
            chat = (number + turn * IN_FLIGHT) % CONVERSATIONS
            turn += 1
            if token is None:
                path, body = "/v1/chat/completions", {"model": "m-1", "stream": True, **_asked("Talk at length.")}
            else:
                path, body = "/api/messages", {"chat": f"chat-{chat}", "content": "Talk at length."}
            streams.append((time.monotonic_ns(), await _streamed(base, path, body, token=token)))

    await asyncio.gather(*(worker(n) for n in range(IN_FLIGHT)))
    # What came is looked at only now: the clients should take as little of the machine as they can.
    for sent, heard in streams:
        counted = [(now, data) for now, data in heard if full <= now / 1e9 <= end]
        ages += [now - int(stamp) for now, data in counted for stamp in _stamps(data)]
        starts += [now - sent for now, data in counted if b"event: turn_started" in data]
    return ages, starts


def _stamps(data: bytes) -> list[bytes]:
    """The moments in a piece of the stream; not those in the whole answer that stands at its end."""
    if b"final_response" in data:
        data = b"".join(line for line in data.split(b"\n") if b"final_response" not in line)
    return _STAMP.findall(data)


def _asked(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


class _Client(asyncio.Protocol):
    """Notes what arrives, and when. As little as can be: the client must not be what is measured."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.heard: list[tuple[int, bytes]] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.heard.append((time.monotonic_ns(), data))
        if data.endswith(b"0\r\n\r\n"):
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


async def _streamed(base: str, path: str, body: dict[str, object], *, token: str | None) -> list[tuple[int, bytes]]:
    """What a POST is answered with, each piece with the moment it came."""
    where = urlsplit(base)
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {where.netloc}\r\nauthorization: Bearer {token or 'k'}\r\n"
        f"accept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        "connection: close\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: _Client(head.encode() + content), where.hostname, where.port)
    await client.ended
    if not client.heard or b" 200 " not in client.heard[0][1].split(b"\r\n", 1)[0]:
        raise RuntimeError(f"{path} was refused: {client.heard[:2]!r}")
    return client.heard


# -- the processes -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _process(code: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """Another Python, and the address it prints once it serves."""
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else "", process.pid
        finally:
            process.terminate()
            process.wait(30)


def memory_kb(pid: int) -> float:
    """What a process holds in memory that is its own."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("Private_", "Swap:")))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantile(values: list[int], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * share))])
