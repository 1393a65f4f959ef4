"""An editor in front of `perdure acp`, as a process or in this one: the package's own client, with what it was sent."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.testing.simulator import Simulator
from support.packages import package

acp = package("acp", reason="the extra `acp` is not installed")
schema = package("acp.schema")
server = package("perdure.acp.server")

# An option's id, with a reason or without; None: the question is dismissed; a whole response. Or an awaitable of these.
Answer = Callable[[Any, list[Any]], Any]
LIMIT_S = 120.0


@dataclass
class RecordingClient:
    """The client half: remembers every update, and answers questions by `answer` (an option's id, or None)."""

    answer: Answer = lambda call, options: "once"
    updates: list[Any] = field(default_factory=list)
    questions: list[tuple[Any, list[Any]]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        async with self.changed:
            self.updates.append(update)
            self.changed.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        async with self.changed:
            self.questions.append((tool_call, options))
            self.changed.notify_all()
        chosen = self.answer(tool_call, options)
        if inspect.isawaitable(chosen):
            chosen = await chosen
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        if isinstance(chosen, schema.RequestPermissionResponse):
            return chosen
        option, reason = chosen if isinstance(chosen, tuple) else (chosen, "")
        meta = {"reason": reason} if reason else None
        outcome = schema.AllowedOutcome(outcome="selected", option_id=option, field_meta=meta)
        return schema.RequestPermissionResponse(outcome=outcome)

    def on_connect(self, conn: Any) -> None:
        """Nothing to keep."""

    def of_kind(self, kind: str) -> list[Any]:
        return [u for u in self.updates if u.session_update == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(u.content.text for u in self.of_kind(kind))

    async def until(self, condition: Callable[[], object]) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: bool(condition())), LIMIT_S)


@dataclass
class Editor:
    """A running editor: its connection, its client half, its agent's process and folder."""

    agent: Any
    client: RecordingClient
    process: asyncio.subprocess.Process | None
    folder: Path

    async def new(self) -> str:
        return (await self.agent.new_session(cwd=str(self.folder), mcp_servers=[])).session_id

    async def ask(self, session_id: str, text: str) -> str:
        """Send a prompt; return why the turn ended."""
        return (await self.agent.prompt(session_id=session_id, prompt=[acp.text_block(text)])).stop_reason


def command(sim: Simulator, settings: Mapping[str, Any] | None = None) -> list[str]:
    flags = [part for key, value in flags_of(sim, settings).items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "perdure", *flags, "acp"]


def environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
    return {**kept, "PERDURE_HOME": str(home), "PYTHONUNBUFFERED": "1"}


def flags_of(sim: Simulator, settings: Mapping[str, Any] | None = None) -> dict[str, str]:
    return {"model.base_url": sim.base_url, "model.name": "gpt-5-mini", "model.provider": "custom", **(settings or {})}


@asynccontextmanager
async def editor_here(
    tmp_path: Path,
    sim: Simulator,
    *,
    answer: Answer | None = None,
    settings: Mapping[str, Any] | None = None,
    busy_timeout_s: float = LIMIT_S,
) -> AsyncIterator[Editor]:
    """The same in this process and its event loop: both halves, joined in memory."""
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    ours, theirs = package("acp._transport").memory_transport_pair()
    agent = server.EditorAgent(flags_of(sim, settings), tmp_path / "home", busy_timeout_s=busy_timeout_s)
    connection = server.connect(agent, ours)
    listening = asyncio.create_task(connection.listen())
    client = RecordingClient(answer or (lambda call, options: "once"))
    remote = package("acp.client.connection").ClientSideConnection(client, theirs, use_unstable_protocol=True)
    try:
        await remote.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield Editor(remote, client, None, folder)
    finally:
        await agent.close()
        await remote.close()
        listening.cancel()
        await connection.close()


@asynccontextmanager
async def editor(
    tmp_path: Path, sim: Simulator, *, answer: Answer | None = None, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Editor]:
    """Start the process, connect and initialize; the process must end by itself when its input does."""
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *command(sim, settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(tmp_path / "home"),
        cwd=tmp_path,
        limit=50_000_000,
    )
    client = RecordingClient(answer or (lambda call, options: "once"))
    connection = acp.connect_to_agent(client, process.stdin, process.stdout, use_unstable_protocol=True)
    try:
        await asyncio.wait_for(connection.initialize(protocol_version=acp.PROTOCOL_VERSION), LIMIT_S)
        yield Editor(connection, client, process, folder)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), LIMIT_S)
        finally:
            if process.returncode is None:
                process.kill()
            await connection.close()
