"""Find context engines by name; fall back to the built-in one when a plug-in fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from perdure.context.engine import Compaction, ContextEngine, EngineServices, Reason, StartReason
from perdure.core.errors import EngineNotFound, PluginBroken
from perdure.core.foreign_code import call_foreign, describe_error
from perdure.core.messages import Entry, Message
from perdure.core.usage import CanonicalUsage
from perdure.plugins import Factory, PluginRegistry, Started

T = TypeVar("T")


class GuardedEngine(ContextEngine):
    """Passes everything on to `engine`, and once it raised where a turn would end of it, to what `make_spare` makes."""

    def __init__(self, engine: ContextEngine, make_spare: Callable[[], ContextEngine]) -> None:
        self.name = engine.name
        self._engine = engine
        self._make_spare = make_spare
        self._is_spare = False
        self._notices: list[str] = []
        # What the spare must be told to stand where the engine stood.
        self._session_id: str | None = None
        self._services: EngineServices | None = None
        self._tell_model: Callable[[ContextEngine], None] | None = None

    def update_from_response(self, usage: CanonicalUsage) -> None:
        self._ask("update_from_response", lambda e: e.update_from_response(usage))

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return self._ask("should_compress", lambda e: e.should_compress(prompt_tokens))

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction | Sequence[Message]:
        # Whoever asks tells of a compaction that failed and has its own way on: no reason to replace the engine.
        return self._engine.compress(messages, focus_topic=focus_topic, reason=reason)

    def has_content_to_compress(self, messages: Sequence[Entry]) -> bool:
        return self._ask("has_content_to_compress", lambda e: e.has_content_to_compress(messages))

    def observe(self, entries: Sequence[Entry]) -> None:
        self._ask("observe", lambda e: e.observe(entries))

    def on_session_start(
        self,
        session_id: str,
        *,
        reason: StartReason = "new",
        previous: str | None = None,
        services: EngineServices | None = None,
    ) -> None:
        self._session_id, self._services = session_id, services or self._services
        self._ask(
            "on_session_start",
            lambda e: e.on_session_start(session_id, reason=reason, previous=previous, services=services),
        )

    def on_session_end(self, session_id: str) -> None:
        self._ask("on_session_end", lambda e: e.on_session_end(session_id))
        self._session_id = None

    def update_model(
        self, *, context_length: int, model: str = "", provider: str = "", max_tokens: int | None = None
    ) -> None:
        def tell(engine: ContextEngine) -> None:
            engine.update_model(context_length=context_length, model=model, provider=provider, max_tokens=max_tokens)

        self._tell_model = tell
        self._ask("update_model", tell)

    def take_notices(self) -> Sequence[str]:
        theirs = self._ask("take_notices", lambda e: list(e.take_notices()))
        notices, self._notices = [*self._notices, *theirs], []
        return notices

    def get_tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return self._ask("get_tool_schemas", lambda e: e.get_tool_schemas())

    def handle_tool_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        # Whatever a tool raises becomes a result that the model reads: no reason to replace the engine.
        return self._engine.handle_tool_call(name, arguments)

    def _ask(self, method: str, call: Callable[[ContextEngine], T]) -> T:
        try:
            return call_foreign(call, self._engine)
        except Exception as error:  # a stranger's code may raise anything
            if self._is_spare:
                raise
            self._hand_over(method, error)
            return call(self._engine)

    def _hand_over(self, method: str, error: Exception) -> None:
        spare = self._make_spare()
        self._notices.append(
            f"Context engine {self.name!r} failed in {method}: {describe_error(error)}."
            f" Using {spare.name!r} instead until the next start."
        )
        if self._session_id is not None:
            spare.on_session_start(self._session_id, reason="resume", services=self._services)
        if self._tell_model is not None:
            self._tell_model(spare)
        self.name, self._engine, self._is_spare = spare.name, spare, True


BUILT_IN = "compressor"
ENTRY_POINTS = "perdure.context_engines"
FOLDER = Path("plugins") / "context_engine"

_ENGINES = PluginRegistry(
    "context engine",
    None,
    ENTRY_POINTS,
    builtins={BUILT_IN: "perdure.context.compressor:ContextCompressor"},
    expects=ContextEngine,
    not_found=EngineNotFound,
)


def register_context_engine(name: str, factory: Callable[[], ContextEngine] | str) -> None:
    """Makes an engine available under a name; `factory` is its class, or "module:Class" to import it when chosen."""
    _ENGINES.register(name, factory)


def engines(home: Path | None = None) -> PluginRegistry:
    """Every engine there is for a home folder; `names()` lists them and `load()` refuses an unknown one."""
    return _ENGINES.within(home / FOLDER if home is not None else None)


def start_engine(name: str, *, home: Path | None = None) -> Started[ContextEngine]:
    """The engine of that name, made; one that is gone or broken becomes the built-in, with a warning to show.

    A plug-in's that breaks later, at work, hands over to the built-in as well.
    """
    registry = engines(home)
    started = registry.start(name, default=BUILT_IN, build=_make)
    if started.name == BUILT_IN:
        return started
    return replace(started, value=GuardedEngine(started.value, lambda: _make(registry.load(BUILT_IN))))


def _make(factory: Factory) -> ContextEngine:
    engine = factory()
    if not isinstance(engine, ContextEngine):
        raise PluginBroken(f"{factory!r} makes a {type(engine).__name__}, not a perdure.ContextEngine")
    return engine
