"""Tools of real MCP servers over stdio and HTTP; a crash or hang affects only its own calls."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.config.settings import McpServerSettings
from perdure.core.concurrency import SystemClock
from perdure.core.messages import ImagePart, Message, ToolCall, canonical_json
from perdure.core.visibility import User
from perdure.tools.mcp import McpPool, McpServers, StartedServers, is_callable, qualified_name
from perdure.tools.runtime import ToolRuntime, ToolScope
from perdure.tools.tool import Tool, ToolRegistry
from support.packages import package

mcp_types = package("mcp.types")

SCRIPT = str(Path(__file__).parents[1] / "support" / "mcp_server.py")
SESSION_SCRIPT = str(Path(__file__).parents[1] / "support" / "mcp_session_server.py")


def _stdio(name: str = "light", **more: Any) -> McpServerSettings:
    return McpServerSettings(name=name, command=sys.executable, args=("-P", SCRIPT, "stdio"), **more)


@pytest.fixture
def started() -> Iterator[Any]:
    open_ones: list[McpServers] = []

    def start(*servers: McpServerSettings, **options: Any) -> tuple[McpServers, dict[str, Tool]]:
        connections = McpServers(servers, {"PATH": "/usr/bin:/bin", "BULB": "400 W"}, **options)
        open_ones.append(connections)
        return connections, {t.name: t for t in connections.start()}

    yield start
    for one in open_ones:
        one.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[dict[str, Tool]]:
    """One server for the tests that leave it as it was."""
    connections = McpServers([_stdio()], {"PATH": "/usr/bin:/bin"})
    yield {t.name: t for t in connections.start()}
    connections.close()


def _messages(tools: dict[str, Tool], *calls: tuple[str, dict[str, Any]]) -> list[Message]:
    runtime = ToolRuntime(ToolRegistry(tools.values()), clock=SystemClock())
    batch = [ToolCall(f"call_{n}", name, canonical_json(a)) for n, (name, a) in enumerate(calls)]
    return asyncio.run(runtime.batch(batch, ToolScope()).run())


def _texts(tools: dict[str, Tool], *calls: tuple[str, dict[str, Any]]) -> list[str]:
    return [m.text for m in _messages(tools, *calls)]


def test_stdio_server_tools_are_registered_under_its_name(started: Any) -> None:
    servers, tools = started(_stdio(env={"LAMP": "${BULB}"}, disabled=("long",)))
    assert servers.warnings == []
    assert {"light__add", "light__picture", "light__fail"} <= set(tools)
    assert "light__long" not in tools
    assert tools["light__add"].toolset == "mcp:light"
    assert tools["light__add"].is_read_only
    assert tools["light__wreck"].is_dangerous
    assert not tools["light__fail"].is_dangerous
    assert tools["light__add"].parameters["required"] == ["a", "b"]
    odd = qualified_name("light", "odd.name/with everything")
    assert "withheld" in tools[odd].description
    assert _texts(tools, ("light__add", {"a": 2, "b": 3}), (odd, {})) == ["5", "lamp=400 W"]


def test_images_errors_and_invalid_arguments_are_converted(shared: dict[str, Tool]) -> None:
    tools = shared
    picture, failed, bad = _messages(
        tools, ("light__picture", {}), ("light__fail", {"why": "no oil"}), ("light__add", {"a": "two"})
    )
    assert isinstance(picture.content, tuple)
    part = picture.content[-1]
    assert isinstance(part, ImagePart)
    assert part.url.startswith("data:image/png;base64,")
    assert "Error executing tool fail" in failed.text
    assert "`b` is missing" in bad.text


def test_calls_to_one_server_run_concurrently(shared: dict[str, Tool]) -> None:
    assert _texts(shared, *(("light__add", {"a": n, "b": 1}) for n in range(20))) == [str(n + 1) for n in range(20)]


def test_server_that_dies_during_a_call_is_reported_and_restarted(started: Any) -> None:
    _, tools = started(_stdio())
    (text,) = _texts(tools, ("light__die", {}))
    assert "stopped during this call, whose outcome is unknown" in text
    assert "the keeper has left" in text
    assert _texts(tools, ("light__add", {"a": 1, "b": 1})) == ["2"]


def test_hung_call_times_out_and_others_continue(started: Any) -> None:
    _, tools = started(_stdio(timeout_s=1.0))
    started_s = time.monotonic()
    hung, added = _texts(tools, ("light__hang", {}), ("light__add", {"a": 1, "b": 1}))
    assert "did not respond within 1 s" in hung
    assert added == "2"
    assert time.monotonic() - started_s < 8
    assert _texts(tools, ("light__add", {"a": 2, "b": 2})) == ["4"]


def test_server_that_cannot_start_is_skipped_with_a_warning(started: Any) -> None:
    silent = McpServerSettings(name="silent", command=sys.executable, args=("-c", "import time; time.sleep(60)"))
    broken = McpServerSettings(name="broken", command=sys.executable, args=("-c", "raise SystemExit('no lamp')"))
    missing = McpServerSettings(name="missing", command="/no/such/program")
    nowhere = McpServerSettings(name="nowhere", url="http://127.0.0.1:9/mcp")
    servers, tools = started(silent, broken, missing, nowhere, _stdio(), start_timeout_s=6.0)
    assert "light__add" in tools
    assert [w.split("'")[1] for w in servers.warnings] == ["silent", "broken", "missing", "nowhere"]
    assert "did not respond within 6 s" in servers.warnings[0]
    assert "no lamp" in servers.warnings[1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _http_server(port: int, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    program = arguments or (SCRIPT, "http", str(port))
    process = subprocess.Popen([sys.executable, "-P", *program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def test_http_server(started: Any) -> None:
    port = _free_port()
    with _http_server(port) as process:
        address = f"http://127.0.0.1:{port}/mcp"
        plain = McpServerSettings(name="far", url=address)
        keyed = McpServerSettings(name="keyed", url=address, headers={"authorization": "Bearer ${BULB}"})
        servers, tools = started(plain, keyed)
        assert servers.warnings == []
        assert _texts(tools, ("far__add", {"a": 20, "b": 22}), ("keyed__add", {"a": 1, "b": 2})) == ["42", "3"]
        process.kill()
        process.wait()
        assert "MCP server far" in _texts(tools, ("far__add", {"a": 1, "b": 1}))[0]


@pytest.mark.parametrize("status", ["404", "400"])
def test_a_restarted_http_server_is_called_in_a_new_session(status: str, started: Any) -> None:
    """It knows nothing of the old session and refuses the call, which is made again in a new one."""
    port = _free_port()
    program = (SESSION_SCRIPT, str(port), status)
    with _http_server(port, *program):
        _, tools = started(McpServerSettings(name="far", url=f"http://127.0.0.1:{port}/mcp"))
        assert _texts(tools, ("far__add", {"a": 1, "b": 1})) == ["2"]
    with _http_server(port, *program):
        assert _texts(tools, ("far__add", {"a": 2, "b": 2})) == ["4"]
        assert _texts(tools, ("far__add", {"a": 3, "b": 3}), ("far__add", {"a": 4, "b": 4})) == ["6", "8"]


def test_a_tool_that_only_runs_as_a_task_is_not_offered() -> None:
    schema = {"type": "object"}
    listed = [
        mcp_types.Tool(name=f"t{n}", input_schema=schema, execution=execution)
        for n, execution in enumerate(
            (None, mcp_types.ToolExecution(task_support="optional"), mcp_types.ToolExecution(task_support="required"))
        )
    ]
    assert [is_callable(tool) for tool in listed] == [True, True, False]


def test_close_stops_the_server_processes(started: Any) -> None:
    mark = f"mark-{time.monotonic_ns()}"
    servers, tools = started(
        McpServerSettings(name="light", command=sys.executable, args=("-P", SCRIPT, "stdio", mark))
    )
    assert subprocess.run(["pgrep", "-f", mark], capture_output=True, check=False).stdout
    servers.close()
    assert subprocess.run(["pgrep", "-f", mark], capture_output=True, check=False).stdout == b""
    assert "have been closed" in _texts(tools, ("light__add", {"a": 1, "b": 1}))[0]


def _processes(mark: str) -> int:
    return len(subprocess.run(["pgrep", "-f", mark], capture_output=True, check=False).stdout.split())


def test_agents_of_one_user_share_the_servers_until_the_last_one_ends() -> None:
    common, own = f"common-{time.monotonic_ns()}", f"own-{time.monotonic_ns()}"
    servers = [
        McpServerSettings(name="light", command=sys.executable, args=("-P", SCRIPT, "stdio", common)),
        McpServerSettings(
            name="state", command=sys.executable, args=("-P", SCRIPT, "stdio", own), per_conversation=True
        ),
    ]
    pool = McpPool()

    def start(user_key: str) -> StartedServers:
        return pool.start(servers, {"PATH": "/usr/bin:/bin"}, user=User(user_key))

    def add(started: StartedServers, server: str) -> str:
        return _texts({t.name: t for t in started.tools}, (f"{server}__add", {"a": 2, "b": 3}))[0]

    first, second, other = start("ann"), start("ann"), start("bob")
    try:
        # Users do not share, and a server with a state is there once for each conversation.
        assert (_processes(common), _processes(own)) == (2, 3)
        first.close()
        assert (_processes(common), _processes(own)) == (2, 2)
        assert (add(second, "light"), add(second, "state"), add(other, "light")) == ("5", "5", "5")
    finally:
        second.close()
        other.close()
    assert (_processes(common), _processes(own)) == (0, 0)


@pytest.mark.parametrize("tool", ["x" * 300, "a b", "naïve", "../../etc", ""])
def test_qualified_names_are_valid_for_providers(tool: str) -> None:
    name = qualified_name("server", tool)
    assert 1 <= len(name) <= 64
    assert name.replace("_", "").replace("-", "").isalnum()


def test_similar_names_stay_distinct() -> None:
    assert qualified_name("s", "a.b") != qualified_name("s", "a/b")


@pytest.mark.parametrize(
    "fields", [{"name": "x"}, {"name": "x", "command": "a", "url": "http://h"}, {"name": "a b", "command": "c"}]
)
def test_server_settings_need_exactly_one_of_command_and_url(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"command or url|pattern"):
        McpServerSettings.model_validate(fields)
