"""MCP servers as tools: start, list, call, convert results."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TypeVar

from perdure.config.settings import McpServerSettings
from perdure.core.concurrency import await_foreign, run_loop
from perdure.core.errors import ToolError
from perdure.core.messages import ImagePart, clean
from perdure.core.visibility import OWNER, AnyUser
from perdure.prompt_injection import screen
from perdure.tools.tool import Tool, ToolReply

if TYPE_CHECKING:
    from mcp import Client


MAX_NAME_CHARS = 64
_MAX_DESCRIPTION_CHARS = 4_000
_MAX_IMAGES = 10
_SESSION_HEADER = "mcp-session-id"


def qualified_name(server: str, tool: str) -> str:
    """Return `server__tool` in the characters that providers accept; a changed name gets a hash suffix."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    name = f"{server}__{plain}"
    if plain == tool and len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{name[: MAX_NAME_CHARS - 7]}_{digest}"


def safe_description(server: str, text: str) -> str:
    """Return the description, or a placeholder if it contains a prompt injection: it is sent with every request."""
    if finding := screen(text):
        return f"A tool of the MCP server {server}. Its description was withheld: it {finding.why}."
    return clean(text)[:_MAX_DESCRIPTION_CHARS] or f"A tool of the MCP server {server}."


def is_callable(listed: Any) -> bool:
    """Whether a listed tool can be called directly; tools that only run as tasks are not supported."""
    return listed.execution is None or listed.execution.task_support != "required"


def input_schema(schema: Any) -> dict[str, Any]:
    """Return the input schema of a tool; an invalid one becomes an empty object schema."""
    if isinstance(schema, Mapping) and schema.get("type", "object") == "object":
        return {"type": "object", "properties": {}, **schema}
    return {"type": "object", "properties": {}}


def convert_result(result: Any) -> ToolReply:
    """Convert a CallToolResult to text followed by its images."""
    blocks = list(result.content or ())
    texts = [t for t in map(_text, blocks) if t]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    images = tuple(_images(blocks))
    omitted = f"\n[{len(images) - _MAX_IMAGES} more images left out]" if len(images) > _MAX_IMAGES else ""
    text = clean("\n".join(texts)) + omitted
    fallback = f"({len(images)} image{'s' * (len(images) != 1)})" if images else "(done, no output)"
    return ToolReply(text or fallback, is_error=bool(result.is_error), parts=images[:_MAX_IMAGES])


def _text(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "audio":
            return f"[audio, {block.mime_type}, not shown]"
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case "resource":
            inside = getattr(block.resource, "text", None)
            kind = getattr(block.resource, "mime_type", None) or "data"
            return str(inside) if inside is not None else f"[{kind} at {block.resource.uri}]"
        case _:
            return ""


def _images(blocks: list[Any]) -> Iterator[ImagePart]:
    for block in blocks:
        if block.type == "image":
            yield ImagePart(f"data:{block.mime_type};base64,{block.data}")
        elif block.type == "resource" and (getattr(block.resource, "mime_type", None) or "").startswith("image/"):
            blob = getattr(block.resource, "blob", None)
            if blob:
                yield ImagePart(f"data:{block.resource.mime_type};base64,{blob}")


START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 5.0
# A shared server that could not be started is tried again by a conversation that begins this much later.
_RETRY_S = 60.0
_MAX_PAGES = 20
_STDERR_CHARS = 400
T = TypeVar("T")


class McpServers:
    """All configured MCP servers, on an event loop in a thread; `start` connects concurrently and returns the tools."""

    def __init__(
        self,
        servers: Sequence[McpServerSettings],
        environment: Mapping[str, str],
        *,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._servers = [_McpConnection(s, environment) for s in servers]
        self._start_timeout_s = start_timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        # Servers that failed to start, with the reason, for the user.
        self.warnings: list[str] = []

    def start(self) -> list[Tool]:
        """Connect and return the tools of every server that responds in time. Never raises; see `warnings`.

        Called again, it connects those that are not connected.
        """
        self.warnings = []
        if not self._servers:
            return []
        try:
            import mcp  # noqa: F401  # optional, and slow to import: only if servers are configured
        except ImportError:
            names = ", ".join(s.name for s in self._servers)
            self.warnings.append(
                f"MCP servers are configured ({names}) but the package is missing: pip install 'perdure[mcp]'"
            )
            return []
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=run_loop, args=(self._loop,), name="perdure-mcp", daemon=True).start()
        futures = [self._submit(s.connect(self._start_timeout_s)) for s in self._servers]
        tools: list[Tool] = []
        for server, future in zip(self._servers, futures, strict=True):
            try:
                future.result(self._start_timeout_s + _STOP_TIMEOUT_S)
                tools += self._tools(server)
            except (ToolError, TimeoutError) as error:
                reason = str(error) or "it did not respond in time"
                self.warnings.append(f"MCP server {server.name!r} is unavailable: {reason}")
        return tools

    def close(self) -> None:
        """Close every connection and stop the server processes."""
        if self._loop is None:
            return
        for future in [self._submit(s.close()) for s in self._servers]:
            with contextlib.suppress(Exception):  # a server that does not stop in time loses its pipes
                future.result(_STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop = None

    def _tools(self, server: _McpConnection) -> list[Tool]:
        offered = (t for t in server.tools if t.name not in server.settings.disabled and is_callable(t))
        return [self._tool(server, t) for t in offered]

    def _tool(self, server: _McpConnection, listed: Any) -> Tool:
        async def handler(**arguments: Any) -> ToolReply:
            call = self._submit(server.call_tool(listed.name, arguments))
            try:
                return await asyncio.wrap_future(call)
            except asyncio.CancelledError:
                call.cancel()
                raise

        hints = listed.annotations
        return Tool(
            name=qualified_name(server.name, listed.name),
            description=safe_description(server.name, listed.description or listed.title or ""),
            parameters=input_schema(listed.input_schema),
            handler=handler,
            toolset=f"mcp:{server.name}",
            is_read_only=bool(hints and hints.read_only_hint),
            is_dangerous=bool(hints and hints.destructive_hint and not hints.read_only_hint),
            # The server's own timeout expires first, with a more specific message.
            timeout_s=server.settings.timeout_s + START_TIMEOUT_S + _STOP_TIMEOUT_S,
        )

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop is None:
            work.close()
            raise ToolError("the MCP servers have been closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


@dataclass(frozen=True, slots=True)
class StartedServers:
    """The tools of the MCP servers one agent uses, warnings from starting them, and a `close` that releases them."""

    tools: list[Tool]
    warnings: list[str]
    close: Callable[[], None]


@dataclass(eq=False, slots=True)
class _PooledServers:
    servers: McpServers
    users: int = 0
    tools: list[Tool] = field(default_factory=list)
    tried_at_s: float = -math.inf
    # Held while they start, so that a second agent finds them started.
    lock: threading.Lock = field(default_factory=threading.Lock)


class McpPool:
    """Pool of MCP servers that the agents of one user share: the first one starts them, the last one stops them.

    A gateway would otherwise start every server anew for each conversation.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pooled: dict[str, _PooledServers] = {}

    def start(
        self, servers: Sequence[McpServerSettings], environment: Mapping[str, str], *, user: AnyUser = OWNER
    ) -> StartedServers:
        """Return the servers' tools, starting those that do not run yet or serve one conversation only."""
        if not servers:
            return StartedServers([], [], lambda: None)
        own = McpServers([s for s in servers if s.per_conversation], environment)
        common = [s for s in servers if not s.per_conversation]
        identity = [user.stored_key, [s.model_dump(mode="json") for s in common], dict(environment)]
        key = json.dumps(identity, sort_keys=True)
        with self._lock:
            pooled = self._pooled.setdefault(key, _PooledServers(McpServers(common, environment)))
            pooled.users += 1
        with pooled.lock:
            now_s = time.monotonic()
            if pooled.tried_at_s == -math.inf or (pooled.servers.warnings and now_s - pooled.tried_at_s > _RETRY_S):
                pooled.tools, pooled.tried_at_s = pooled.servers.start(), now_s
            tools, warnings = pooled.tools, pooled.servers.warnings

        def close() -> None:
            own.close()
            with self._lock:
                pooled.users -= 1
                is_last = not pooled.users
                if is_last:
                    del self._pooled[key]
            if is_last:
                pooled.servers.close()

        return StartedServers([*tools, *own.start()], [*warnings, *own.warnings], close)


class _McpConnection:
    """A connection to one server, opened and closed in a single task because anyio's cancel scopes require it."""

    def __init__(self, settings: McpServerSettings, environment: Mapping[str, str]) -> None:
        self.settings = settings
        self.name = settings.name
        self.tools: list[Any] = []
        self._environment = environment
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._connect_lock = asyncio.Lock()
        self._stderr: IO[str] | None = None
        # The server answered that it does not know the session; a new connection starts another.
        self._has_lost_session = False

    async def connect(self, timeout_s: float = START_TIMEOUT_S) -> Client:
        """Return the open client, connecting first if needed. Raises ToolError with the end of the server's stderr."""
        async with self._connect_lock:
            if self._client is not None and self._task is not None and not self._task.done():
                return self._client
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._has_lost_session = False
            self._task = asyncio.create_task(self._run(ready))
            try:
                self._client = await asyncio.wait_for(asyncio.shield(ready), timeout_s)
            except TimeoutError:
                ready.cancel()
                await self.close()
                raise ToolError(f"it did not respond within {timeout_s:g} s{self._stderr_tail()}") from None
            except Exception as error:  # transports raise many types; each means the server is unavailable
                raise ToolError(f"{_reason(error)}{self._stderr_tail()}") from None
            return self._client

    async def _run(self, ready: asyncio.Future[Client]) -> None:
        """Open the connection, keep it open until cancelled, then close it."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._open_client(stack))
                self.tools = await _list_tools(client)
                ready.set_result(client)
                await asyncio.get_running_loop().create_future()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(ToolError(_reason(error)))
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _open_client(self, stack: contextlib.AsyncExitStack) -> Client:
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        s = self.settings
        if s.url is not None:
            http = await stack.enter_async_context(self._http())
            return Client(streamable_http_client(s.url, http_client=http), read_timeout_seconds=s.timeout_s)
        parameters = StdioServerParameters(
            command=s.command or "",
            args=[self._expand(a) for a in s.args],
            env={k: self._expand(v) for k, v in s.env.items()} | _search_path(self._environment, s.env),
            cwd=s.cwd,
        )
        # Not in a `with` block (SIM115): the server writes to it as long as it runs.
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        return Client(stdio_client(parameters, errlog=self._stderr), read_timeout_seconds=s.timeout_s)

    def _http(self) -> Any:
        """Return an HTTP client with the configured headers, which notices that the server dropped the session."""
        import httpx2  # the HTTP client that `mcp` uses

        async def check_session(response: httpx2.Response) -> None:
            if _SESSION_HEADER not in response.request.headers or response.status_code not in (400, 404):
                return
            # By the specification it is 404; some servers send 400 and name the session in the body.
            is_lost = response.status_code == 404 or b"session" in (await response.aread()).lower()
            self._has_lost_session = self._has_lost_session or is_lost

        headers = {k: self._expand(v) for k, v in self.settings.headers.items()}
        timeout, hooks = httpx2.Timeout(30.0, read=300.0), {"response": [check_session]}
        return httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks)

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> ToolReply:
        """Call a tool, reconnecting first if needed; a call whose connection was lost is never retried.

        One that was refused because the server no longer knows the session is made again in a new session.
        """
        client = await self._connected_client()
        try:
            return await self._call_tool(client, tool, arguments)
        except ToolError:
            if not self._has_lost_session:
                raise
        # A concurrent call may have opened the new session already.
        if self._client is client:
            await self.close()
        return await self._call_tool(await self._connected_client(), tool, arguments)

    async def _connected_client(self) -> Client:
        try:
            return await self.connect()
        except ToolError as error:
            raise ToolError(f"the MCP server {self.name} cannot be reached: {error}") from None

    async def _call_tool(self, client: Client, tool: str, arguments: dict[str, Any]) -> ToolReply:
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                return convert_result(await await_foreign(client.call_tool(tool, arguments)))
        except TimeoutError:
            timeout_s = self.settings.timeout_s
            raise ToolError(f"the MCP server {self.name} did not respond within {timeout_s:g} s") from None
        except Exception as error:  # any transport or protocol error: reported to the model
            if _is_connection_lost(error):
                await self.close()
                raise ToolError(
                    f"the MCP server {self.name} stopped during this call, whose outcome is unknown; "
                    f"the next call restarts it{self._stderr_tail()}"
                ) from None
            raise ToolError(f"the MCP server {self.name} returned an error: {_reason(error)}") from None

    async def close(self) -> None:
        task, self._task, self._client = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=_STOP_TIMEOUT_S)

    def _expand(self, text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda m: self._environment.get(m.group(1), ""), text)

    def _stderr_tail(self) -> str:
        if self._stderr is None:
            return ""
        with contextlib.suppress(OSError, ValueError):
            self._stderr.flush()
            end = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, end - _STDERR_CHARS))
            stderr = " ".join(self._stderr.read().split())
            return f" (stderr: {stderr})" if stderr else ""
        return ""


async def _list_tools(client: Client) -> list[Any]:
    tools: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


def _search_path(environment: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Return PATH from the environment, so the command resolves as in the user's shell."""
    return {} if "PATH" in configured or "PATH" not in environment else {"PATH": environment["PATH"]}


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _is_connection_lost(error: BaseException) -> bool:
    """Whether the error means a lost connection, not only a failed call."""
    import anyio
    from mcp import MCPError

    if isinstance(error, BaseExceptionGroup):
        return any(_is_connection_lost(e) for e in error.exceptions)
    lost = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, ConnectionError)
    return isinstance(error, lost) or (isinstance(error, MCPError) and "clos" in str(error).lower())
