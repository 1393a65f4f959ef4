"""Build the agent of one conversation: settings and the shared parts of the process in, a `ConversationAgent` out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure import prompts
from perdure.agent.agent import ConversationAgent
from perdure.agent.callbacks import Callbacks
from perdure.agent.delegation import Children, StoredPlans
from perdure.agent.deps import AgentDeps
from perdure.agent.prompt import PromptSources, Skill, platform_notes, read_context_files, read_skills, surface_note
from perdure.agent.recall import GuardedMemory, StoreRecall, check_memory, to_provider
from perdure.agent.runner import EventBus
from perdure.agent.session import LiveContexts, LiveSession
from perdure.app.auxiliary import CachedDescriber, TaskModels
from perdure.app.runtime import Shared, SummaryRoute
from perdure.config.env import shell_environment
from perdure.config.project import folders_above, project_folder
from perdure.config.settings import ModelSettings, PermissionsSettings, Settings
from perdure.context.engine import ContextEngine, EngineServices
from perdure.context.registry import WINDOWS_ENGINE, start_engine
from perdure.core.errors import ConfigError
from perdure.core.events import CompactionFinished, Event, Notice
from perdure.core.ports import Approver, Asker, Memory, MemorySnapshot, RecallProvider
from perdure.core.visibility import OWNER, AnyUser
from perdure.core.wording import describe_in_program
from perdure.providers.registry import PROVIDERS
from perdure.providers.routes import RouteCursor, unknown_providers
from perdure.store.search.documents import score_documents
from perdure.store.store import SessionStore
from perdure.tools.approval import ApprovalGuard
from perdure.tools.builtin.agent_tools import SessionSearch
from perdure.tools.builtin.log_tools import LogTools
from perdure.tools.builtin.memory import FileMemory, SharedMemory
from perdure.tools.output_limits import OutputLimiter
from perdure.tools.permissions import (
    TRUSTED_PROJECTS,
    Permissions,
    find_project_file,
    load_permissions,
    parse_rules,
    read_project,
)
from perdure.tools.runtime import ToolRuntime
from perdure.tools.tool import Tool, ToolRegistry, tool_from_function
from perdure.tools.toolbox import Toolbox, ToolSources, build_deferred, build_toolbox
from perdure.tools.workspace import Workspace

AnyTools = Iterable[Any]
# A provider, or a function from the text of a message to background.
Recall = RecallProvider | Callable[[str], str]
# In a list of tools: all those that are offered where no list is handed in.
DEFAULT_TOOLS = "default"


@dataclass(frozen=True, slots=True)
class AgentUser:
    """The user an agent works for: whose data it uses, the platform, and what they may do on this machine."""

    source: str = "library"
    # Whose conversations, memory and outputs it uses.
    user: AnyUser = OWNER
    chat_key: str = ""
    # Whether they may use this machine: its terminal, its files, and programs that run here for the model (MCP servers,
    # plug-ins). Such a user can read all data of this machine.
    has_shell: bool = True
    # Approves dangerous calls, and answers the model's questions; None: no user is present.
    approver: Approver | None = None
    asker: Asker | None = None
    # Permission rules that hold in addition to the user's own, for calls that no person is present to approve.
    allowed: tuple[str, ...] = ()
    # The folder that the agent works in; None: the current one of this process.
    folder: Path | None = None


def build_agent(
    shared: Shared,
    speaker: AgentUser,
    *,
    session_id: str | None = None,
    tools: AnyTools | None = None,
    callbacks: Callbacks | None = None,
    system_prompt: str | None = None,
    recall: Recall | None = None,
    memory: Memory | None = None,
) -> ConversationAgent:
    """Build an agent; `tools=None` offers the default tools, `recall=None` and `memory=None` follow the settings."""
    wiring = Wiring(shared, speaker, recall=recall, memory=memory)
    return ConversationAgent(
        wiring.make_deps(tools),
        shared.loop_thread,
        services=wiring.engine_services,
        events=wiring.events,
        session_id=session_id,
        callbacks=callbacks,
        system_prompt=system_prompt,
        warnings=wiring.warnings,
        closers=[wiring.toolbox.close] if wiring.toolbox is not None else (),
    )


@contextmanager
def trial_agent(
    settings: Settings, *, home: Path, folder: Path, store: SessionStore | None = None, asker: Asker | None = None
) -> Iterator[ConversationAgent]:
    """Yield an agent whose tools and warnings can be inspected; needs no key, model or MCP server. Raises ConfigError.

    Without a `store` it uses a temporary one, which is deleted afterwards.
    """
    prefixes = tuple(p for s in settings.mcp_servers for p in (f"mcp:{s.name}", f"{s.name}__"))
    tools = settings.tools
    # The tools of MCP servers are known only once those are started.
    names = {k: tuple(n for n in getattr(tools, k) if not n.startswith(prefixes)) for k in ("disabled", "pinned")}
    trial = {"mcp_servers": (), "model": ModelSettings(provider="local"), "tools": tools.model_copy(update=names)}
    with ExitStack() as stack:
        folder_of_store = stack.enter_context(TemporaryDirectory()) if store is None else ""
        path = store or Path(folder_of_store) / "trial.db"
        shared = Shared(settings.model_copy(update=trial), home=home, store=path)
        stack.callback(shared.close)
        agent = build_agent(shared, AgentUser("trial", folder=folder, asker=asker))
        stack.callback(agent.close)
        yield agent


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the working folder does not exist any more: change to another one") from None


class Wiring:
    """Makes the dependencies of one agent, one method each; `make_deps` puts them together."""

    def __init__(
        self, shared: Shared, speaker: AgentUser, *, recall: Recall | None = None, memory: Memory | None = None
    ) -> None:
        self._own_recall = to_provider(recall)
        self._own_memory = check_memory(memory) if memory is not None else None
        self.shared = shared
        self.speaker = speaker
        self.folder = speaker.folder or _working_folder()
        self.settings = shared.settings if speaker.has_shell else _without_programs(shared.settings)
        self.events = EventBus(_word_for_program if speaker.source == "library" else None)
        # Shared with the agent: an engine of a delegated child may add to them later.
        self.warnings: list[str] = unknown_providers(self.settings)
        self.toolbox: Toolbox | None = None
        # The sessions of this agent and its children, for the tool `context`.
        self._contexts = LiveContexts()
        # What a delegated child starts from; its tools are among them, so that the tools exist first.
        self._deps: AgentDeps | None = None
        self._auxiliary: TaskModels | None = None

    def make_deps(self, tools: AnyTools | None) -> AgentDeps:
        shared, speaker = self.shared, self.speaker
        memory, routes = self._memory(), RouteCursor(shared.route, shared.credentials)
        self._auxiliary = TaskModels(shared, self.settings, routes)
        self._deps = AgentDeps(
            store=shared.store,
            send=shared.send,
            routes=routes,
            models=shared.knowledge,
            calibrations=shared.calibrations,
            engine=self._engine(),
            tools=self._tools(memory, tools),
            memory=memory,
            prompt_sources=self._prompt_sources,
            settings=self.settings,
            clock=shared.clock,
            ids=shared.ids,
            recall=self._recall(),
            vision=CachedDescriber(shared, self._auxiliary, routes),
            run_blocking=shared.run_blocking,
            user=speaker.user,
            chat_key=speaker.chat_key,
            source=speaker.source,
            is_library=speaker.source == "library",
            prompts_folder=shared.home / "prompts",
        )
        return self._deps

    def _memory(self) -> Memory:
        """Return the memory provider passed in, or the built-in one, wrapped so that its failures end no turn."""

        def report(text: str) -> None:
            self.events.emit(Notice(text, "warning"))

        if self._own_memory is not None:
            return GuardedMemory(self._own_memory, report=report, timeout_s=self.settings.recall.timeout_s)
        return GuardedMemory(self._built_in_memory(), report=report)

    def _built_in_memory(self) -> Memory:
        """Return the default memory: files of this machine, or rows of the database where several machines share it."""
        limits = self.settings.memory.model_dump(include={"memory_max_chars", "user_max_chars"})
        files = FileMemory(self.shared.home / "memory", **limits)
        if not self.settings.store.url:
            return files
        return SharedMemory(self.shared.store.state("memory"), files, **limits)

    def _recall(self) -> RecallProvider | None:
        """Return the recall provider passed in, else the search over stored conversations if the settings enable it."""
        settings = self.settings.recall
        if self._own_recall is not None or not settings.enabled:
            return self._own_recall
        search = self.shared.store.search_index
        return StoreRecall(search, max_passages=settings.max_passages, max_tokens=settings.max_tokens)

    def _engine(self) -> ContextEngine:
        engine = start_engine(self.settings.context.engine, home=self.shared.home)
        if engine.warning and engine.warning not in self.warnings:
            self.warnings.append(engine.warning)
        return engine.value

    def engine_services(self, live: LiveSession) -> EngineServices:
        """Return the services that the context engine of one conversation gets: summarizers, log, state, settings."""
        shared, route = self.shared, SummaryRoute(self.shared, self.settings, live)
        self._contexts.add(live)
        return EngineServices(
            summarize=route.side if self.settings.compression.summarize else None,
            summarize_main=route.main if self.settings.compression.summarize else None,
            state=shared.store.state(f"engine:{live.conversation_id}"),
            installation=shared.store.state("engine"),
            log=shared.store.log.reader(live.conversation_id),
            settings=self.settings.compression,
            clock=shared.clock,
            summary_window_tokens=route.window_tokens,
            prompts_folder=shared.home / "prompts",
            request_compaction=live.request_compaction,
            windows=partial(shared.store.addresses.windows, live.conversation_id),
            has_tools=lambda: bool(live.tools),
            run_coroutine=shared.loop_thread.run,
        )

    def _tools(self, memory: Memory, tools: AnyTools | None) -> ToolRuntime:
        """Build the tool runtime for `tools=`: the default tools, the named ones and the caller's own, or these alone.

        Raises ConfigError for a value that is not a tool.
        """
        if isinstance(tools, str) or not isinstance(tools, Iterable | None):
            raise ConfigError(f"tools takes a list of functions, tools and names of tools, not {tools!r:.80}")
        items = list(tools) if tools is not None else [DEFAULT_TOOLS]
        names = [item for item in items if isinstance(item, str)]
        own = [_as_tool(item) for item in items if not isinstance(item, str)]
        _check_unique(own)
        runtime = self._default_tools(memory, own) if names else self._only(own)
        if names and DEFAULT_TOOLS not in names:
            runtime.registry.keep_only([*names, *(tool.name for tool in own)])
        for tool in self.toolbox.replaced if self.toolbox is not None else ():
            if not {DEFAULT_TOOLS, tool.name, tool.toolset}.isdisjoint(names):
                self.warnings.append(f"your tool {tool.name!r} takes the place of Perdure's own of that name")
        if self.settings.context.engine == WINDOWS_ENGINE:  # like its other tools, they come with the engine
            store = self.shared.store
            for tool in LogTools(SessionSearch(store.search_index), store.addresses).tools():
                if tool.name not in runtime.registry:
                    runtime.registry.add(tool)
        return runtime

    def _only(self, tools: AnyTools) -> ToolRuntime:
        """Build a runtime with exactly the caller's tools.

        They need the same approvals as the default tools; without an approver, a dangerous call is refused.
        """
        shared, permissions = self.shared, self._permissions()
        guard = ApprovalGuard(
            Workspace(self.folder),
            home=Path.home(),
            approver=self.speaker.approver,
            approvals=shared.store.state("approvals"),
            permissions=permissions,
        )
        outputs = shared.store.outputs
        limiter = OutputLimiter(outputs)
        return ToolRuntime(
            ToolRegistry(tools),
            clock=shared.clock,
            output_limiter=limiter,
            outputs=outputs,
            guard=guard,
            permissions=permissions,
            checkpoints=shared.store.checkpoints,
            workspace=Workspace(self.folder),
            copies=shared.workspaces.copies_of(self.folder),
            deferred=build_deferred(self.settings, score_documents),
        )

    def _permissions(self) -> Permissions:
        """Return the user's permission mode and rules, and the project's for users with access to this machine."""
        path = find_project_file(self.folder, Path.home()) if self.speaker.has_shell else None
        project = read_project(path, self.shared.store.state(TRUSTED_PROJECTS)) if path is not None else None
        is_never_asked = self.settings.tools.approval == "never"
        permissions = load_permissions(self.settings.permissions, is_never_asked=is_never_asked, project=project)
        if self.speaker.allowed:
            permissions.rules += parse_rules(PermissionsSettings(allow=self.speaker.allowed), "allowed in advance")
        return permissions

    def _default_tools(self, memory: Memory, own: AnyTools) -> ToolRuntime:
        shared, speaker = self.shared, self.speaker
        bots = self.settings.gateway.telegram, self.settings.gateway.discord
        keys = [*(variable for s in PROVIDERS for variable in s.key_variables), *(bot.token_env for bot in bots)]
        self.toolbox = build_toolbox(
            ToolSources(
                settings=self.settings,
                clock=shared.clock,
                user_home=Path.home(),
                perdure_home=shared.home,
                workspace=self.folder if speaker.has_shell else None,
                # The keys Perdure itself uses are not for the commands a model runs.
                environment=shell_environment(without=keys) if speaker.has_shell else {},
                outputs=shared.store.outputs,
                search=shared.store.search_index,
                log=shared.store.addresses if self.settings.context.lcm_tools else None,
                context=self._contexts,
                memory=memory,
                plans=StoredPlans(shared.store),
                asker=speaker.asker,
                spawner=self,
                approver=speaker.approver,
                approvals=shared.store.state("approvals"),
                permissions=self._permissions(),
                checkpoints=shared.store.checkpoints,
                copies=shared.workspaces.copies_of(self.folder) if speaker.has_shell else None,
                rank=score_documents,
                auxiliary=self._auxiliary,
                mcp=shared.mcp,
                user=speaker.user,
            ),
            own,
        )
        self.warnings += self.toolbox.warnings
        return self.toolbox.runtime

    async def spawn(self, task: str, *, parent_id: str, context: str = "", max_iterations: int | None = None) -> str:
        """Run a delegated child and return its report (the Spawner port)."""
        assert self._deps is not None, "tools run after the agent is built"
        children = Children(
            self._deps,
            parent_id=self.shared.store.get_compression_tip(parent_id),
            make_engine=self._engine,
            services=self.engine_services,
            emit=self.events.emit,
        )
        return await children.spawn(task, context=context, max_iterations=max_iterations)

    def _skills(self, here: Path) -> list[Skill]:
        """Return the user's own skills and those of the project in the working folder."""
        project = project_folder(here, user_home=Path.home(), perdure_home=self.shared.home)
        own = read_skills(self.shared.home / "skills")
        return [*own, *(read_skills(project / "skills") if project is not None else ())]

    def _prompt_sources(self, memory: MemorySnapshot) -> PromptSources:
        """Read the sources of the system prompt.

        Files of the working folder are read only for users with access to this machine.
        """
        home, here, speaker = self.shared.home, self.folder, self.speaker
        return PromptSources(
            identity=prompts.load("identity", home / "prompts"),
            memory=memory,
            skills=self._skills(here) if speaker.has_shell else [],
            context_files=read_context_files(here, above=folders_above(here, Path.home())) if speaker.has_shell else [],
            platform_notes=platform_notes(here, speaker.source) if speaker.has_shell else surface_note(speaker.source),
        )


def _word_for_program(event: Event) -> Event:
    """Return an event whose text names methods and arguments in place of the terminal's commands."""
    match event:
        case Notice(text=text):
            return replace(event, text=describe_in_program(text))
        case CompactionFinished(message=text):
            return replace(event, message=describe_in_program(text))
        case _:
            return event


def _as_tool(item: Any) -> Tool:
    """Return an item of `tools=` as a Tool; a function is wrapped. Raises ConfigError for anything else."""
    if isinstance(item, Tool):
        return item
    if not callable(item):
        raise ConfigError(f"{item!r:.80} is no tool: hand in a typed function, a Tool, or a tool's name")
    try:
        return tool_from_function(item)
    except (AttributeError, NameError, TypeError, ValueError) as error:
        raise ConfigError(f"{item!r:.80} cannot be made a tool: {error}") from error


def _check_unique(tools: Iterable[Tool]) -> None:
    """Raise ConfigError for two tools of the same name, of which the model could call one only."""
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise ConfigError(f"two tools in tools= are called {tool.name!r}; name one of them with @tool(name=…)")
        names.add(tool.name)


def _without_programs(settings: Settings) -> Settings:
    """Return settings that start no local programs, for a user without access to this machine."""
    tools = settings.tools.model_copy(update={"plugins": ()})
    return settings.model_copy(update={"mcp_servers": (), "tools": tools})
