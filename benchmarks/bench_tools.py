"""Tools: what a call costs beside its own work, how fast commands are read, and what a huge output takes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.table import Row
from perdure.core.concurrency import SystemClock
from perdure.core.messages import ToolCall, canonical_json
from perdure.tools.approval import ApprovalGuard
from perdure.tools.runtime import ToolRuntime, ToolScope
from perdure.tools.shell_safety.analyzer import ShellContext, find_dangers
from perdure.tools.tool import ToolRegistry, tool
from perdure.tools.workspace import Workspace

TITLE = "Tools"
_CALLS = 500
_TESTS = Path(__file__).parents[1] / "tests"


@tool()
async def nothing(text: str, count: int = 1) -> str:
    """Does nothing."""
    return text


@tool()
def nothing_in_a_thread(text: str) -> str:
    """Does nothing, in a thread."""
    return text


@tool(command_parameter="command")
async def shell(command: str) -> str:
    """Runs nothing, but is guarded like the terminal."""
    return command


def rows() -> Iterator[Row]:
    yield Row("dispatch of one call, async tool", _one_by_one("nothing", text="x"), "ms", "< 1")
    yield Row("dispatch of one call, sync tool in a thread", _one_by_one("nothing_in_a_thread", text="x"), "ms", "< 1")
    yield Row("dispatch of one guarded shell call", _one_by_one("shell", command="git status && ls -la"), "ms", "< 1")
    yield Row("dispatch of 100 calls in one message, per call", _side_by_side(100), "ms", "< 1")
    yield from _reading()
    yield from _large_output()


def _runtime() -> ToolRuntime:
    guard = ApprovalGuard(Workspace(Path("/work")), home=Path("/home/me"))
    return ToolRuntime(ToolRegistry([nothing, nothing_in_a_thread, shell]), clock=SystemClock(), guard=guard)


def _one_by_one(name: str, **arguments: object) -> float:
    runtime, call = _runtime(), ToolCall("call_1", name, canonical_json(arguments))

    async def run() -> float:
        started = time.process_time()
        for _ in range(_CALLS):
            await runtime.batch([call], ToolScope()).run()
        return (time.process_time() - started) / _CALLS

    return _best(lambda: asyncio.run(run()))


def _side_by_side(count: int) -> float:
    runtime = _runtime()
    calls = [ToolCall(f"call_{n}", "nothing", canonical_json({"text": str(n)})) for n in range(count)]

    async def run() -> float:
        started = time.process_time()
        await runtime.batch(calls, ToolScope()).run()
        return (time.process_time() - started) / count

    return _best(lambda: asyncio.run(run()))


def _best(measure: Callable[[], float], tries: int = 5) -> float:
    return min(measure() for _ in range(tries)) * 1_000


def _reading() -> Iterator[Row]:
    """The two corpora of the suite, read as the guard reads them."""
    sys.path.insert(0, str(_TESTS))
    try:
        from support.dangerous_commands import dangerous
        from support.ordinary_commands import ordinary
    finally:
        sys.path.remove(str(_TESTS))
    where = ShellContext(Path("/home/me/project"), Path("/home/me/project"), Path("/home/me"), {"PATH": "/bin"})
    bad, good = dangerous(), ordinary()
    yield Row(
        "dangerous commands caught",
        100 * sum(bool(find_dangers(c, where)) for c in bad) / len(bad),
        "%",
        ">= 100",
        f"of {len(bad)}",
    )
    yield Row(
        "ordinary commands asked about", sum(bool(find_dangers(c, where)) for c in good), "", "<= 0", f"of {len(good)}"
    )
    every = bad + good

    def read_all() -> float:
        started = time.process_time()
        for c in every:
            find_dangers(c, where)
        return (time.process_time() - started) / len(every)

    yield Row("reading one command", _best(read_all, 3), "ms", "< 1")


def _large_output() -> Iterator[Row]:
    worker = _TESTS / "support" / "large_output.py"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-P", str(worker), folder, "200"], capture_output=True, text=True, check=True
        )
    said = json.loads(done.stdout)
    yield Row("200 MB of output: memory grows by", said["grown_kb"] / 1_024, "MB", "< 32")
    yield Row("200 MB of output: characters in the context", said["context_chars"], "", "<= 2000")
    yield Row("200 MB of output: stored whole (sha256)", float(said["is_whole"]), "", ">= 1")
