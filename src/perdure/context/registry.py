"""Find context engines by name; fall back to the built-in one when a plug-in fails."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from perdure.context.compaction_input import tokens_of
from perdure.context.compressor_state import LEAST_SAVED
from perdure.context.engine import (
    Compaction,
    ContextEngine,
    EngineServices,
    Reason,
    StartReason,
    Steps,
    is_async,
    run_steps_here,
)
from perdure.core.arguments import FACTORY, NAME, check_arguments
from perdure.core.concurrency import call_foreign, describe_error
from perdure.core.errors import EngineNotFound, PluginBroken
from perdure.core.messages import Entry
from perdure.core.usage import CanonicalUsage
from perdure.models.tokens import estimate_message
from perdure.models.windows import window_budgets
from perdure.plugins import Factory, PluginRegistry, Started

T = TypeVar("T")


# After this many passes in a row that fail or free too little while the prompt does not fit, the fallback takes over.
MAX_FAILED_PASSES = 2


class FallbackEngine(ContextEngine):
    """Delegates to a plug-in's engine, and to the engine that `make_fallback` returns once the plug-in has failed.

    A failure is an exception of a method (except `compress` and tools), a result of `compress` that is no plan, or
    repeated passes that raise or free too little while the prompt does not fit the window.
    """

    def __init__(self, engine: ContextEngine, make_fallback: Callable[[], ContextEngine]) -> None:
        self.name = engine.name
        self._engine = engine
        self._make_fallback = make_fallback
        self._is_fallback = False
        # `compress` may run in a worker thread while the agent's thread calls the other methods.
        self._lock = threading.Lock()
        self._notices: list[str] = []
        # Replayed to the fallback when it takes over.
        self._session_id: str | None = None
        self._services: EngineServices | None = None
        self._replay_model: Callable[[ContextEngine], None] | None = None
        self._largest_prompt: int | None = None
        self._prompt_tokens = 0
        self._failed_passes = 0

    def update_from_response(self, usage: CanonicalUsage) -> None:
        self._call("update_from_response", lambda e: e.update_from_response(usage))

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self._prompt_tokens = prompt_tokens or 0
        return self._call("should_compress", lambda e: e.should_compress(prompt_tokens))

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        return run_steps_here(self.compress_steps(messages, focus_topic=focus_topic, reason=reason))

    def compress_steps(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Steps[Compaction]:
        engine = self._engine
        if self._is_fallback:
            return (yield from engine.compress_steps(messages, focus_topic=focus_topic, reason=reason))
        try:
            compaction = yield from engine.compress_steps(messages, focus_topic=focus_topic, reason=reason)
        except PluginBroken as error:
            why = f"failed in compress: {error}"
        except Exception as error:  # a plug-in may raise anything
            if not self._counts_as_failed(reason):
                raise
            why = f"failed in compress: {describe_error(error)}"
        else:
            if _is_effective(compaction, messages):
                self._failed_passes = 0
                return compaction
            if not self._counts_as_failed(reason):
                return compaction
            why = "freed too little in repeated passes while the prompt no longer fits the window"
        self._hand_over(engine, why)
        return (yield from self._engine.compress_steps(messages, focus_topic=focus_topic, reason=reason))

    def has_content_to_compress(self, messages: Sequence[Entry]) -> bool:
        return self._call("has_content_to_compress", lambda e: e.has_content_to_compress(messages))

    def observe(self, entries: Sequence[Entry]) -> None:
        self._call("observe", lambda e: e.observe(entries))

    def on_session_start(
        self,
        session_id: str,
        *,
        reason: StartReason = "new",
        previous: str | None = None,
        services: EngineServices | None = None,
    ) -> None:
        self._session_id, self._services = session_id, services or self._services

        def start(engine: ContextEngine) -> None:
            needs_plain = services is not None and not self._is_fallback and not is_async(engine.compress)
            suited = services.for_threads() if services is not None and needs_plain else services
            engine.on_session_start(session_id, reason=reason, previous=previous, services=suited)

        self._call("on_session_start", start)

    def on_session_end(self, session_id: str) -> None:
        self._call("on_session_end", lambda e: e.on_session_end(session_id))
        self._session_id = None

    def update_model(
        self, *, context_length: int, model: str = "", provider: str = "", max_tokens: int | None = None
    ) -> None:
        def update(engine: ContextEngine) -> None:
            engine.update_model(context_length=context_length, model=model, provider=provider, max_tokens=max_tokens)

        self._replay_model = update
        self._largest_prompt = window_budgets(context_length, max_tokens=max_tokens).largest_prompt_tokens
        self._call("update_model", update)

    def take_notices(self) -> Sequence[str]:
        own = self._call("take_notices", lambda e: list(e.take_notices()))
        notices, self._notices = [*self._notices, *own], []
        return notices

    def get_tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return self._call("get_tool_schemas", lambda e: e.get_tool_schemas())

    def ordered_tools(self) -> Collection[str]:
        return self._call("ordered_tools", lambda e: e.ordered_tools())

    def handle_tool_call(self, name: str, arguments: Mapping[str, Any]) -> str | Awaitable[str]:
        # What a tool raises becomes a tool result that the model reads: no reason to replace the engine.
        return self._engine.handle_tool_call(name, arguments)

    def _call(self, method: str, call: Callable[[ContextEngine], T]) -> T:
        engine = self._engine
        try:
            return call_foreign(call, engine)
        except Exception as error:  # a plug-in may raise anything
            if self._is_fallback and engine is self._engine:
                raise
            self._hand_over(engine, f"failed in {method}: {describe_error(error)}")
            return call(self._engine)

    def _counts_as_failed(self, reason: Reason) -> bool:
        """Count a pass that freed too little while the prompt does not fit; return True after too many in a row."""
        is_over = self._largest_prompt is not None and self._prompt_tokens >= self._largest_prompt
        if is_over or reason == "overflow":
            self._failed_passes += 1
        return self._failed_passes >= MAX_FAILED_PASSES

    def _hand_over(self, failed: ContextEngine, why: str) -> None:
        """Replace the failed engine by the fallback, unless another thread already has."""
        with self._lock:
            if self._engine is not failed:
                return
            fallback = self._make_fallback()
            if self._session_id is not None:
                fallback.on_session_start(self._session_id, reason="resume", services=self._services)
            if self._replay_model is not None:
                self._replay_model(fallback)
            self._notices.append(
                f"Context engine {self.name!r} {why}. Using {fallback.name!r} instead until the next start."
            )
            self.name, self._engine, self._is_fallback = fallback.name, fallback, True


def _is_effective(compaction: Compaction, messages: Sequence[Entry]) -> bool:
    """Whether a compaction frees enough, by our own estimate."""
    if compaction.is_noop:
        return False
    before = sum(map(tokens_of, messages))
    after = sum(
        tokens_of(item) if isinstance(item, Entry) else estimate_message(item) for item in compaction.apply(messages)
    )
    return after <= (1 - LEAST_SAVED) * before


BUILT_IN = "compressor"
WINDOWS_ENGINE = "windows"
_BUILT_INS = {
    BUILT_IN: "perdure.context.compressor:ContextCompressor",
    WINDOWS_ENGINE: "perdure.context.notebook_engine:WindowEngine",
}
ENTRY_POINTS = "perdure.context_engines"
FOLDER = Path("plugins") / "context_engine"

_ENGINES = PluginRegistry(
    "context engine",
    None,
    ENTRY_POINTS,
    builtins=_BUILT_INS,
    expects=ContextEngine,
    not_found=EngineNotFound,
)


@check_arguments(name=NAME, factory=FACTORY)
def register_context_engine(name: str, factory: Callable[[], ContextEngine] | str) -> None:
    """Register an engine under a name; `factory` is its class, or "module:Class" to import it when selected."""
    _ENGINES.register(name, factory)


def engines(home: Path | None = None) -> PluginRegistry:
    """Return the registry of all context engines for a home folder."""
    return _ENGINES.within(home / FOLDER if home is not None else None)


def start_engine(name: str, *, home: Path | None = None) -> Started[ContextEngine]:
    """Create the engine of that name; a missing or broken one is replaced by the built-in, with a warning.

    A plug-in that fails later hands over to the built-in as well.
    """
    registry = engines(home)
    started = registry.start(name, default=BUILT_IN, build=_make)
    if started.name in _BUILT_INS:
        return started
    return replace(started, value=FallbackEngine(started.value, lambda: _make(registry.load(BUILT_IN))))


def _make(factory: Factory) -> ContextEngine:
    engine = factory()
    if not isinstance(engine, ContextEngine):
        raise PluginBroken(f"{factory!r} makes a {type(engine).__name__}, not a perdure.ContextEngine")
    return engine
