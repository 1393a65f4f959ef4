"""Dependencies of an agent, injected by `perdure.app`, and the context engine's tools among the agent's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from perdure.agent.prompt import PromptSources
from perdure.context.engine import ContextEngine, RunInThread
from perdure.core.concurrency import run_shielded
from perdure.core.ports import Clock, ImageDescriber, Memory, MemorySnapshot, RecallProvider
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import EVERYONE, OWNER, AnyUser, User, Visibility
from perdure.models.tokens import Calibration, CalibrationStore
from perdure.models.windows import Window
from perdure.providers.routes import RouteCursor
from perdure.providers.types import Endpoint, ModelRequest, Reply, RequestEvent
from perdure.store.encoding import IdSource
from perdure.store.store import SessionStore
from perdure.tools.runtime import ToolRuntime
from perdure.tools.tool import Tool, ToolRegistry

if TYPE_CHECKING:
    from perdure.config.settings import Settings


class Send(Protocol):
    """Send one request. Raises ProviderError; cancelling closes the connection."""

    async def __call__(
        self, endpoint: Endpoint, request: ModelRequest, *, on_event: Callable[[RequestEvent], None] | None = None
    ) -> Reply: ...


class Models(Protocol):
    """Model information (port): context windows, output limits, prices and capabilities by endpoint."""

    async def window(self, endpoint: Endpoint) -> Window:
        """Return the context window and where its figure comes from; may ask the endpoint, briefly, once."""
        ...

    def output_cap_of(self, endpoint: Endpoint) -> int | None:
        """Return the most output tokens the endpoint accepted after refusing more; None where it never did."""
        ...

    def learn_limits(self, endpoint: Endpoint, *, window: int | None = None, output: int | None = None) -> None:
        """Persist limits that the provider stated or accepted for this model and endpoint."""
        ...

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        """Return the cost of a call; None if the price is unknown."""
        ...

    def takes_tools(self, endpoint: Endpoint) -> bool:
        """Whether the model supports tool calls."""
        ...


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """Everything an agent is given: store, provider, context engine, tools, memory, settings, clock."""

    store: SessionStore
    send: Send
    routes: RouteCursor
    models: Models
    engine: ContextEngine
    tools: ToolRuntime
    memory: Memory
    # The sources of a system prompt, with the memory as it is now.
    prompt_sources: Callable[[MemorySnapshot], PromptSources]
    settings: Settings
    clock: Clock
    ids: IdSource
    # What real usage taught about each model; None where nothing is kept beyond the conversation.
    calibrations: CalibrationStore | None = None
    # Background for new user messages; None: none is attached.
    recall: RecallProvider | None = None
    # Describes images for a model that takes none; None: they are sent as they are.
    vision: ImageDescriber | None = None
    # Runs blocking work, such as store writes, in a worker thread.
    run_blocking: RunInThread = run_shielded
    user: AnyUser = OWNER
    # Which chat of a gateway a new conversation belongs to.
    chat_key: str = ""
    source: str = "library"
    # Whether a program uses the agent, which cannot type commands.
    is_library: bool = False
    prompts_folder: Path | None = None

    @property
    def visibility(self) -> Visibility:
        """The conversations the agent may open by their id: its user's; the machine's owner has the whole database."""
        return self.user if isinstance(self.user, User) else EVERYONE

    @property
    def calibration(self) -> Calibration | None:
        """The stored correction of the token estimate for the current model; None without a calibration store."""
        endpoint = self.routes.endpoint
        return self.calibrations.get(endpoint.provider, endpoint.model) if self.calibrations is not None else None


TOOLSET = "context_engine"


def join_engine_tools(registry: ToolRegistry, engine: ContextEngine) -> list[str]:
    """Add the context engine's tools to the registry, except where the user has a tool of that name.

    Returns a line for each tool that was left out.
    """
    left_out = []
    for schema in engine.get_tool_schemas():
        function = schema.get("function", schema)
        name = str(function.get("name", ""))
        if name in registry and registry.find(name).toolset != TOOLSET:
            left_out.append(f"the context engine's tool {name!r} was left out: another tool has that name")
            continue
        try:
            registry.add(_tool(name, function, engine))
        except ValueError as error:  # a plug-in's slip must not end the conversation
            left_out.append(f"a tool of the context engine was left out: {error}")
    return left_out


def _tool(name: str, function: Mapping[str, Any], engine: ContextEngine) -> Tool:
    return Tool(
        name=name,
        description=str(function.get("description", "")),
        parameters=function.get("parameters") or {"type": "object", "properties": {}},
        handler=_handler(name, engine),
        toolset=TOOLSET,
        is_read_only=True,
        is_ordered=name in engine.ordered_tools(),
    )


def _handler(name: str, engine: ContextEngine) -> Callable[..., str | Awaitable[str]]:
    def handle(**arguments: Any) -> str | Awaitable[str]:
        return engine.handle_tool_call(name, arguments)

    return handle
