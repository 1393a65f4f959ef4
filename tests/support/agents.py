"""Agents wired by hand against the simulator: a real store, the real engine, scripted replies, any window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perdure.agent.agent import ConversationAgent
from perdure.agent.deps import AgentDeps
from perdure.agent.prompt import PromptSources
from perdure.agent.recall import to_provider
from perdure.agent.runner import LoopThread
from perdure.agent.session import LiveSession
from perdure.config.settings import Settings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import ContextEngine, EngineServices
from perdure.core.concurrency import SystemClock
from perdure.core.ports import Clock, Summarize
from perdure.core.usage import CanonicalUsage
from perdure.models.tokens import CalibrationStore
from perdure.models.windows import Window
from perdure.providers.credentials import Credentials
from perdure.providers.routes import EndpointChain, RouteCursor
from perdure.providers.transport import Retries, Transport
from perdure.providers.types import ApiMode, Endpoint
from perdure.store.encoding import TimeIds
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import Simulator, strict
from perdure.tools.builtin.memory import FileMemory
from perdure.tools.runtime import ToolRuntime
from perdure.tools.tool import ToolRegistry
from support.simulator import endpoint

PROMPT = "You are a careful assistant."


@dataclass
class KnownModels:
    """Windows as the test says; limits learned are kept, a token costs a millionth of a dollar."""

    window_tokens: int = 32_000
    # Other windows, by model.
    windows: dict[str, int] = field(default_factory=dict)
    learned: list[int] = field(default_factory=list)
    output_caps: dict[str, int] = field(default_factory=dict)

    async def window(self, endpoint: Endpoint) -> Window:
        return Window(self.windows.get(endpoint.model, self.window_tokens), "config")

    def output_cap_of(self, endpoint: Endpoint) -> int | None:
        return self.output_caps.get(endpoint.model)

    def learn_limits(self, endpoint: Endpoint, *, window: int | None = None, output: int | None = None) -> None:
        if window is not None:
            self.learned.append(window)
            self.windows[endpoint.model] = window
        if output is not None:
            self.output_caps[endpoint.model] = output

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        return usage.total_tokens / 1e6

    def takes_tools(self, endpoint: Endpoint) -> bool:
        return True


@dataclass
class Bench:
    """An agent and everything around it that a test looks at."""

    agent: ConversationAgent
    sim: Simulator
    store: SessionStore
    models: KnownModels
    deps: AgentDeps
    again: Callable[..., ConversationAgent]
    # The loop its turns run in.
    loop_thread: LoopThread


@contextmanager
def bench(
    folder: Path,
    *script: Any,
    mode: ApiMode = "chat_completions",
    window: int = 32_000,
    tools: Any = (),
    settings: Settings | None = None,
    fallbacks: tuple[Endpoint, ...] = (),
    model: str = "m-1",
    provider: str = "custom",
    key_command: str | None = None,
    recall: Callable[[str], str] = lambda text: "",
    summarize: Summarize | None = None,
    keeps_outputs: bool = False,
    engine: Callable[[], ContextEngine] | None = None,
    models: KnownModels | None = None,
    clock: Clock | None = None,
    database: str | None = None,
    calibrates: bool = False,
    **rules: Any,
) -> Iterator[Bench]:
    """An agent over a fresh store, talking to a simulator that answers by script and knows no mercy.

    The script is a row of steps, or one function from request to step.
    """
    steps = script[0] if len(script) == 1 and callable(script[0]) else script
    with Simulator(strict(), script=steps, window=rules.pop("sim_window", window), **rules) as sim:
        clock = clock or SystemClock()
        store = open_store(database or folder / "perdure.db", clock=clock)
        models = models or KnownModels(window)
        main = replace(endpoint(sim, mode, model=model), provider=provider)
        route = EndpointChain((main, *(replace(f, base_url=main.base_url) for f in fallbacks)))
        transport = Transport(retries=Retries(attempts=1))

        def make_deps() -> AgentDeps:
            chosen = settings or Settings()
            return AgentDeps(
                store=store,
                send=transport.send,
                routes=RouteCursor(route, Credentials(key_command)),
                models=models,
                engine=engine() if engine else ContextCompressor(context_length=window, settings=chosen.compression),
                tools=ToolRuntime(ToolRegistry(tools), clock=clock, outputs=store.outputs if keeps_outputs else None),
                memory=FileMemory(folder / "memory"),
                prompt_sources=lambda memory: PromptSources(PROMPT, memory=memory),
                settings=chosen,
                clock=clock,
                ids=TimeIds(clock),
                recall=to_provider(recall),
                calibrations=CalibrationStore(store.state("calibrations")) if calibrates else None,
            )

        loop_thread = LoopThread()
        deps = make_deps()

        def again(session_id: str | None = None, **options: Any) -> ConversationAgent:
            new = make_deps()
            return ConversationAgent(new, loop_thread, services=services, session_id=session_id, **options)

        def services(live: LiveSession) -> EngineServices:
            state = store.state(f"engine:{live.conversation_id}")
            log = store.log.reader(live.conversation_id)
            return EngineServices(summarize=summarize, settings=deps.settings.compression, state=state, log=log)

        agent = ConversationAgent(deps, loop_thread, services=services)
        try:
            yield Bench(agent, sim, store, models, deps, again, loop_thread)
        finally:
            agent.close()
            loop_thread.run(transport.aclose())
            store.close()
