"""Agents as people get them: `Agent` over your settings, `WiredAgent` over what a process shares already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from perdure.agent import agent as talking
from perdure.agent.callbacks import CallbackApprover, CallbackAsker, Callbacks
from perdure.config.env import home_dir
from perdure.core.ports import Approver, Asker

if TYPE_CHECKING:
    from perdure.app.build import AgentUser, AnyTools
    from perdure.app.runtime import Shared
    from perdure.config.settings import Settings
    from perdure.providers.local import OnProgress
    from perdure.store.store import SessionStore

# Settings, providers and tools are imported by the functions below, when the first agent is created: a program that
# only refers to `perdure.Agent` starts in less than half the time.


class WiredAgent(talking.ConversationAgent):
    """One conversation of a process that holds many."""

    def __init__(
        self,
        shared: Shared,
        speaker: AgentUser,
        *,
        session_id: str | None = None,
        tools: AnyTools | None = None,
        callbacks: Callbacks | None = None,
        system_prompt: str | None = None,
    ) -> None:
        from perdure.app.build import Wiring

        wiring = Wiring(shared, speaker)
        super().__init__(
            wiring.parts(tools),
            shared.bridge,
            services=wiring.engine_services,
            session_id=session_id,
            callbacks=callbacks,
            system_prompt=system_prompt,
        )
        self.warnings = wiring.warnings
        self._toolbox = wiring.toolbox
        wiring.agent = self

    def close(self) -> None:
        super().close()
        if self._toolbox is not None:
            self._toolbox.close()


class Agent(WiredAgent):
    """An agent configured by your settings; arguments override them for this agent only."""

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
        user_key: str = "",
        approver: Approver | None = None,
        asker: Asker | None = None,
    ) -> None:
        from perdure.app.build import AgentUser
        from perdure.app.runtime import Shared

        configured = {"name": model, "provider": provider, "base_url": base_url}
        listeners = callbacks if isinstance(callbacks, Callbacks) else Callbacks(**(callbacks or {}))
        if approver is None and listeners.approval_callback is not None:
            approver = CallbackApprover(listeners.approval_callback)
        if asker is None and listeners.clarify_callback is not None:
            asker = CallbackAsker(listeners.clarify_callback)
        shared = Shared(
            _settings(settings, configured, home),
            home=home or home_dir(),
            store=store,
            client=client,
            api_key=api_key,
            api_mode=api_mode,
            on_progress=on_progress,
        )
        self._shared = shared
        super().__init__(
            shared,
            AgentUser(source, user_key, approver=approver, asker=asker),
            session_id=session_id,
            tools=tools,
            callbacks=listeners if callbacks is not None else None,
            system_prompt=system_prompt,
        )

    def close(self) -> None:
        """Ends the conversation and lets go of the store; a turn under way is interrupted first.

        Agents at the same path share one store, which is closed with the last of them. One handed in stays open.
        """
        self._stop()
        super().close()
        self._shared.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
