"""Dependencies of an agent, injected by `perdure.app`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perdure.agent.prompt import PromptSources
from perdure.context.engine import ContextEngine, RunInThread
from perdure.core.foreign_code import run_shielded
from perdure.core.ports import Clock, Memory, MemorySnapshot
from perdure.core.usage import CanonicalUsage
from perdure.models.counter import Calibration, Calibrations
from perdure.models.windows import Window
from perdure.providers.routes import RouteCursor
from perdure.providers.types import Delta, Endpoint, ModelRequest, Reply
from perdure.store.ids import IdSource
from perdure.store.store import SessionStore
from perdure.tools.runtime import ToolRuntime

if TYPE_CHECKING:
    from perdure.config.settings import Settings

# Every call moves the ratio a little; a change below this moves no decision.
_RATIO_STEP = 0.02


class Send(Protocol):
    """Send one request. Raises ProviderError; cancelling closes the connection."""

    async def __call__(
        self, endpoint: Endpoint, request: ModelRequest, *, on_event: Callable[[Delta], None] | None = None
    ) -> Reply: ...


class Models(Protocol):
    """Model information: windows, limits and prices."""

    async def window(self, endpoint: Endpoint) -> Window:
        """The context window and where its figure comes from; may ask the endpoint, briefly, once."""
        ...

    def output_cap_of(self, endpoint: Endpoint) -> int | None:
        """The most output tokens the endpoint accepted after refusing more; None where it never did."""
        ...

    def learn_limits(self, endpoint: Endpoint, *, window: int | None = None, output: int | None = None) -> None:
        """Persist limits that the provider stated or accepted for this model and endpoint."""
        ...

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        """The cost of a call; None if the price is unknown."""
        ...

    def takes_tools(self, endpoint: Endpoint) -> bool:
        """Whether the model supports tool calls."""
        ...


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """Everything a turn depends on."""

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
    calibrations: Calibrations | None = None
    # Passages worth having beside a new user message, "" where nothing comes to mind; None: nothing ever does.
    recall: Callable[[str], str] | None = None
    # Runs blocking work, such as store writes, in a worker thread.
    keep: RunInThread = run_shielded
    user_key: str = ""
    # Which chat of a gateway a new conversation belongs to.
    chat_key: str = ""
    source: str = "library"
    prompts_folder: Path | None = None

    @property
    def calibration(self) -> Calibration | None:
        """Token calibration of the current model."""
        endpoint = self.routes.endpoint
        return self.calibrations.get(endpoint.provider, endpoint.model) if self.calibrations is not None else None

    def keep_calibration(self, endpoint: Endpoint, learned: Calibration) -> None:
        """Persist a changed calibration for later conversations; skips negligible changes."""
        if self.calibrations is None:
            return
        previous = self.calibrations.get(endpoint.provider, endpoint.model)
        is_news = abs(learned.ratio - previous.ratio) >= _RATIO_STEP or learned.image_tokens != previous.image_tokens
        if is_news:
            self.calibrations.keep(endpoint.provider, endpoint.model, learned)
