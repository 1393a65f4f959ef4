"""The composition root: the only place that knows every part and puts them together. `perdure.Agent` lives here.

settings → store, transport, route, engine, tools, prompt → `agent.Agent`. Nothing here touches the network; the
embedded model is started when the first call needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from perdure import prompts
from perdure.agent import agent as talking
from perdure.agent.answers import CallbackApprover, CallbackAsker
from perdure.agent.bridge import LoopThread
from perdure.agent.callbacks import Callbacks
from perdure.agent.delegation import Children
from perdure.agent.embedded import UNSTARTED, EmbeddedSend, embedded_endpoint
from perdure.agent.knowledge import Knowledge
from perdure.agent.parts import Parts
from perdure.agent.plans import StoredPlans
from perdure.agent.prompt import PromptSources, platform_notes, read_context_files, read_skills
from perdure.agent.session import LiveSession
from perdure.config.credentials import api_key_for
from perdure.config.home import home_dir, make_home, shell_environment
from perdure.config.load import checked, load
from perdure.config.settings import Settings
from perdure.context.engine import ContextEngine, EngineServices
from perdure.context.registry import start_engine
from perdure.core.clock import SystemClock
from perdure.core.errors import ConfigError
from perdure.core.ports import Approver, Asker, MemorySnapshot, Summarize
from perdure.core.usage import CanonicalUsage
from perdure.models.catalog import Catalog
from perdure.models.limits import LearnedLimits
from perdure.providers.auxiliary import AuxiliaryCaller, Summarizer, TaskUsage, auxiliary_chain
from perdure.providers.client_adapter import ClientWire, endpoint_of
from perdure.providers.credentials import Credentials
from perdure.providers.endpoint_info import EndpointInfo
from perdure.providers.exchange import Endpoint
from perdure.providers.local import DEFAULT_MODEL, LocalServers, OnProgress
from perdure.providers.routes import Route, RouteCursor, main_route
from perdure.providers.services import SERVICES, service
from perdure.providers.transport import Transport
from perdure.store.ids import TimeIds
from perdure.store.records import Call
from perdure.store.records import Route as StoredRoute
from perdure.store.store import SessionStore, open_store
from perdure.tools.budgets import Budgets
from perdure.tools.registry import Registry
from perdure.tools.runtime import ToolRuntime
from perdure.tools.stateful.memory import FileMemory
from perdure.tools.toolbox import Toolbox, ToolSources, build_toolbox

AnyTools = Iterable[Any]


class Agent(talking.Agent):
    """An agent over your settings; every argument says otherwise for this one agent alone."""

    def __init__(
        self,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        api_mode: str | None = None,
        client: Any = None,
        settings: Settings | Mapping[str, Any] | None = None,
        store: SessionStore | str | Path | None = None,
        session_id: str | None = None,
        tools: AnyTools | None = None,
        callbacks: Callbacks | Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        *,
        home: Path | None = None,
        on_progress: OnProgress | None = None,
        source: str = "library",
        approver: Approver | None = None,
        asker: Asker | None = None,
    ) -> None:
        given = {"name": model, "provider": provider, "base_url": base_url}
        heard = callbacks if isinstance(callbacks, Callbacks) else Callbacks(**(callbacks or {}))
        if approver is None and heard.approval_callback is not None:
            approver = CallbackApprover(heard.approval_callback)
        if asker is None and heard.clarify_callback is not None:
            asker = CallbackAsker(heard.clarify_callback)
        wiring = Wiring(
            _settings(settings, given, home),
            home=home or home_dir(),
            store=store,
            client=client,
            api_key=api_key,
            api_mode=api_mode,
            source=source,
            on_progress=on_progress,
            approver=approver,
            asker=asker,
        )
        super().__init__(
            wiring.parts(tools),
            shared_loop(),
            services=wiring.engine_services,
            session_id=session_id,
            callbacks=heard if callbacks is not None else None,
            system_prompt=system_prompt,
        )
        self.warnings = wiring.warnings
        self._toolbox = wiring.toolbox
        wiring.agent = self

    def close(self) -> None:
        super().close()
        if self._toolbox is not None:
            self._toolbox.close()


class Wiring:
    """One agent's parts, made from settings. Each method makes one part; `parts` puts them together."""

    def __init__(
        self,
        settings: Settings,
        *,
        home: Path,
        store: SessionStore | str | Path | None,
        client: Any,
        api_key: str | None,
        api_mode: str | None,
        source: str,
        on_progress: OnProgress | None,
        approver: Approver | None = None,
        asker: Asker | None = None,
    ) -> None:
        self.settings = settings
        # Who is asked before something dangerous runs, and who answers the model's own questions; None: nobody.
        self.approver = approver
        self.asker = asker
        self.warnings: list[str] = []
        self.toolbox: Toolbox | None = None
        # Set once there is one: what a delegated child hangs on to.
        self.agent: talking.Agent | None = None
        self._home = home
        self._source = source
        self._clock = SystemClock()
        self.store = _store(store, settings, home)
        self.route = (
            _route_of_client(client, settings, api_mode)
            if client is not None
            else _route(settings, api_key=api_key, api_mode=api_mode)
        )
        wire = ClientWire(client) if client is not None else None
        servers = LocalServers(home / "logs")
        self.send = EmbeddedSend(
            Transport(wire=wire).send, servers, n_ctx=settings.model.context_length, on_progress=on_progress
        )
        self._credentials = Credentials(settings.credentials.command)
        self.knowledge = Knowledge(
            Catalog(settings.model_overrides),
            LearnedLimits(self.store.state("limits")),
            info=EndpointInfo(),
            configured_window=settings.model.context_length or (self.send.n_ctx if self._is_embedded else None),
        )

    @property
    def _is_embedded(self) -> bool:
        return self.route.main.base_url == UNSTARTED

    def parts(self, tools: AnyTools | None) -> Parts:
        memory = FileMemory(
            self._home / "memory",
            memory_max_chars=self.settings.memory.memory_max_chars,
            user_max_chars=self.settings.memory.user_max_chars,
        )
        return Parts(
            store=self.store,
            send=self.send,
            routes=RouteCursor(self.route, self._credentials),
            models=self.knowledge,
            engine=self._engine(),
            tools=self._default_tools(memory) if tools is None else self._only(tools),
            memory=memory,
            prompt_sources=self._prompt_sources,
            settings=self.settings,
            clock=self._clock,
            ids=TimeIds(self._clock),
            source=self._source,
            prompts_folder=self._home / "prompts",
        )

    def _engine(self) -> ContextEngine:
        engine = start_engine(self.settings.context.engine, home=self._home)
        if engine.warning and engine.warning not in self.warnings:
            self.warnings.append(engine.warning)
        return engine.value

    def engine_services(self, live: LiveSession) -> EngineServices:
        """What the engine of one conversation is handed."""
        return EngineServices(
            summarize=self._summarizer(live),
            state=self.store.state(f"engine:{live.conversation_id}"),
            log=self.store.log.reader(live.conversation_id),
            settings=self.settings.compression,
            clock=self._clock,
            summary_window_tokens=self._summary_window,
            prompts_folder=self._home / "prompts",
        )

    def _only(self, tools: AnyTools) -> ToolRuntime:
        """Exactly the tools handed in; they are the caller's own, so nobody is asked about them."""
        outputs = self.store.outputs
        return ToolRuntime(Registry(tools), clock=self._clock, budgets=Budgets(outputs), outputs=outputs)

    def _default_tools(self, memory: FileMemory) -> ToolRuntime:
        keys = [variable for s in SERVICES for variable in s.key_variables]
        self.toolbox = build_toolbox(
            ToolSources(
                settings=self.settings,
                clock=self._clock,
                user_home=Path.home(),
                perdure_home=self._home,
                workspace=Path.cwd(),
                # The keys Perdure itself uses are not for the commands a model runs.
                environment=shell_environment(without=keys),
                outputs=self.store.outputs,
                search=self.store.finder,
                memory=memory,
                plans=StoredPlans(self.store),
                asker=self.asker,
                spawner=self,
                approver=self.approver,
                approvals=self.store.state("approvals"),
            )
        )
        self.warnings += self.toolbox.warnings
        return self.toolbox.runtime

    async def spawn(self, task: str, *, context: str = "", max_iterations: int | None = None) -> str:
        """A delegated child's report (the Spawner port)."""
        parent = self.agent
        if parent is None or parent.session_id is None:
            raise ConfigError("there is no conversation to delegate from")
        children = Children(
            parent.parts,
            parent_id=parent.session_id,
            make_engine=self._engine,
            services=self.engine_services,
            emit=parent.events.emit,
        )
        return await children.spawn(task, context=context, max_iterations=max_iterations)

    def _prompt_sources(self, memory: MemorySnapshot) -> PromptSources:
        here = Path.cwd()
        return PromptSources(
            identity=prompts.load("identity", self._home / "prompts"),
            memory=memory,
            skills=read_skills(self._home / "skills"),
            context_files=read_context_files(here),
            platform_notes=platform_notes(here, self._source),
        )

    def _summarizer(self, live: LiveSession) -> Summarize | None:
        """Side calls of the compression task; the embedded model is too small to summarise, so code does it there."""
        if self._is_embedded:
            return None
        caller = AuxiliaryCaller(
            self.send,
            lambda task: auxiliary_chain(task, self.settings, self.route.main, lookup=api_key_for),
            record=lambda used: self._record_side_call(live.id, used),
            credentials=self._credentials,
        )
        return Summarizer(caller, run=shared_loop().run, price=self._price)

    @property
    def _summary_window(self) -> int | None:
        """The window a summary's input must fit (D5, J10); None where it is the main model's own, or unknown."""
        given = self.settings.auxiliary.compression.context_length
        if given is not None or self._is_embedded:
            return given
        try:
            first = auxiliary_chain("compression", self.settings, self.route.main, lookup=api_key_for)[0]
        except ConfigError:  # told where a summary is wanted; a conversation can begin without one
            return None
        main = self.route.main
        is_main = (first.model, first.base_url) == (main.model, main.base_url)
        return None if is_main else self.knowledge.side_window(first)

    def _price(self, usage: CanonicalUsage, endpoint: Endpoint) -> float | None:
        return self.knowledge.cost_usd(endpoint, usage)

    def _record_side_call(self, session_id: str, used: TaskUsage) -> None:
        where = used.endpoint
        self.store.ledger.record_call(
            Call(
                session_id=session_id,
                task=used.task,
                route=StoredRoute(where.provider, where.model, where.api_mode),
                usage=used.usage,
                cost_usd=self.knowledge.cost_usd(where, used.usage),
            )
        )


@cache
def shared_loop() -> LoopThread:
    """The one event loop of this process."""
    return LoopThread()


def _settings(
    given: Settings | Mapping[str, Any] | None, model: Mapping[str, str | None], home: Path | None
) -> Settings:
    """The settings handed in, or the user's own; what an argument says of the model goes before both."""
    said = {f"model.{k}": v for k, v in model.items() if v is not None}
    if given is None:
        return load(flags=said, home=home).settings
    base = given if isinstance(given, Settings) else checked(given)
    update = {k: v for k, v in model.items() if v is not None}
    return base.model_copy(update={"model": base.model.model_copy(update=update)}) if update else base


def open_user_store(settings: Settings, home: Path) -> SessionStore:
    """The store the settings name; the home folder's own file where they name none."""
    if settings.store.url:
        return open_store(settings.store.url)
    return open_store(Path(settings.store.path) if settings.store.path else make_home(home) / "perdure.db")


def route_to(settings: Settings, name: str) -> Route:
    """The route to another model: `model`, or `provider/model` where the provider is one we know."""
    provider, slash, model = name.partition("/")
    update = {"name": name}
    if slash and service(provider) is not None:
        update = {"provider": provider, "name": model, "base_url": ""}
    chosen = settings.model.model_copy(update={k: v or None for k, v in update.items()})
    return _route(settings.model_copy(update={"model": chosen}))


def _store(given: SessionStore | str | Path | None, settings: Settings, home: Path) -> SessionStore:
    if isinstance(given, SessionStore):
        return given
    return open_store(given) if given is not None else open_user_store(settings, home)


def _route(settings: Settings, *, api_key: str | None = None, api_mode: str | None = None) -> Route:
    """Where calls go: what the settings say, else the first key found, else the embedded model."""
    if settings.model.provider != "local":
        found = main_route(settings, lookup=api_key_for, api_key=api_key, api_mode=api_mode)
        if found is not None:
            return found
    return Route((embedded_endpoint(settings.model.name or DEFAULT_MODEL),))


def _route_of_client(client: Any, settings: Settings, api_mode: Any) -> Route:
    return Route((endpoint_of(client, settings.model.name or "", api_mode),))
