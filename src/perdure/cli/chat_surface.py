"""The terminal as a surface: the agent at hand, and how to open another or change its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.agent.agent import Agent
from perdure.app import Agent as WiredAgent
from perdure.app import open_user_store, route_to
from perdure.config.load import load
from perdure.core.events import Event

Listener = Callable[[Event], None]


class ChatSurface:
    """One person at one terminal."""

    user_key = ""

    def __init__(self, flags: Mapping[str, Any], *, session_id: str | None = None) -> None:
        self._loaded = load(flags=flags)
        self.home = self._loaded.home
        self.settings = self._loaded.settings
        self.store = open_user_store(self.settings, self.home)
        self._listener: Listener | None = None
        self._progress: Callable[[str, float], None] = lambda text, seconds: None
        self._finish: Callable[[], None] = lambda: None
        self._agent: WiredAgent | None = None
        self._next_id = session_id
        if session_id is not None:
            self.store.get_compression_tip(session_id)  # a wrong id is told before anything else happens

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            self._agent = WiredAgent(
                settings=self.settings,
                store=self.store,
                session_id=self._next_id,
                home=self.home,
                on_progress=lambda text, seconds: self._progress(text, seconds),
                source="terminal",
            )
            if self._listener is not None:
                self._finish = self._agent.events.listen(self._listener)
        return self._agent

    @property
    def warnings(self) -> list[str]:
        return self._agent.warnings if self._agent is not None else []

    def listen(self, listener: Listener, on_progress: Callable[[str, float], None]) -> None:
        """Every event of every agent from now on goes to `listener`, in order."""
        self._listener, self._progress = listener, on_progress

    def open(self, session_id: str | None) -> None:
        self.close()
        self._next_id = session_id

    def choose_model(self, name: str) -> str:
        route = route_to(self.settings, name)
        self.agent.switch_model(route)
        return f"{route.main.model} ({route.main.provider})"

    def close(self) -> None:
        """Leaves the conversation at hand; everything of it is kept."""
        if self._agent is not None:
            self._next_id = self._agent.session_id
            self._agent.close()
            self._finish()
            self._agent = None
