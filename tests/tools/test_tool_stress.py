"""Stress tests: a hundred concurrent calls, 200 MB of output, hostile ids, and no process left behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core.concurrency import SystemClock
from perdure.core.messages import ToolCall, canonical_json
from perdure.store import open_store
from perdure.tools.builtin.terminal import Terminal
from perdure.tools.output_limits import OutputLimiter, OutputLimits
from perdure.tools.runtime import INTERRUPTED, ToolRuntime, ToolScope
from perdure.tools.tool import ToolContext, ToolRegistry, ToolReply

WORKER = Path(__file__).parents[1] / "support" / "large_output.py"
HOSTILE = [
    "../../x",
    "../" * 40 + "etc/passwd",
    "/etc/passwd",
    "/absolute/path.txt",
    "a\0b",
    "x" * 10_000,
    "CON",
    "NUL.txt",
    "C:\\Windows\\system32\\x",
    "..\\..\\x",
    "\\\\server\\share",
    "name:stream",
    "trailing. ",
    "",
    ".",
    "..",
    "~/x",
    "line\nbreak",
    "\ud800 lone surrogate",
    "é" * 300,
    "$(touch pwned)",
]


@pytest.mark.spec("H1", "H4")
def test_200_mb_of_output_keeps_memory_and_context_small(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(WORKER), str(tmp_path), "200"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    report = json.loads(done.stdout)
    assert report["grown_kb"] < 32 * 1_024
    assert report["context_chars"] <= 2_000
    assert report["is_whole"]
    assert report["mode"] == "0o600"
    assert report["text"].startswith("[exit 7]\n<persisted-output>")
    assert "ERROR at the very end" in report["text"]
    assert "ERROR at the very end" in report["last_line"]
    assert report["address"] in report["text"]


@pytest.mark.spec("J5")
def test_hundred_mixed_calls_return_in_order(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, {"PATH": os.environ["PATH"]})

    async def mixed(n: int) -> ToolReply:
        """Some answer, some raise, some hang, some write a great deal."""
        if n % 5 == 1:
            raise RuntimeError(f"broken {n}")
        if n % 5 == 2:
            await asyncio.sleep(3_600)
        return ToolReply(f"{n}:" + ("x" * 150_000 if n % 5 == 3 else ""))

    runtime = ToolRuntime(ToolRegistry([mixed, *terminal.tools()]), clock=SystemClock(), timeout_s=2.0)
    calls = [
        ToolCall(f"call_{n}", "terminal", canonical_json({"command": f"echo {n}:"}))
        if n % 5 == 4
        else ToolCall(f"call_{n}", "mixed", canonical_json({"n": n}))
        for n in range(100)
    ]
    started = time.monotonic()
    messages = asyncio.run(runtime.batch(calls, ToolScope()).run())
    assert time.monotonic() - started < 30
    assert [m.tool_call_id for m in messages] == [f"call_{n}" for n in range(100)]
    for n, message in enumerate(messages):
        expected = {1: f"broken {n}", 2: "took longer than 2 s"}.get(n % 5, f"{n}:")
        assert expected in message.text, n
    terminal.close()


def _running(mark: str) -> list[str]:
    files_written = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False).stdout.split()
    return [pid for pid in files_written if pid != str(os.getpid())]


@pytest.mark.spec("J4", "J5")
def test_cancelling_a_batch_leaves_no_child_process_behind(tmp_path: Path) -> None:
    mark = f"61{os.getpid()}"
    terminal = Terminal(tmp_path, {"PATH": os.environ["PATH"]})
    commands = [
        f"sleep {mark}",
        f"sleep {mark} & sleep {mark} & wait",
        f"bash -c 'trap \"\" TERM INT; sleep {mark}'",
        f"(setsid sleep 0.1; sleep {mark})",
        f"sh -c 'sleep {mark}' | cat",
        f"nohup sleep {mark} > /dev/null 2>&1",
    ]

    async def cancelled() -> list[str]:
        runtime = ToolRuntime(ToolRegistry(terminal.tools()), clock=SystemClock())
        calls = [ToolCall(f"call_{n}", "terminal", canonical_json({"command": c})) for n, c in enumerate(commands)]
        batch = runtime.batch(calls, ToolScope())
        task = asyncio.create_task(batch.run())
        for _ in range(100):
            await asyncio.sleep(0.05)
            if len(_running(f"sleep {mark}")) >= len(commands):
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [m.text for m in batch.results()]

    assert asyncio.run(cancelled()) == [INTERRUPTED] * len(commands)
    deadline = time.monotonic() + 5
    while _running(f"sleep {mark}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _running(f"sleep {mark}") == []
    terminal.close()


def _files(folder: Path) -> set[Path]:
    return {p.resolve() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.spec("H4")
@pytest.mark.parametrize("name", HOSTILE, ids=lambda n: repr(n)[:30])
def test_call_ids_never_escape_the_output_folder(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "home"
    inside.mkdir()
    with open_store(inside / "perdure.db") as store:
        conversation = store.conversations.create().conversation_id
        budgets = OutputLimiter(store.outputs, OutputLimits(result_chars=10, turn_chars=20, preview_chars=6))

        def large() -> str:
            """Says much."""
            return "much text " * 50

        runtime = ToolRuntime(ToolRegistry([large]), clock=SystemClock(), output_limiter=budgets, outputs=store.outputs)
        batch = runtime.batch([ToolCall(name, "large", "{}")], ToolScope(conversation_id=conversation))
        text = asyncio.run(batch.run())[0].text
        assert "<persisted-output>" in text
        stored = store.outputs.list(conversation)
        assert len(stored) == 1
        location = Path(stored[0].location)
        assert location.resolve().is_relative_to(inside)
        assert location.stat().st_mode & 0o777 == 0o600
        assert location.parent.stat().st_mode & 0o777 == 0o700
        assert store.outputs.read(stored[0].id, conversation_id=conversation, limit=1_000).text == "much text " * 50
    assert all(f.is_relative_to(inside) for f in _files(tmp_path))
    assert {p.name for p in tmp_path.iterdir()} == {"home"}


@pytest.mark.spec("H4", "H5")
@pytest.mark.parametrize("name", HOSTILE, ids=lambda n: repr(n)[:30])
def test_invalid_conversation_id_truncates_the_result_and_writes_nothing(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path / "perdure.db") as store:

        def large() -> str:
            """Says much."""
            return "a" * 200_000

        runtime = ToolRuntime(ToolRegistry([large]), clock=SystemClock(), outputs=store.outputs)
        batch = runtime.batch([ToolCall("call_1", "large", "{}")], ToolScope(conversation_id=name))
        text = asyncio.run(batch.run())[0].text
        assert "could not be saved" in text
        before = _files(tmp_path)
    assert all(f.name.startswith("perdure.db") for f in before)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_output_ids_never_open_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.txt").write_text("the secret")
    with open_store(tmp_path / "perdure.db") as store:
        from perdure.tools.builtin.files import FileReader

        def read(path: str) -> Any:
            """Reads."""
            return FileReader(None, outputs=store.outputs).read_file(ToolContext("call_1"), path)

        runtime = ToolRuntime(ToolRegistry([read]), clock=SystemClock())
        for path in (f"output:{name}", "output:../secret.txt", name):
            call = ToolCall("call_1", "read", canonical_json({"path": path}))
            assert "the secret" not in asyncio.run(runtime.batch([call], ToolScope()).run())[0].text
