"""The agent side of the Agent Client Protocol: sessions, prompts, modes; one process serves one editor."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, Protocol, TypeVar, cast

from acp import PROTOCOL_VERSION, RequestError
from acp.agent.connection import AgentSideConnection
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateResponse,
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionModeResponse,
    SseMcpServer,
)

from perdure import __version__
from perdure.acp.content import ContentBlock, invalid
from perdure.acp.records import SessionRecords, StoredSession
from perdure.acp.session import BUSY_TIMEOUT_S, EditorSession
from perdure.acp.stdio import StdioTransport
from perdure.agent.runner import RunningLoop
from perdure.app.runtime import Shared, hold_store
from perdure.config.load import load
from perdure.config.settings import McpServerSettings
from perdure.core.concurrency import DaemonThreads, SystemClock
from perdure.core.errors import NotFound, PerdureError

McpServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)
_NOT_FOUND, _FAILED = -32002, -32603
# How long requests may still take after the end of the input.
_ANSWER_S = 5.0


def plain_errors(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Decorate a request handler so that a failure is answered with the text of its cause, which editors display."""

    @functools.wraps(method)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except NotFound as error:
            raise RequestError(_NOT_FOUND, str(error)) from error
        except PerdureError as error:
            raise RequestError(_FAILED, str(error)) from error

    return answer


class MessageTransport(Protocol):
    """Sends and receives protocol messages (the package's own type for it is not public)."""

    async def send(self, message: dict[str, Any]) -> None: ...

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the input."""
        ...

    async def close(self) -> None: ...


class EditorAgent:
    """Handles the requests of one editor; its methods have the names and parameters of the protocol."""

    def __init__(
        self, flags: Mapping[str, Any], home: Path | None = None, *, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> None:
        self._flags = flags
        self._busy_timeout_s = busy_timeout_s
        loaded = load(flags=flags, home=home)
        for warning in loaded.warnings:
            _log.warning("%s", warning)
        self._home = loaded.home
        self._store_hold = hold_store(None, loaded.settings, loaded.home)
        self._records = SessionRecords(self._store_hold.store, SystemClock())
        self._loop_thread = RunningLoop()
        self._sessions: dict[str, EditorSession] = {}
        self._client: AgentSideConnection | None = None

    def on_connect(self, conn: AgentSideConnection) -> None:
        self._client = conn

    @plain_errors
    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        await asyncio.to_thread(self._records.purge_unused)
        sessions = SessionCapabilities(
            list=SessionListCapabilities(),
            resume=SessionResumeCapabilities(),
            fork=SessionForkCapabilities(),
            close=SessionCloseCapabilities(),
        )
        capabilities = AgentCapabilities(
            load_session=True,
            prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
            mcp_capabilities=McpCapabilities(http=True, sse=False),
            session_capabilities=sessions,
        )
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION) or PROTOCOL_VERSION,
            agent_capabilities=capabilities,
            agent_info=Implementation(name="perdure", title="Perdure", version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        raise invalid("there is nothing to sign in to here; store a key with `perdure login`")

    @plain_errors
    async def new_session(
        self, cwd: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> NewSessionResponse:
        folder = _folder(cwd)
        stored = await asyncio.to_thread(self._records.create, folder)
        session = await self._open(stored, mcp_servers)
        self._announce_soon(session)
        return NewSessionResponse(session_id=session.id, modes=session.modes)

    @plain_errors
    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> LoadSessionResponse:
        session = await self._reopen(cwd, session_id, mcp_servers)
        await session.replay()
        return LoadSessionResponse(modes=session.modes)

    @plain_errors
    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> ResumeSessionResponse:
        session = await self._reopen(cwd, session_id, mcp_servers)
        return ResumeSessionResponse(modes=session.modes)

    @plain_errors
    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> ForkSessionResponse:
        folder, store = _folder(cwd), self._store_hold.store

        def fork() -> StoredSession:
            origin = self._records.get(session_id, folder)
            if origin.conversation_id is None:
                return self._records.create(folder)
            return self._records.create(folder, store.conversations.branch(origin.conversation_id).conversation_id)

        session = await self._open(await asyncio.to_thread(fork), mcp_servers)
        self._announce_soon(session)
        return ForkSessionResponse(session_id=session.id, modes=session.modes)

    @plain_errors
    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        folder = Path(cwd) if cwd is not None else None
        rows, following = await asyncio.to_thread(self._records.page, folder, cursor)
        sessions = [
            SessionInfo(
                session_id=row.session.id,
                cwd=str(row.session.folder),
                title=row.conversation.title or None,
                updated_at=datetime.fromtimestamp(row.conversation.updated_at_ms / 1_000, UTC).isoformat(),
            )
            for row in rows
        ]
        return ListSessionsResponse(sessions=sessions, next_cursor=following)

    @plain_errors
    async def prompt(self, session_id: str, prompt: Sequence[ContentBlock], **_: Any) -> PromptResponse:
        return await self._session(session_id).prompt(prompt)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session_id in self._sessions:
            self._sessions[session_id].cancel()

    @plain_errors
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        await asyncio.to_thread(self._session(session_id).set_mode, mode_id)
        return SetSessionModeResponse()

    @plain_errors
    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()
        return CloseSessionResponse()

    async def close(self) -> None:
        """Stop every turn and release the store."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        self._store_hold.release()

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFound(f"the session {session_id!r} is not open; load it first")
        return session

    async def _reopen(self, cwd: str, session_id: str, servers: Sequence[McpServer] | None) -> EditorSession:
        stored = await asyncio.to_thread(self._records.get, session_id, _folder(cwd))
        before = self._sessions.pop(session_id, None)
        if before is not None:
            await before.close()
        session = await self._open(stored, servers)
        self._announce_soon(session)
        return session

    async def _open(self, stored: StoredSession, servers: Sequence[McpServer] | None) -> EditorSession:
        client = self._client
        assert client is not None, "requests come over a connection"

        def share() -> Shared:
            settings = load(flags=self._flags, home=self._home, folder=stored.folder).settings
            added = tuple(map(_mcp_settings, servers or ()))
            names = {server.name for server in added}
            others = (server for server in settings.mcp_servers if server.name not in names)
            settings = settings.model_copy(update={"mcp_servers": (*others, *added)})
            return Shared(settings, home=self._home, store=self._store_hold.store, loop_thread=self._loop_thread)

        shared = await asyncio.to_thread(share)
        session = EditorSession(
            stored.id,
            shared=shared,
            folder=stored.folder,
            records=self._records,
            client=client,
            conversation_id=stored.conversation_id,
            mode=stored.mode,
            busy_timeout_s=self._busy_timeout_s,
        )
        await asyncio.to_thread(lambda: session.agent)
        self._sessions[stored.id] = session
        return session

    def _announce_soon(self, session: EditorSession) -> None:
        """Send the slash commands right after the current response: before it, the editor does not know the session."""
        asyncio.get_running_loop().call_soon(session.announce)


def _folder(cwd: str) -> Path:
    folder = Path(cwd)
    if not folder.is_absolute() or not folder.is_dir():
        raise invalid(f"cwd must be the absolute path of a folder, not {cwd!r}")
    return folder


def _mcp_settings(server: McpServer) -> McpServerSettings:
    """Convert a tool server that the editor configures to our settings. Raises RequestError if it cannot be used."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in server.name)[:30].lstrip("_-")
    try:
        match server:
            case McpServerStdio():
                env = {variable.name: variable.value for variable in server.env}
                return McpServerSettings(name=name, command=server.command, args=tuple(server.args), env=env)
            case HttpMcpServer():
                headers = {header.name: header.value for header in server.headers}
                return McpServerSettings(name=name, url=server.url, headers=headers)
            case _:
                raise invalid(f"the MCP server {server.name!r} is of a kind that is not supported; use stdio or http")
    except ValueError as error:
        raise invalid(f"the MCP server {server.name!r} cannot be used: {error}") from None


def connect(agent: EditorAgent, transport: MessageTransport) -> AgentSideConnection:
    """Bind an agent to a transport; `listen` on the result answers requests until the input ends."""
    # The package's type of an agent also has the methods that are optional.
    return AgentSideConnection(cast(Any, agent), transport, listening=False, use_unstable_protocol=True)


async def serve(flags: Mapping[str, Any], source: BinaryIO, sink: BinaryIO) -> None:
    """Serve one editor until its input ends or a signal asks to stop; turns under way store what they have."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonThreads())
    agent = EditorAgent(flags)
    transport = StdioTransport(source, sink)
    connection = connect(agent, transport)
    listening = asyncio.create_task(connection.listen())
    if os.name != "nt":
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, listening.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await listening
            await transport.wait_answered(_ANSWER_S, except_method="session/prompt")
    finally:
        await agent.close()
        await transport.wait_answered(_ANSWER_S)
        await connection.close()
