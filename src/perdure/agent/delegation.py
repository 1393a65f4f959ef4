"""Run delegated child agents (the Spawner port), and store the task list of the `todo` tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from perdure.agent.deps import AgentDeps, join_engine_tools
from perdure.agent.session import LiveSession
from perdure.agent.turn import OpenConversation, Turn
from perdure.context.engine import ContextEngine, EngineServices
from perdure.core.events import (
    Emit,
    Event,
    HelperFinished,
    HelperStarted,
    Notice,
    Outcome,
    ToolFinished,
    ToolOutput,
    ToolStarted,
)
from perdure.core.messages import user
from perdure.store.records import RouteRecord
from perdure.store.store import SessionStore
from perdure.tools.runtime import ToolRuntime


class StoredPlans:
    """Loads and saves the task list of the `todo` tool, which is stored with its conversation."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def load(self, conversation_id: str) -> Sequence[Any]:
        try:
            items = json.loads(self._store.conversations.get(conversation_id).todo or "[]")
        except ValueError:
            return []
        return items if isinstance(items, list) else []

    def save(self, conversation_id: str, items: Sequence[Any]) -> None:
        self._store.conversations.set_todo(conversation_id, json.dumps(list(items), ensure_ascii=False))


# Not offered to a child: it has no user to ask, and delegation does not nest.
WITHHELD = ("clarify", "delegate_task")


class Children:
    """Runs delegated child agents with the dependencies of their parent, each with its own engine and session."""

    def __init__(
        self,
        deps: AgentDeps,
        *,
        parent_id: str,
        make_engine: Callable[[], ContextEngine],
        services: Callable[[LiveSession], EngineServices],
        emit: Emit,
    ) -> None:
        self._deps = deps
        self._parent_id = parent_id
        self._make_engine = make_engine
        self._services = services
        self._emit = emit

    async def spawn(self, task: str, *, context: str = "", max_iterations: int | None = None) -> str:
        """Run a child agent to the end of one turn and return its report; if it fails, the report has the error."""
        deps = self._child_deps(max_iterations)
        live = await deps.run_blocking(partial(self._open, deps))
        message = user(f"{context.strip()}\n\n{task}".strip() if context.strip() else task)
        helper, started_s = live.conversation_id, deps.clock.monotonic_s()
        conversation = OpenConversation(deps, live, partial(self._hear, helper))
        self._emit(HelperStarted(helper, task))
        outcome: Outcome = "interrupted"
        try:
            result = await Turn(deps, conversation, task_id=deps.ids.new("t_")).run(message)
            outcome = result.outcome
        finally:
            self._emit(HelperFinished(helper, outcome, deps.clock.monotonic_s() - started_s))
        deps.engine.on_session_end(live.id)
        if result.outcome == "failed":
            return f"The helper failed: {result.error}"
        note = " (it stopped at its step limit)" if result.outcome == "budget" else ""
        return f"{result.final_response}{note}"

    def _open(self, deps: AgentDeps) -> LiveSession:
        """Create the child's session. For a worker thread."""
        endpoint = deps.routes.endpoint
        session = deps.store.conversations.delegate(
            self._parent_id,
            system_prompt=deps.store.conversations.session(self._parent_id).system_prompt,
            route=RouteRecord(endpoint.provider, endpoint.model, endpoint.api_mode),
        )
        live = LiveSession(deps, deps.store.history(session.id))
        deps.engine.on_session_start(session.id, reason="new", services=self._services(live))
        join_engine_tools(deps.tools.registry, deps.engine)
        live.offer_tools()
        return live

    def _child_deps(self, max_iterations: int | None) -> AgentDeps:
        deps = self._deps
        settings = deps.settings
        if max_iterations is not None:
            agent = settings.agent.model_copy(update={"max_turns": max_iterations})
            settings = settings.model_copy(update={"agent": agent})
        registry = deps.tools.registry.without(*WITHHELD)
        tools = ToolRuntime(
            registry,
            clock=deps.clock,
            output_limiter=deps.tools.output_limiter,
            outputs=deps.tools.outputs,
            hooks=deps.tools.hooks,
            guard=deps.tools.guard,
            checkpoints=deps.tools.checkpoints,
            workspace=deps.tools.workspace,
            copies=deps.tools.copies,
            deferred=deps.tools.deferred,
        )
        engine, routes = self._make_engine(), deps.routes.fork()
        return replace(deps, settings=settings, engine=engine, routes=routes, tools=tools, source="delegate")

    def _hear(self, helper: str, event: Event) -> None:
        """Forward a child's tool events under its id, and its notices.

        Its text is not forwarded: only its report is used.
        """
        if isinstance(event, ToolStarted | ToolOutput | ToolFinished):
            self._emit(replace(event, helper=helper))
        elif isinstance(event, Notice):
            self._emit(event)
