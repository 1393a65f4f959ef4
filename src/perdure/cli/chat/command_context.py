"""The CommandContext of a terminal chat: its agent, and how to open another conversation or model."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.agent.agent import ConversationAgent
from perdure.app import Agent
from perdure.app.model_choices import ModelChoice, choose_route, find_choices, model_names, unknown_model_notice
from perdure.app.runtime import EMBEDDED_PROVIDER, MODEL_KEY, SCRIPTED_KEY, UNSTARTED, named_model, route_of, route_to
from perdure.commands.conversations import PROJECT_KEY, TERMINAL_KEYS
from perdure.commands.custom import user_commands
from perdure.commands.registry import builtin_names
from perdure.config.api_keys import origin_of
from perdure.config.edit import set_value
from perdure.config.keys import has_password
from perdure.config.load import load
from perdure.config.project import project_root
from perdure.config.settings import PermissionMode, Settings
from perdure.core.errors import ConfigError, ModelNotNamed
from perdure.core.events import Event
from perdure.core.ports import Approver, Asker
from perdure.core.visibility import Everyone, Visibility
from perdure.providers.local import CHOOSE
from perdure.providers.registry import is_endpoint_of, missing_key
from perdure.providers.types import Endpoint
from perdure.store.store import open_user_store
from perdure.tools.approval import ApprovalGuard
from perdure.tools.builtin.terminal import BackgroundProcess
from perdure.tools.permissions import MODES, Permissions, stricter_modes

# Why a resumed conversation answers nothing yet.
SCRIPT_ENDED = (
    "A script took the part of this conversation's model, and is over. /handoff, /context, /search and /undo work as"
    " they are; to talk on, choose a model with /model."
)
Progress = Callable[[str, float], None]
# In the state of a conversation: its permission mode in a terminal. Only a chat stores it, not a single question.
MODE_KEY = f"{TERMINAL_KEYS}mode"
# In the state of a conversation: the `model.*` settings of a command line that named an address.
ADDRESS_KEY = f"{TERMINAL_KEYS}address"
_CHOICES_S = 60.0


@dataclass(frozen=True, slots=True)
class ChatUser:
    """The callbacks to the user at the terminal: event and progress listeners, approver and asker."""

    hear: Callable[[Event], None] = lambda event: None
    progress: Progress = lambda what, seconds: None
    approver: Approver | None = None
    asker: Asker | None = None
    # Opens a text in the user's editor; returns None where it was not saved.
    edit: Callable[[str], str | None] | None = None


class ChatCommandContext:
    """The CommandContext of a terminal chat; the agent is built on first use."""

    # A terminal user has direct access to the database file, so commands show all of it.
    visibility: Visibility = Everyone()
    page_chars = 200_000
    listed_ids: Sequence[str] = ()

    def __init__(
        self,
        flags: Mapping[str, Any],
        *,
        session_id: str | None = None,
        person: ChatUser | None = None,
        offers_models: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self.flags = dict(flags)
        self.project: str | None = str(project_root(Path.cwd(), Path.home()))
        # Whether a user can choose where no model is named and the endpoint lists several.
        self._offers_models = offers_models
        # Those models, until one is chosen.
        self.unchosen_models: tuple[str, ...] = ()
        loaded = load(flags=flags, folder=Path.cwd(), is_endpoint_of=is_endpoint_of)
        self.home, self.settings = loaded.home, loaded.settings
        self._loaded = loaded
        # The settings of this run while those of a conversation that was begun at another address apply.
        self._called_settings: Settings | None = None
        self.custom_commands, self._command_warnings = user_commands(self.home, Path.cwd(), builtin_names())
        self.store = open_user_store(self.settings, self.home)
        self.person = person or ChatUser()
        self._stop_hearing: Callable[[], None] = lambda: None
        self._agent: Agent | None = None
        self._choices: Sequence[ModelChoice] = ()
        self._choices_at_s = float("-inf")
        # The mode chosen in this chat; None: as the settings and the project have it.
        self._mode: PermissionMode | None = None
        # Why this chat is not in the mode it was called with.
        self._mode_warning = ""
        # The model chosen in this chat, which new conversations of it begin with; None: as the settings have it.
        self._model_name: str | None = None
        self._has_chosen_model = False
        # The session, mode and model that were stored last.
        self._stored_choices: tuple[str, str, str | None] | None = None
        # Notices about the conversation: why it is this one, and of a resumed one its folder, model and mode.
        self.resume_notes: tuple[str, ...] = ()
        self._notes = tuple(notes)
        # Whether this conversation had a scripted model, and no real one is chosen for it yet.
        self.needs_model = False
        # Report a wrong id before anything else happens.
        self._next_id = self.store.get_compression_tip(session_id) if session_id is not None else None

    @property
    def agent(self) -> ConversationAgent:
        if self._agent is None:
            if self._next_id is not None:
                self.settings = self._with_own_address(self._next_id)
                self.settings = self._with_own_model(self._next_id)
            try:
                self._agent = self._make_agent()
            except ModelNotNamed as error:
                if not self._offers_models:
                    raise
                self.unchosen_models = error.models
                named = self.settings.model.model_copy(update={"name": error.models[0]})
                self.settings = self.settings.model_copy(update={"model": named})
                self._agent = self._make_agent()
            self._mode_warning = ""
            if self._mode is not None:
                self.permissions.mode = self._mode
            elif (called := self.flags.get("permissions.mode", self.permissions.mode)) in stricter_modes(
                self.permissions.mode
            ):
                # A project may be trusted to allow more, but not against what this chat was called with.
                self.permissions.mode = called
            elif called != self.permissions.mode:
                self._mode_warning = (
                    f"the permission mode is {self.permissions.mode}, not {called}:"
                    " .perdure/permissions.yaml of this project sets it; /mode changes it"
                )
            if self._next_id is not None:
                self.resume_notes = (*self._notes, *self._restore(self._next_id))
            else:
                self.resume_notes = self._notes
                if self._model_name is not None:
                    self._agent.conversation.switch_model(route_to(self.settings, self._model_name))
            self._agent.conversation.has_open_model = self.needs_model or bool(self.unchosen_models)
            self._stop_hearing = self._agent.events.listen(self.person.hear)
        return self._agent.conversation

    @property
    def has_configured_window(self) -> bool:
        """Whether a configured `model.context_length` applies to the current model, not to one replaced with /model."""
        return self._model_name is None or self.agent.endpoint.model == self.settings.model.name

    def _with_own_address(self, session_id: str) -> Settings:
        """Return the settings with the address a resumed conversation was called with, unless this run names a model.

        The address is stored with the conversation by this program alone: no import brings one along.
        """
        address_flags = self.store.conversation_state(session_id).get(ADDRESS_KEY)
        if not isinstance(address_flags, dict) or self._names_model or "model.base_url" in self.flags:
            return self.settings
        if address_flags.get("model.base_url") == self.settings.model.base_url:  # configured by now
            return self.settings
        if self._called_settings is None:
            self._called_settings = self.settings
        flags = {**self.flags, **address_flags}
        return load(flags=flags, folder=Path.cwd(), is_endpoint_of=is_endpoint_of).settings

    def _with_own_model(self, session_id: str) -> Settings:
        """Name the model of a resumed conversation in the settings where their `context_length` is meant for it.

        It does if no model is configured with it, or if this run was called with it; and only at that address.
        """
        configured = self._loaded.settings.model
        is_other = configured.name is not None and "model.context_length" not in self.flags
        if is_other or self._names_model or configured.context_length is None or configured.base_url is None:
            return self.settings
        name = self._stored_model(session_id)
        named = named_model(self._loaded.settings, name) if name is not None else configured
        is_at_address = named.base_url == configured.base_url
        return self.settings.model_copy(update={"model": named}) if is_at_address else self.settings

    @property
    def _names_model(self) -> bool:
        """Whether a model was given on the command line of this run, and no other was chosen since."""
        return not self._has_chosen_model and ("model.name" in self.flags or "model.provider" in self.flags)

    def _stored_model(self, session_id: str) -> str | None:
        """Return `provider/model` of a conversation: the chosen one, else that of its last call unless embedded."""
        chosen = self.store.conversation_state(session_id).get(MODEL_KEY)
        if isinstance(chosen, str):
            return chosen
        route = self.store.conversations.session(session_id).route
        return f"{route.provider}/{route.model}" if route.model and route.provider != EMBEDDED_PROVIDER else None

    def _make_agent(self) -> Agent:
        return Agent(
            settings=self.settings,
            store=self.store,
            session_id=self._next_id,
            home=self.home,
            on_progress=self.person.progress,
            source="terminal",
            approver=self.person.approver,
            asker=self.person.asker,
        )

    def _restore(self, session_id: str) -> tuple[str, ...]:
        """Use the model and the mode of a resumed conversation; return a sentence for each that is not as configured.

        What this run was called with goes before; a mode is never freer than the conversation's.
        """
        notes = (
            self._folder_note(session_id),
            self._address_note(),
            self._restore_model(session_id),
            self._restore_mode(session_id),
        )
        return tuple(filter(None, notes))

    def _folder_note(self, session_id: str) -> str:
        folder = self.store.conversation_state(session_id).get(PROJECT_KEY)
        return "" if folder in (None, self.project) else f"This is a chat of {folder}; tools work in {Path.cwd()}."

    def _address_note(self) -> str:
        address = self.settings.model.base_url
        if self._called_settings is None or self._called_settings.model.base_url == address:
            return ""
        return (
            f"Going on at {address}, as this conversation was begun; `--set model.base_url=URL` or /model changes it."
        )

    def _restore_model(self, session_id: str) -> str:
        conversation, present = self.agent, self.agent.endpoint
        if self._names_model:
            self.store.conversation_state(session_id).set(MODEL_KEY, f"{present.provider}/{present.model}")
            return ""
        state = self.store.conversation_state(session_id)
        if state.get(SCRIPTED_KEY) and state.get(MODEL_KEY) is None:
            # What would answer here, and at what cost, was not chosen.
            self.needs_model = True
            return SCRIPT_ENDED
        name = self._stored_model(session_id)
        if name is None:
            # The demo's scripted model is not a choice: prefer whatever is configured by now.
            model = self.store.conversations.session(session_id).route.model
            is_other = bool(model) and model != present.model
            return f"This conversation was with {model}; {present.model} goes on." if is_other else ""
        try:
            chain = route_to(self.settings, name)
            problem = missing_key(chain.main) if not self.settings.credentials.command else None
        except ConfigError as error:
            problem = str(error)
        if problem is not None:
            return f"This conversation was with {name}, which cannot be used here: {problem}. {present.model} goes on."
        # The first listed model takes the open place, so the conversation's own may already be there.
        self.unchosen_models = ()
        own = chain.main
        if (own.provider, own.base_url, own.model) != (present.provider, present.base_url, present.model):
            conversation.switch_model(chain)
        elif self._loaded.settings.model.name in (None, present.model):
            return ""
        return f"Going on with {own.model}, the model of this conversation; /model changes it."

    def _restore_mode(self, session_id: str) -> str:
        state, permissions = self.store.conversation_state(session_id), self.permissions
        stored, present = state.get(MODE_KEY), permissions.mode
        if "permissions.mode" in self.flags:
            state.set(MODE_KEY, present)
            return ""
        if stored not in MODES or MODES.index(stored) >= MODES.index(present):
            return ""
        permissions.mode = stored
        return f"Permission mode {stored}, as in this conversation before, not {present}; /mode changes it."

    def store_choices(self) -> None:
        """Store project, mode and chosen model with the conversation, for when it is resumed; once for each change."""
        session_id = self.session_id
        if self._agent is None or session_id is None:
            return
        choices = (session_id, self.permissions.mode, self._model_name)
        if choices != self._stored_choices:
            self._stored_choices = choices
            state = self.store.conversation_state(session_id)
            if state.get(PROJECT_KEY) is None:  # one that is resumed elsewhere stays with its folder
                state.set(PROJECT_KEY, self.project)
            state.set(MODE_KEY, self.permissions.mode)
            if self._model_name is not None and not has_password(self._model_name):
                state.set(MODEL_KEY, self._model_name)
            self.store_address()

    def store_address(self) -> None:
        """Store the address this run was called with, for when the conversation is resumed; not one with a password."""
        address = str(self.flags.get("model.base_url") or "")
        if address and "@" not in address and self.session_id is not None:
            model_flags = {key: value for key, value in self.flags.items() if key.startswith("model.")}
            self.store.conversation_state(self.session_id).set(ADDRESS_KEY, model_flags)

    @property
    def warnings(self) -> Sequence[str]:
        own = (*self._loaded.warnings, *self._command_warnings, *filter(None, [self._mode_warning]))
        if self._agent is None:
            return own
        endpoint = self._agent.conversation.endpoint
        is_named = endpoint.model == self.settings.model.name
        unknown = unknown_model_notice(self.settings, endpoint) if is_named else None
        if unknown is not None:
            unknown = f"{unknown}. /model lists what can be called"
        return (*own, *self._agent.warnings, *filter(None, [unknown]))

    @property
    def unknown_model(self) -> str | None:
        """The notice that no endpoint serves the model, and what to do; None if messages can be answered."""
        endpoint = self.agent.endpoint
        notice = unknown_model_notice(self.settings, endpoint) if endpoint.base_url == UNSTARTED else None
        return f"{notice}. {CHOOSE[0].upper()}{CHOOSE[1:]}" if notice is not None else None

    @property
    def permissions(self) -> Permissions:
        """The permission mode and rules of the current agent."""
        return self.agent.deps.tools.permissions

    @property
    def granted_kinds(self) -> tuple[Sequence[str], Sequence[str]]:
        """The kinds of action that the user allowed for good, and those allowed until the program ends."""
        deps = self.agent.deps
        guard = deps.tools.guard
        return guard.granted_kinds(deps.user) if isinstance(guard, ApprovalGuard) else ((), ())

    def awaits_approval(self, call_id: str) -> bool:
        """Whether a tool call waits for its approval, which may be behind the question about another call."""
        guard = self._agent.deps.tools.guard if self._agent is not None else None
        return isinstance(guard, ApprovalGuard) and guard.is_waiting(call_id)

    def choose_mode(self, mode: PermissionMode) -> None:
        """Change the permission mode, for this conversation and those opened after it in this chat."""
        self._mode = self.permissions.mode = mode
        self.store_choices()

    @property
    def session_id(self) -> str | None:
        """The id of the current session, without building an agent for it."""
        return self._agent.session_id if self._agent is not None else self._next_id

    def processes(self) -> Sequence[BackgroundProcess]:
        """Return the commands running in the background, ended ones too; empty before the agent is built."""
        return self._agent.deps.tools.processes() if self._agent is not None else ()

    def interrupt(self) -> bool:
        """Interrupt the running turn; return whether there was one."""
        return self._agent is not None and self._agent.interrupt()

    def open(self, session_id: str | None) -> None:
        self.close()
        self._next_id, self.resume_notes, self._notes, self.needs_model = session_id, (), (), False
        if session_id is not None:
            self._model_name = None  # the other conversation has its own
        if self._called_settings is not None:
            self.settings, self._called_settings = self._called_settings, None

    def model_choices(self) -> Sequence[ModelChoice]:
        """Return the models that can be chosen, cached for a minute."""
        if time.monotonic() - self._choices_at_s > _CHOICES_S:
            self._choices = find_choices(self.settings, self.agent.endpoint, self.home)
            self._choices_at_s = time.monotonic()
        names = model_names(self._default_endpoint)
        return [replace(choice, is_default=choice.name in names) for choice in self._choices]

    @property
    def _default_endpoint(self) -> Endpoint | None:
        """The endpoint that a chat without options begins with; None where no model is named for it, or by options."""
        if self._loaded.settings.model.name is not None and not self._has_model_flags:
            with contextlib.suppress(ConfigError):
                return route_of(self._loaded.settings).main
        return None

    def sources(self) -> Sequence[tuple[str, str]]:
        files = [path for path in (self._loaded.path, self._loaded.project_file) if path is not None and path.is_file()]
        commands = ", ".join(f"/{command.name}" for command in self.custom_commands)
        rules = self.permissions.rules
        listed = (("deny", rules.deny), ("ask", rules.ask), ("allow", rules.allow))
        names = ", ".join(f"{verdict} {rule.text}" for verdict, group in listed for rule in group)
        always, session = self.granted_kinds
        names = ", ".join(filter(None, (names, *(f"always {k}" for k in always), *(f"now {k}" for k in session))))
        return [("commands", commands), ("settings", ", ".join(map(str, files))), ("permissions", names)]

    def choose_model(self, name: str) -> str:
        route, label = choose_route(self.settings, name)
        if origin_of(name) is not None:
            name = f"{route.main.base_url}/{route.main.model}"  # the server need not answer when this is resumed
        if self.unchosen_models and self.settings.model.context_length is not None and self.session_id is None:
            # The first choice is what the settings left open, so their window is about it.
            self.close()
            self.settings = self.settings.model_copy(update={"model": named_model(self.settings, name)})
        else:
            self.agent.switch_model(route)
        self._model_name, self._has_chosen_model, self.needs_model = name, True, False
        self.store_choices()
        if not self.unchosen_models:
            return f"{label}{self._scope_of(route.main)}"
        self.unchosen_models = ()
        model, base_url = route.main.model, route.main.base_url.rstrip("/")
        is_in_file = self._loaded.origins.get("model.base_url", "").startswith(f"{self._loaded.path}")
        if is_in_file and base_url == (self._loaded.settings.model.base_url or "").rstrip("/"):
            try:
                set_value(self.home, "model.name", model)
                self._loaded = load(flags=self.flags, folder=Path.cwd(), is_endpoint_of=is_endpoint_of)
            except ConfigError as error:
                return f"{label}, in this chat; {error}"
            return f"{label}, from now on; `perdure config unset model.name` undoes that"
        if named_model(self._loaded.settings, name).base_url != self._loaded.settings.model.base_url:
            return label  # at another address, which a model's name alone does not choose
        return f"{label}; `perdure config set model.name {shlex.quote(model)}` chooses it for good"

    @property
    def _has_model_flags(self) -> bool:
        """Whether this run was called with a model, a provider or an address."""
        return any(f"model.{key}" in self.flags for key in ("name", "provider", "base_url"))

    def _scope_of(self, chosen: Endpoint) -> str:
        """Return how far a choice reaches, with the commands that make it the default."""
        model = self._loaded.settings.model
        if self._has_model_flags:
            return ", in this chat"
        ways: list[dict[str, str | None]] = [{"name": chosen.model}]
        if model.base_url is None:
            ways.append({"provider": chosen.provider, "name": chosen.model})
        for way in ways:
            with contextlib.suppress(ConfigError):
                route = route_of(self._loaded.settings.model_copy(update={"model": model.model_copy(update=way)}))
                if route.main == chosen:
                    if model.name == chosen.model:
                        return ", the default"
                    commands = [f"`perdure config set model.{key} {shlex.quote(str(v))}`" for key, v in way.items()]
                    return f", in this chat; for all: {' and '.join(commands)}"
        return ", in this chat"

    def close(self) -> None:
        """Close the agent of the current conversation; everything of it stays stored."""
        if self._agent is not None:
            self._next_id = self._agent.session_id
            self._agent.close()
            self._stop_hearing()
            self._agent = None
