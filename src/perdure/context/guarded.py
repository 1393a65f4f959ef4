"""A plug-in's engine whose slips never end a turn (M2): at the first one the built-in takes over, and says so.

An engine runs at every step of every turn. One that raises there would keep its user out of the conversation as surely
as one that cannot be loaded, so it is treated alike: the built-in instead, with a warning that names what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from perdure.context.engine import Compaction, ContextEngine, EngineServices, Reason, StartReason
from perdure.core.foreign import call_foreign, describe_error
from perdure.core.messages import Entry, Message
from perdure.core.usage import CanonicalUsage

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
