"""The turn's own cost per model call, at growing lengths of history: all but network, tools and JSON encoding."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.table import Row
from perdure.agent.agent import ConversationAgent
from perdure.agent.deps import AgentDeps
from perdure.agent.prompt import PromptSources
from perdure.agent.runner import LoopThread
from perdure.config.settings import Settings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import EngineServices
from perdure.core.concurrency import SystemClock
from perdure.core.messages import assistant
from perdure.core.usage import CanonicalUsage
from perdure.models.windows import Window
from perdure.providers.routes import EndpointChain, RouteCursor
from perdure.providers.types import Delta, Endpoint, ModelRequest, Reply
from perdure.store.encoding import TimeIds
from perdure.store.store import SessionStore, open_store
from perdure.tools.builtin.memory import FileMemory
from perdure.tools.runtime import ToolRuntime
from perdure.tools.tool import ToolRegistry

TITLE = "The turn: own overhead per call"
WINDOW = 100_000_000


def rows() -> Iterator[Row]:
    costs = {}
    for count in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            store = open_store(Path(folder) / "perdure.db")
            costs[count] = _median_ms(_agent(store, Path(folder), count))
            store.close()
        yield Row(f"overhead per call at {count:,} messages of history", costs[count], "ms", "< 6")
    yield Row("growth from 1,000 to 10,000 messages", costs[10_000] / costs[1_000], "×", "< 1.5")


def _agent(store: SessionStore, folder: Path, count: int) -> ConversationAgent:
    session = store.create(system_prompt="You are a careful assistant.")
    texts = ["a question about the code", "an answer with a path such as src/perdure/agent/turn.py in it"]
    history = [{"role": ("user", "assistant")[i % 2], "content": f"{texts[i % 2]} {i} " * 8} for i in range(count)]
    store.append(session.id, history)
    clock = SystemClock()
    deps = AgentDeps(
        store=store,
        send=_answer,
        routes=RouteCursor(EndpointChain((Endpoint("custom", "http://127.0.0.1:1", "chat_completions", "m"),))),
        models=_Models(),
        engine=ContextCompressor(context_length=WINDOW),
        tools=ToolRuntime(ToolRegistry(), clock=clock),
        memory=FileMemory(folder / "memory"),
        prompt_sources=lambda memory: PromptSources("me", memory=memory),
        settings=Settings(),
        clock=clock,
        ids=TimeIds(clock),
    )
    return ConversationAgent(deps, LoopThread(), services=lambda live: EngineServices(), session_id=session.id)


async def _answer(
    endpoint: Endpoint, request: ModelRequest, *, on_event: Callable[[Delta], None] | None = None
) -> Reply:
    """A service that takes no time at all."""
    return Reply(assistant("Yes."), CanonicalUsage(input_tokens=1_000, output_tokens=2), "stop")


class _Models:
    async def window(self, endpoint: Endpoint) -> Window:
        return Window(WINDOW, "config")

    def output_cap_of(self, endpoint: Endpoint) -> int | None:
        return None

    def learn_limits(self, endpoint: Endpoint, *, window: int | None = None, output: int | None = None) -> None: ...

    def cost_usd(self, endpoint: Endpoint, usage: CanonicalUsage) -> float | None:
        return None

    def takes_tools(self, endpoint: Endpoint) -> bool:
        return True


def _median_ms(agent: Any, turns: int = 60) -> float:
    agent.run_conversation("warm up")
    times = []
    for i in range(turns):
        start = time.process_time()
        agent.run_conversation(f"question {i}")
        times.append(time.process_time() - start)
    return median(times) * 1_000
