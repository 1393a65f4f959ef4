"""MCP servers as tools: start, list, call, convert results."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import IO, TYPE_CHECKING, Any, TypeVar

from perdure.config.settings import McpServerSettings
from perdure.core.errors import ToolError
from perdure.core.foreign_code import await_foreign, run_loop
from perdure.core.messages import ImagePart, clean
from perdure.prompt_injection import screen
from perdure.tools.tool import Tool, ToolReply

if TYPE_CHECKING:
    from mcp import Client


MAX_NAME_CHARS = 64
_MAX_DESCRIPTION_CHARS = 4_000
_MAX_IMAGES = 10


def offered_name(server: str, tool: str) -> str:
    """`server__tool`, in the letters a provider takes; a name that had to be changed keeps a mark of the old one."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    name = f"{server}__{plain}"
    if plain == tool and len(name) <= MAX_NAME_CHARS:
        return name
    mark = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{name[: MAX_NAME_CHARS - 7]}_{mark}"


def safe_description(server: str, text: str) -> str:
    """The description, held back where it tries to give the model orders: it goes out with every request."""
    if finding := screen(text):
        return f"A tool of the MCP server {server}. Its description was held back: it {finding.why}."
    return clean(text)[:_MAX_DESCRIPTION_CHARS] or f"A tool of the MCP server {server}."


def input_schema(schema: Any) -> dict[str, Any]:
    """The schema of a tool's arguments; anything that is none becomes "takes nothing"."""
    if isinstance(schema, Mapping) and schema.get("type", "object") == "object":
        return {"type": "object", "properties": {}, **schema}
    return {"type": "object", "properties": {}}


def as_reply(result: Any) -> ToolReply:
    """A CallToolResult as text with pictures behind it."""
    blocks = list(result.content or ())
    texts = [t for t in map(_text, blocks) if t]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    images = tuple(_images(blocks))
    left_out = f"\n[{len(images) - _MAX_IMAGES} more images left out]" if len(images) > _MAX_IMAGES else ""
    text = clean("\n".join(texts)) + left_out
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
_MAX_PAGES = 20
_STDERR_CHARS = 400
T = TypeVar("T")


class McpServers:
    """Every configured server; `start` connects to all of them at once and gives their tools."""

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
        # What could not be started, and why: for the person.
        self.warnings: list[str] = []

    def start(self) -> list[Tool]:
        """The tools of every server that answers in time. Never raises; see `warnings`."""
        if not self._servers:
            return []
        try:
            import mcp  # noqa: F401  # is it there at all? it takes a second to import, so only with servers
        except ImportError:
            names = ", ".join(s.name for s in self._servers)
            self.warnings.append(
                f"MCP servers are configured ({names}) but the package is missing: pip install 'perdure[mcp]'"
            )
            return []
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=run_loop, args=(self._loop,), name="perdure-mcp", daemon=True).start()
        starts = [self._submit(s.connected(self._start_timeout_s)) for s in self._servers]
        tools: list[Tool] = []
        for server, started in zip(self._servers, starts, strict=True):
            try:
                started.result(self._start_timeout_s + _STOP_TIMEOUT_S)
                tools += self._tools(server)
            except (ToolError, TimeoutError) as error:
                self.warnings.append(f"MCP server {server.name!r} is left out: {error or 'it did not answer in time'}")
        return tools

    def close(self) -> None:
        """Ends every connection and the programs behind them."""
        if self._loop is None:
            return
        for closing in [self._submit(s.closed()) for s in self._servers]:
            with contextlib.suppress(Exception):  # a server that cannot be ended politely is left to its closed pipes
                closing.result(_STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop = None

    def _tools(self, server: _McpConnection) -> list[Tool]:
        return [self._tool(server, t) for t in server.listed if t.name not in server.settings.disabled]

    def _tool(self, server: _McpConnection, listed: Any) -> Tool:
        async def handler(**arguments: Any) -> ToolReply:
            call = self._submit(server.called(listed.name, arguments))
            try:
                return await asyncio.wrap_future(call)
            except asyncio.CancelledError:
                call.cancel()
                raise

        hints = listed.annotations
        return Tool(
            name=offered_name(server.name, listed.name),
            description=safe_description(server.name, listed.description or listed.title or ""),
            parameters=input_schema(listed.input_schema),
            handler=handler,
            toolset=f"mcp:{server.name}",
            is_read_only=bool(hints and hints.read_only_hint),
            is_dangerous=bool(hints and hints.destructive_hint and not hints.read_only_hint),
            # The server's own limit speaks first, with a better text.
            timeout_s=server.settings.timeout_s + START_TIMEOUT_S + _STOP_TIMEOUT_S,
        )

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop is None:
            work.close()
            raise ToolError("the MCP servers have been closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class _McpConnection:
    """One connection: opened and closed by one task, as the protocol's streams demand, used by many."""

    def __init__(self, settings: McpServerSettings, environment: Mapping[str, str]) -> None:
        self.settings = settings
        self.name = settings.name
        self.listed: list[Any] = []
        self._environment = environment
        self._client: Client | None = None
        self._holder: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._stderr: IO[str] | None = None

    async def connected(self, timeout_s: float = START_TIMEOUT_S) -> Client:
        """The open connection, made if there is none. Raises ToolError with what the server said last."""
        async with self._opening:
            if self._client is not None and self._holder is not None and not self._holder.done():
                return self._client
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._holder = asyncio.create_task(self._hold(ready))
            try:
                self._client = await asyncio.wait_for(asyncio.shield(ready), timeout_s)
            except TimeoutError:
                ready.cancel()
                await self.closed()
                raise ToolError(f"it did not answer within {timeout_s:g} s{self._last_words()}") from None
            except Exception as error:  # whatever a transport raises, it means: not there
                raise ToolError(f"{_reason(error)}{self._last_words()}") from None
            return self._client

    async def _hold(self, ready: asyncio.Future[Client]) -> None:
        """Opens the connection, keeps it until cancelled, closes it: all in one task."""
        try:
            async with await self._opened() as client:
                self.listed = await _all_tools(client)
                ready.set_result(client)
                await asyncio.get_running_loop().create_future()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(ToolError(_reason(error)))
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _opened(self) -> Client:
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        s = self.settings
        if s.url is not None:
            return Client(streamable_http_client(s.url, http_client=self._http()), read_timeout_seconds=s.timeout_s)
        parameters = StdioServerParameters(
            command=s.command or "",
            args=[self._filled(a) for a in s.args],
            env={k: self._filled(v) for k, v in s.env.items()} | _search_path(self._environment, s.env),
            cwd=s.cwd,
        )
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # lives on
        return Client(stdio_client(parameters, errlog=self._stderr), read_timeout_seconds=s.timeout_s)

    def _http(self) -> Any:
        """A client with the headers that were set; None leaves the package to make its own."""
        if not self.settings.headers:
            return None
        import httpx2  # what `mcp` itself is built on

        headers = {k: self._filled(v) for k, v in self.settings.headers.items()}
        return httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30.0, read=300.0))

    async def called(self, tool: str, arguments: dict[str, Any]) -> ToolReply:
        """One call. A server that is gone is started again first; a call that was cut off is not repeated."""
        try:
            client = await self.connected()
        except ToolError as error:
            raise ToolError(f"the MCP server {self.name} cannot be reached: {error}") from None
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                return as_reply(await await_foreign(client.call_tool(tool, arguments)))
        except TimeoutError:
            raise ToolError(f"the MCP server {self.name} did not answer within {self.settings.timeout_s:g} s") from None
        except Exception as error:  # a transport or protocol failure of any kind: the turn reads it and goes on
            if _is_gone(error):
                await self.closed()
                raise ToolError(
                    f"the MCP server {self.name} ended during this call, whose outcome is unknown; "
                    f"the next call starts it again{self._last_words()}"
                ) from None
            raise ToolError(f"the MCP server {self.name} refused: {_reason(error)}") from None

    async def closed(self) -> None:
        holder, self._holder, self._client = self._holder, None, None
        if holder is not None:
            holder.cancel()
            await asyncio.wait({holder}, timeout=_STOP_TIMEOUT_S)

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda m: self._environment.get(m.group(1), ""), text)

    def _last_words(self) -> str:
        if self._stderr is None:
            return ""
        with contextlib.suppress(OSError, ValueError):
            self._stderr.flush()
            end = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, end - _STDERR_CHARS))
            said = " ".join(self._stderr.read().split())
            return f" (it said: {said})" if said else ""
        return ""


async def _all_tools(client: Client) -> list[Any]:
    tools: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


def _search_path(environment: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """PATH, so that the program is found where the person would find it."""
    return {} if "PATH" in given or "PATH" not in environment else {"PATH": environment["PATH"]}


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _is_gone(error: BaseException) -> bool:
    """Whether the connection is lost, and not only this call refused."""
    import anyio
    from mcp import MCPError

    if isinstance(error, BaseExceptionGroup):
        return any(_is_gone(e) for e in error.exceptions)
    lost = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, ConnectionError)
    return isinstance(error, lost) or (isinstance(error, MCPError) and "clos" in str(error).lower())
