"""`perdure.Agent`: one conversation, configured by your settings."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec

from perdure.agent.callbacks import BlockingApprover, CallbackApprover, CallbackAsker, Callbacks
from perdure.config.env import home_dir
from perdure.core.arguments import (
    FUNCTION,
    ID,
    LABEL,
    NAME,
    PATH,
    SECRET_TEXT,
    TASK_ID,
    TEXT,
    USER_KEY,
    ArgumentKind,
    check_arguments,
    has_method,
    optional,
    require,
    require_all,
    with_description,
)
from perdure.core.concurrency import run_foreign
from perdure.core.errors import ConfigError, InvalidMessage, PerdureError
from perdure.core.ports import Approver, Asker, Memory, RecallProvider
from perdure.core.visibility import OWNER, User

if TYPE_CHECKING:
    from perdure.agent.agent import ConversationAgent
    from perdure.agent.context_usage import ContextUsage
    from perdure.agent.deps import AgentDeps
    from perdure.agent.runner import EventBus
    from perdure.agent.turn import ConversationResult, OpenConversation
    from perdure.app.build import AnyTools
    from perdure.config.settings import Settings
    from perdure.context.engine import CompactionReport
    from perdure.core.events import Event
    from perdure.providers.local import OnProgress
    from perdure.providers.routes import EndpointChain
    from perdure.providers.types import Endpoint
    from perdure.store.store import SessionStore

# Settings, providers and tools are imported by the functions below, when the first agent is created: a program that
# only refers to `perdure.Agent` starts in less than half the time.

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")


def _is_settings(value: object) -> bool:
    from perdure.config.settings import Settings

    return isinstance(value, Mapping | Settings)


# What is not here is checked where it is used, before the first turn: store, tools, client, recall and memory.
_ARGUMENTS = {
    "model": optional(with_description(NAME, "a model's name, as a text that is not empty")),
    "provider": optional(with_description(NAME, "a provider's name, as a text that is not empty")),
    "base_url": optional(TEXT),
    "api_key": optional(SECRET_TEXT),
    "api_mode": optional(TEXT),
    "settings": optional(ArgumentKind("a dict like {'compression': {'threshold': 0.5}}", _is_settings)),
    "session_id": optional(ID),
    "callbacks": optional(ArgumentKind("a dict of functions by name", lambda v: isinstance(v, Mapping | Callbacks))),
    "system_prompt": optional(TEXT),
    "home": optional(PATH),
    "on_progress": optional(FUNCTION),
    "source": LABEL,
    "user_key": optional(USER_KEY),
    "approver": optional(has_method("approve")),
    "asker": optional(has_method("ask")),
}

_MODEL_OR_ROUTE = ArgumentKind(
    "a model's name, `name` or `provider/name`", lambda v: NAME.is_valid(v) or hasattr(v, "endpoints")
)


def _check_client(arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for arguments that an SDK client makes ineffective, rather than ignore them."""
    from perdure.providers.sdk_client import sdk_package

    package = sdk_package(arguments["client"])
    ineffective = [name for name in ("base_url", "api_key") if arguments.get(name) is not None]
    if arguments.get("provider") not in (None, package):
        ineffective.insert(0, "provider")
    if ineffective:
        names = ", ".join(f"{name}=" for name in ineffective)
        raise ConfigError(f"client= brings its own service, address and key: leave out {names}, or client=")


def _check_arguments(init: Callable[P, None]) -> Callable[P, None]:
    """Decorate an `__init__`: wrong kinds, names that do not exist and excess positions raise what to write instead."""
    parameters = inspect.signature(init).parameters.values()
    accepted = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

    @functools.wraps(init)
    def check_and_init(*args: P.args, **kwargs: P.kwargs) -> None:
        excess = len(args) - len(accepted)
        for name in kwargs.keys() - {*accepted, *keywords}:
            from difflib import get_close_matches  # imported here: seldom needed

            near = get_close_matches(name, (*accepted[1:], *keywords), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"Agent has no argument {name!r}{hint}")
        if excess > 0:
            by_position, by_name = ", ".join(accepted[1:]), ", ".join(f"{name}=…" for name in keywords[:excess])
            raise TypeError(f"only {by_position} may be passed by position; write Agent({by_position}, {by_name})")
        arguments = {**dict(zip(accepted, args, strict=False)), **kwargs}
        require_all(_ARGUMENTS, arguments)
        if arguments.get("client") is not None:
            _check_client(arguments)
        init(*args, **kwargs)

    return check_and_init


def _approver(approver: Approver | None, callbacks: Callbacks) -> Approver | None:
    """Return who is asked for approval: the callback where there is no approver."""
    if approver is None:
        return None if callbacks.approval_callback is None else CallbackApprover(callbacks.approval_callback)
    return approver if inspect.iscoroutinefunction(approver.approve) else BlockingApprover(approver.approve)


def _asker(asker: Asker | None, callbacks: Callbacks) -> Asker | None:
    """Return who answers the model's questions: the callback where there is no asker."""
    if asker is None:
        return None if callbacks.clarify_callback is None else CallbackAsker(callbacks.clarify_callback)
    return asker if inspect.iscoroutinefunction(asker.ask) else CallbackAsker(asker.ask)


class Agent:
    """One conversation with a model, configured by the user's settings; arguments override them for this agent only."""

    @_check_arguments
    def __init__(
        self,
        model: str | None = None,
        provider: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api_mode: str | None = None,
        client: Any = None,
        settings: Settings | Mapping[str, Any] | None = None,
        store: SessionStore | str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        tools: AnyTools | None = None,
        callbacks: Callbacks | Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        home: str | Path | None = None,
        on_progress: OnProgress | None = None,
        source: str = "library",
        user_key: str | None = None,
        approver: Approver | None = None,
        asker: Asker | None = None,
        recall: RecallProvider | Callable[[str], str] | None = None,
        memory: Memory | None = None,
    ) -> None:
        from perdure.app.build import AgentUser, build_agent
        from perdure.app.runtime import Shared

        configured = {"name": model, "provider": provider, "base_url": base_url}
        folder = Path(home).expanduser() if home is not None else None
        self._is_closed = False
        listeners = callbacks if isinstance(callbacks, Callbacks) else Callbacks.from_mapping(callbacks or {})
        self._shared = Shared(
            _settings(settings, configured, folder),
            home=folder or home_dir(),
            store=store,
            client=client,
            api_key=require("api_key", api_key, _ARGUMENTS["api_key"]),
            api_mode=api_mode,
            on_progress=on_progress,
        )
        self._agent = build_agent(
            self._shared,
            AgentUser(
                source,
                OWNER if user_key is None else User(user_key),
                approver=_approver(approver, listeners),
                asker=_asker(asker, listeners),
            ),
            session_id=session_id,
            tools=tools,
            callbacks=listeners if callbacks is not None else None,
            system_prompt=system_prompt,
            recall=recall,
            memory=memory,
        )
        if self._agent.deps.is_library:
            self._agent.unreported_warnings = list(self._agent.warnings)
            for warning in self._agent.warnings:
                _LOG.warning("%s", warning)

    # -- turns ---------------------------------------------------------------------------------------------------------

    def chat(self, text: str) -> str:
        """Run one turn and return its final response. Raises TurnFailed."""
        return self._open_agent.chat(text)

    async def achat(self, text: str) -> str:
        return await self._open_agent.achat(text)

    @check_arguments(system_message=optional(TEXT), task_id=optional(TASK_ID))
    def run_conversation(
        self,
        user_message: str | Mapping[str, Any],
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        task_id: str | None = None,
    ) -> ConversationResult:
        """Run one turn and return its result; an error of the turn is in the result, not raised."""
        return self._open_agent.run_conversation(user_message, system_message, conversation_history, task_id)

    @check_arguments(system_message=optional(TEXT), task_id=optional(TASK_ID))
    async def arun_conversation(
        self,
        user_message: str | Mapping[str, Any],
        system_message: str | None = None,
        conversation_history: Sequence[Mapping[str, Any]] | None = None,
        task_id: str | None = None,
    ) -> ConversationResult:
        return await self._open_agent.arun_conversation(user_message, system_message, conversation_history, task_id)

    def stream(self, text: str) -> TurnEvents:
        """Stream the events of one turn, with `for` or `async for`; the last one is TurnFinished."""
        return TurnEvents(self._open_agent, text)

    def interrupt(self) -> bool:
        """Cancel the running turn, from any thread; return whether there was one."""
        return self._agent.interrupt()

    # -- context -------------------------------------------------------------------------------------------------------

    def compress(self, focus_topic: str | None = None) -> CompactionReport:
        """Compact now, whatever the context usage, and return a report.

        `focus_topic` is what the handoff must cover best.
        """
        return self._open_agent.compress(focus_topic)

    async def acompress(self, focus_topic: str | None = None) -> CompactionReport:
        return await self._open_agent.acompress(focus_topic)

    @check_arguments(sections=TEXT)
    def edit_handoff(self, sections: str) -> str:
        """Replace the sections of the newest handoff and return the id of the session that continues."""
        return self._agent.edit_handoff(sections)

    def undo(self) -> str:
        """Undo the last compaction and return the id of the session that continues; deletes nothing."""
        return self._open_agent.undo()

    def switch_model(self, model: str | EndpointChain) -> None:
        """Switch to another model (`name` or `provider/name`); the history is made to fit before the next call."""
        require("model", model, _MODEL_OR_ROUTE)
        route = self._shared.route_to(model) if isinstance(model, str) else model
        self._open_agent.switch_model(route)

    def measure(self) -> ContextUsage:
        """Return the context usage after resolving the model's window, which may query its endpoint once."""
        return self._open_agent.measure()

    @property
    def gauge(self) -> ContextUsage:
        """The current context usage, by the token counter that also triggers compaction."""
        return self._agent.gauge

    # -- parts ---------------------------------------------------------------------------------------------------------

    def open(self) -> OpenConversation:
        """Open the conversation (resume or create it) without running a turn."""
        return self._open_agent.open()

    @property
    def session_id(self) -> str | None:
        """The current session id; None before the first message."""
        return self._agent.session_id

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint (provider, address, model) that the next model call goes to; after a failure, the fallback."""
        return self._agent.endpoint

    @property
    def events(self) -> EventBus:
        """The bus on which the events of every turn are published: `agent.events.listen(callback)`."""
        return self._agent.events

    @property
    def deps(self) -> AgentDeps:
        """The dependencies of this agent."""
        return self._agent.deps

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings of the set-up, such as a tool server that does not start."""
        return self._agent.warnings

    @property
    def conversation(self) -> ConversationAgent:
        """The `ConversationAgent` of this facade, for the terminal, which shares its commands with the gateway."""
        return self._agent

    def close(self) -> None:
        """End the conversation and release the store; a running turn is interrupted first.

        Agents at the same path share one store, which is closed with the last of them. A store passed in stays open.
        """
        self._is_closed = True
        self._agent.stop()
        self._agent.close()
        self._shared.close()

    @property
    def _open_agent(self) -> ConversationAgent:
        if self._is_closed:
            raise PerdureError("this agent is closed; make another with session_id=… to go on with its conversation")
        return self._agent

    def __enter__(self) -> Agent:
        return self

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_foreign(self.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TurnEvents:
    """An iterator over the events of one turn, plain or async.

    The turn starts with the first read, and runs once, however often it is iterated over; ending the iteration early
    interrupts it.
    """

    def __init__(self, agent: ConversationAgent, text: str) -> None:
        if not isinstance(text, str | Mapping):
            raise InvalidMessage(f"stream takes a text, not {text!r:.80}")
        self._agent = agent
        self._text = text
        self._source: AsyncIterator[Event] | None = None
        # What `next()` reads from; a loop has an iterator of its own, which ends with it.
        self._events: Iterator[Event] | None = None
        self._is_started = False

    def __iter__(self) -> Iterator[Event]:
        if self._is_started:
            return self._events or iter(())
        self._is_started = True
        return self._agent.stream_here(self._text)

    def __next__(self) -> Event:
        if self._events is None:
            self._events = iter(self)
        return next(self._events)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._source is None:
            if self._is_started:
                raise StopAsyncIteration
            self._is_started = True
            self._source = self._agent.stream(self._text)
        return await anext(self._source)

    async def aclose(self) -> None:
        """Interrupt the turn if it is still running."""
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()


def _settings(
    configured: Settings | Mapping[str, Any] | None, model: Mapping[str, str | None], home: Path | None
) -> Settings:
    """Return the given settings, or the user's own, with model arguments applied."""
    from perdure.config.load import load, validate_settings
    from perdure.config.settings import Settings

    overrides = {f"model.{k}": v for k, v in model.items() if v is not None}
    if configured is None:
        return load(flags=overrides, home=home).settings
    base = configured if isinstance(configured, Settings) else validate_settings(configured)
    update = {k: v for k, v in model.items() if v is not None}
    return base.model_copy(update={"model": base.model.model_copy(update=update)}) if update else base
