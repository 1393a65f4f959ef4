"""The terminal as a surface: the agent at hand, and how to open another or change its model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.agent.agent import ConversationAgent
from perdure.app import Agent
from perdure.app.model_choices import ModelChoice, choose_route, find_choices
from perdure.app.runtime import open_user_store
from perdure.commands.custom import user_commands
from perdure.commands.registry import builtin_names
from perdure.config.load import load
from perdure.config.settings import PermissionMode
from perdure.core.events import Event
from perdure.core.ports import Approver, Asker
from perdure.core.visibility import Everyone, Visibility
from perdure.tools.builtin.terminal import BackgroundProcess
from perdure.tools.permissions import Permissions

Progress = Callable[[str, float], None]
_CHOICES_S = 60.0


@dataclass(frozen=True, slots=True)
class ChatUser:
    """The user at the terminal: event and progress listeners, approver and asker. None by default."""

    hear: Callable[[Event], None] = lambda event: None
    progress: Progress = lambda what, seconds: None
    approver: Approver | None = None
    asker: Asker | None = None
    # Opens a text in the user's editor; returns None where it was not saved.
    edit: Callable[[str], str | None] | None = None


class ChatCommandContext:
    """One person at one terminal. The agent is made when it is first needed."""

    # A terminal user has direct access to the database file, so commands show all of it.
    visibility: Visibility = Everyone()
    page_chars = 200_000

    def __init__(
        self, flags: Mapping[str, Any], *, session_id: str | None = None, person: ChatUser | None = None
    ) -> None:
        loaded = load(flags=flags, folder=Path.cwd())
        self.home, self.settings = loaded.home, loaded.settings
        self._loaded = loaded
        self.custom_commands, self._command_warnings = user_commands(self.home, Path.cwd(), builtin_names())
        self.store = open_user_store(self.settings, self.home)
        self.person = person or ChatUser()
        self._stop_hearing: Callable[[], None] = lambda: None
        self._agent: Agent | None = None
        self._choices: Sequence[ModelChoice] = ()
        self._choices_at_s = float("-inf")
        # The mode chosen in this chat; None: as the settings and the project have it.
        self._mode: PermissionMode | None = None
        # Report a wrong id before anything else happens.
        self._next_id = self.store.get_compression_tip(session_id) if session_id is not None else None

    @property
    def agent(self) -> ConversationAgent:
        if self._agent is None:
            self._agent = Agent(
                settings=self.settings,
                store=self.store,
                session_id=self._next_id,
                home=self.home,
                on_progress=self.person.progress,
                source="terminal",
                approver=self.person.approver,
                asker=self.person.asker,
            )
            self._stop_hearing = self._agent.events.listen(self.person.hear)
            if self._mode is not None:
                self.permissions.mode = self._mode
        return self._agent.conversation

    @property
    def warnings(self) -> Sequence[str]:
        own = (*self._loaded.warnings, *self._command_warnings)
        return (*own, *self._agent.warnings) if self._agent is not None else own

    @property
    def permissions(self) -> Permissions:
        """The permission mode and rules of the agent at hand."""
        return self.agent.parts.tools.permissions

    def choose_mode(self, mode: PermissionMode) -> None:
        """Change the permission mode, for this conversation and those opened after it in this chat."""
        self._mode = self.permissions.mode = mode

    @property
    def session_id(self) -> str | None:
        """The present session, without making an agent for it."""
        return self._agent.session_id if self._agent is not None else self._next_id

    def processes(self) -> Sequence[BackgroundProcess]:
        """The commands that run in the background, ended ones too; empty before the agent is made."""
        return self._agent.parts.tools.processes() if self._agent is not None else ()

    def interrupt(self) -> bool:
        """Stops what the agent is doing; whether it was doing anything yet."""
        return self._agent is not None and self._agent.interrupt()

    def open(self, session_id: str | None) -> None:
        self.close()
        self._next_id = session_id

    def model_choices(self) -> Sequence[ModelChoice]:
        """Return the models that can be chosen, cached for a minute."""
        if time.monotonic() - self._choices_at_s > _CHOICES_S:
            self._choices = find_choices(self.settings, self.agent.endpoint, self.home)
            self._choices_at_s = time.monotonic()
        return self._choices

    def sources(self) -> Sequence[tuple[str, str]]:
        files = [path for path in (self._loaded.path, self._loaded.project_file) if path is not None and path.is_file()]
        commands = ", ".join(f"/{command.name}" for command in self.custom_commands)
        return [("commands", commands), ("settings", ", ".join(map(str, files)))]

    def choose_model(self, name: str) -> str:
        route, label = choose_route(self.settings, name)
        self.agent.switch_model(route)
        return label

    def close(self) -> None:
        """Leaves the conversation at hand; everything of it is kept."""
        if self._agent is not None:
            self._next_id = self._agent.session_id
            self._agent.close()
            self._stop_hearing()
            self._agent = None
