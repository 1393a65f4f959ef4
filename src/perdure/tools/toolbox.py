"""Assemble the tools of one agent: built-in, plug-ins, MCP servers, engine tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure import plugins
from perdure.config.settings import Settings
from perdure.core.concurrency import call_foreign, describe_error
from perdure.core.errors import PluginError
from perdure.core.ports import (
    Approver,
    Asker,
    AuxiliaryModels,
    Checkpoints,
    Clock,
    ContextControl,
    KeyValue,
    LogBrowser,
    Memory,
    Outputs,
    ScoreTexts,
    Search,
    Spawner,
)
from perdure.core.visibility import OWNER, AnyUser
from perdure.tools.approval import ApprovalGuard
from perdure.tools.builtin.agent_tools import (
    ClarifyTool,
    ContextTool,
    DelegateTool,
    Plans,
    SessionSearch,
    TodoTool,
)
from perdure.tools.builtin.files import FileEditor, FileReader
from perdure.tools.builtin.log_tools import LogTools
from perdure.tools.builtin.memory import MemoryTool
from perdure.tools.builtin.reading import HitReader, PageReader
from perdure.tools.builtin.sandbox import Sandbox
from perdure.tools.builtin.search import FileSearch
from perdure.tools.builtin.terminal import BackgroundProcess, Terminal
from perdure.tools.builtin.web import FetchLimits, WebReader
from perdure.tools.deferred import DeferredTools
from perdure.tools.hooks import Hooks
from perdure.tools.mcp import McpPool
from perdure.tools.output_limits import OutputLimiter, OutputLimits
from perdure.tools.permissions import PermissionRules, Permissions, load_permissions
from perdure.tools.runtime import ToolRuntime
from perdure.tools.tool import Tool, ToolRegistry, suggest_name
from perdure.tools.workspace import Workspace
from perdure.tools.workspace_copies import WorkspaceCopies

ENTRY_POINTS = "perdure.tools"
FOLDER = Path("plugins") / "tools"
ToolPlugin = Callable[[ToolRegistry, Hooks], None]

# The built-in tools and toolsets. Some surfaces and settings lack some of them, which makes their names no mistakes.
BUILT_IN_NAMES = frozenset(
    [
        "clarify",
        "context",
        "delegate_task",
        "delegation",
        "files",
        "lcm_describe",
        "lcm_expand",
        "lcm_grep",
        "log",
        "memory",
        "patch",
        "planning",
        "process",
        "read_file",
        "search_files",
        "session_search",
        "terminal",
        "todo",
        "web",
        "web_extract",
        "write_file",
    ]
)

_PLUGINS = plugins.PluginRegistry("tool plug-in", None, ENTRY_POINTS)


def register_tool_plugin(name: str, plugin: ToolPlugin | str) -> None:
    """Register a plug-in under a name; a string "module:function" is imported on first use."""
    _PLUGINS.register(name, plugin)


def tool_plugins(home: Path | None = None) -> plugins.PluginRegistry:
    """Return the tool plug-ins available with a home folder."""
    return _PLUGINS.within(home / FOLDER if home is not None else None)


def load_plugins(
    names: Sequence[str], registry: ToolRegistry, hooks: Hooks, *, available: plugins.PluginRegistry
) -> list[str]:
    """Run each named plug-in; return a warning for each that failed."""
    warnings = []
    for name in names:
        try:
            call_foreign(available.load(name), registry, hooks)
        except PluginError as error:
            warnings.append(str(error))
        except Exception as error:  # plug-in code may raise anything
            warnings.append(f"tool plug-in {name!r} failed to start: {describe_error(error)}")
    return warnings


@dataclass(frozen=True, slots=True)
class ToolSources:
    """Everything the tools are built from. Without a `workspace` there is no shell and no file access."""

    settings: Settings
    clock: Clock
    # The user's home folder, for `~`.
    user_home: Path
    # Perdure's home folder, which holds the plug-ins.
    perdure_home: Path | None = None
    workspace: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    outputs: Outputs | None = None
    search: Search | None = None
    # The whole log, for the `lcm_*` tools; None if they are not offered.
    log: LogBrowser | None = None
    context: ContextControl | None = None
    memory: Memory | None = None
    plans: Plans | None = None
    asker: Asker | None = None
    spawner: Spawner | None = None
    approver: Approver | None = None
    # Stores "always" answers; with None they last as long as the process.
    approvals: KeyValue | None = None
    # Copies files before they are changed.
    checkpoints: Checkpoints | None = None
    copies: WorkspaceCopies | None = None
    # The mode and rules; with None those of the settings.
    permissions: Permissions | None = None
    # Ranks tools for `find_tools`; with None all schemas are sent.
    rank: ScoreTexts | None = None
    # Answer questions from long pages and search hits; with None these are returned unchanged.
    auxiliary: AuxiliaryModels | None = None
    # The MCP servers that agents of one user share.
    mcp: McpPool = field(default_factory=McpPool)
    user: AnyUser = OWNER


class Toolbox:
    """A tool runtime, the warnings from building it, and its cleanup."""

    def __init__(
        self,
        runtime: ToolRuntime,
        warnings: list[str],
        closers: list[Callable[[], None]],
        *,
        replaced: Sequence[Tool] = (),
    ) -> None:
        self.runtime = runtime
        self.warnings = warnings
        # The tools in whose place one of the caller's own is offered.
        self.replaced = replaced
        self._closers = closers

    def close(self) -> None:
        """Stop background processes and MCP servers. Idempotent."""
        while self._closers:
            self._closers.pop()()


def build_toolbox(sources: ToolSources, own_tools: Iterable[Tool | Callable[..., Any]] = ()) -> Toolbox:
    """Register the default tools, MCP servers, plug-ins and the caller's own, in this order: later names win."""
    settings = sources.settings
    limits = settings.tool_output
    output_limiter = OutputLimiter(
        sources.outputs, OutputLimits(limits.default_result_size, limits.turn_budget, limits.preview_size)
    )

    processes: Callable[[], Sequence[BackgroundProcess]] = tuple
    permissions = sources.permissions or load_permissions(
        settings.permissions, is_never_asked=settings.tools.approval == "never"
    )
    registry, hooks, closers = ToolRegistry(), Hooks(), []  # type: ToolRegistry, Hooks, list[Callable[[], None]]
    guard, warnings = None, list(permissions.warnings)  # type: ApprovalGuard | None, list[str]
    if sources.workspace is not None:
        sandbox = _build_sandbox(sources, sources.workspace)
        warnings += [sandbox.problem] if sandbox is not None and sandbox.problem is not None else []
        terminal = Terminal(sources.workspace, sources.environment, sandbox=sandbox)
        closers.append(terminal.close)
        processes = terminal.processes
        _add_all(registry, _workspace_tools(sources, Workspace(sources.workspace), terminal))
        guard = _build_guard(sources, permissions, terminal)
    _add_all(registry, _other_tools(sources))
    servers = sources.mcp.start(settings.mcp_servers, sources.environment, user=sources.user)
    closers.append(servers.close)
    _add_all(registry, servers.tools)
    warnings += servers.warnings
    warnings += load_plugins(settings.tools.plugins, registry, hooks, available=tool_plugins(sources.perdure_home))
    replaced = _replace_all(registry, own_tools)
    warnings += _check_names(settings, registry, permissions.rules if sources.workspace is not None else None)
    for name in settings.tools.disabled:
        registry.switch_off(name)
    runtime = ToolRuntime(
        registry,
        clock=sources.clock,
        output_limiter=output_limiter,
        outputs=sources.outputs,
        hooks=hooks,
        guard=guard or _build_guard(sources, permissions, None),
        timeout_s=settings.tools.timeout_s,
        processes=processes,
        permissions=permissions,
        checkpoints=sources.checkpoints,
        workspace=Workspace(sources.workspace) if sources.workspace is not None else None,
        copies=sources.copies,
        deferred=build_deferred(settings, sources.rank),
    )
    return Toolbox(runtime, warnings, closers, replaced=replaced)


def _check_names(settings: Settings, registry: ToolRegistry, rules: PermissionRules | None) -> Iterator[str]:
    """Yield a warning for each name in the settings and rules that no tool has."""
    names = registry.names() | BUILT_IN_NAMES
    for key, effect in (("disabled", "nothing was disabled"), ("pinned", "nothing was pinned")):
        for name in getattr(settings.tools, key):
            if name not in names:
                hint = suggest_name(name, names)
                yield f"tools.{key}: there is no tool or toolset {name!r}, so {effect}; {hint}"
    for verdict in ("allow", "ask", "deny") if rules is not None else ():
        for rule in getattr(rules, verdict):
            # The tools of an MCP server that did not start are not known.
            if "__" not in rule.tool and not any(map(rule.is_about, names)):
                hint = suggest_name(rule.tool, names)
                yield f"permissions.{verdict}: no tool is called {rule.tool!r} ({rule.text}, {rule.origin}); {hint}"


def build_deferred(settings: Settings, rank: ScoreTexts | None) -> DeferredTools | None:
    """Return the policy that defers tools, by the settings; None if all tools are sent."""
    tools = settings.tools
    if rank is None or not tools.defer_above_tokens:
        return None
    return DeferredTools(rank, threshold_tokens=tools.defer_above_tokens, pinned=tools.pinned)


def _build_sandbox(sources: ToolSources, workspace: Path) -> Sandbox | None:
    return Sandbox(workspace, sources.user_home) if sources.settings.tools.sandbox == "bubblewrap" else None


def _build_guard(sources: ToolSources, permissions: Permissions, terminal: Terminal | None) -> ApprovalGuard:
    return ApprovalGuard(
        # Without a workspace every path is outside of it, so every write needs approval.
        Workspace(sources.workspace or sources.user_home / ".perdure-no-workspace"),
        home=sources.user_home,
        approver=sources.approver,
        approvals=sources.approvals,
        shell_state=terminal.state if terminal is not None else None,
        permissions=permissions,
    )


def _workspace_tools(sources: ToolSources, workspace: Workspace, terminal: Terminal) -> Iterator[Tool]:
    yield from terminal.tools()
    yield FileReader(workspace, outputs=sources.outputs).tool()
    yield from FileEditor(workspace).tools()
    yield FileSearch.with_ripgrep_if_installed(workspace).tool()


def _other_tools(sources: ToolSources) -> Iterator[Tool]:
    settings, models = sources.settings, sources.auxiliary
    folder = sources.perdure_home / "prompts" if sources.perdure_home is not None else None
    page_reader = hit_reader = None
    if models is not None and models.has_model("web_extract"):
        page_reader = PageReader(models, score=sources.rank, prompts_folder=folder)
    if models is not None and models.has_model("session_search"):
        hit_reader = HitReader(models, prompts_folder=folder)
    yield WebReader(FetchLimits(private_networks=settings.tools.private_networks), reader=page_reader).tool()
    if sources.workspace is None and sources.outputs is not None:
        yield FileReader(None, outputs=sources.outputs).tool()
    if sources.plans is not None:
        yield TodoTool(sources.plans).tool()
    if sources.memory is not None:
        yield MemoryTool(sources.memory).tool()
    if sources.search is not None:
        search = SessionSearch(sources.search, reader=hit_reader)
        yield search.tool()
        if sources.log is not None:
            yield from LogTools(search, sources.log).tools()
    if sources.context is not None:
        yield ContextTool(sources.context).tool()
    if sources.asker is not None:
        yield ClarifyTool(sources.asker).tool()
    if sources.spawner is not None:
        yield DelegateTool(sources.spawner, max_iterations=settings.delegation.max_iterations).tool()


def _add_all(registry: ToolRegistry, tools: Iterable[Tool | Callable[..., Any]]) -> None:
    for t in tools:
        registry.add(t)


def _replace_all(registry: ToolRegistry, tools: Iterable[Tool | Callable[..., Any]]) -> list[Tool]:
    """Register tools, and return those that were registered under their names before."""
    before = {tool.name: tool for tool in registry}
    return [before[added.name] for added in map(registry.add, tools) if added.name in before]
