"""One session of an editor: its agent, turns and commands, and approvals that are asked in the editor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acp import RequestError, update_agent_message_text, update_agent_thought_text, update_plan
from acp.agent.connection import AgentSideConnection
from acp.schema import (
    AllowedOutcome,
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    Cost,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    SessionInfoUpdate,
    SessionMode,
    SessionModeState,
    StopReason,
    UnstructuredCommandInput,
    Usage,
    UsageUpdate,
)

from perdure.acp.content import CallPresenter, ContentBlock, invalid, parse_prompt, plan_entries
from perdure.acp.records import SessionRecords
from perdure.acp.updates import TurnUpdates, UpdateQueue, history_updates
from perdure.agent.agent import ConversationAgent
from perdure.agent.delegation import StoredPlans
from perdure.agent.turn import ConversationResult
from perdure.app.build import AgentUser, build_agent
from perdure.app.model_choices import ModelChoice, choose_route, find_choices
from perdure.app.runtime import Shared
from perdure.commands.command import Command, CommandResult, Commands, is_command
from perdure.commands.custom import user_commands
from perdure.commands.registry import all_commands, builtin_names
from perdure.commands.titles import title_of
from perdure.config.settings import PermissionMode
from perdure.core.errors import LeaseLost
from perdure.core.events import Event
from perdure.core.messages import Entry, Message
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Refusal
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import Everyone, Visibility
from perdure.store.leases import is_holder_dead
from perdure.tools.permissions import MODE_MEANINGS, MODES

SOURCE = "acp"
# An editor has its own lists, buttons and ways to leave.
_LEFT_TO_EDITOR = ("new", "resume", "sessions", "stop", "quit")
_REPLAY_BATCH = 200
# How long a prompt waits while another process writes the conversation.
BUSY_TIMEOUT_S = 10.0
_BUSY_POLL_S = 0.1
_CUT_OFF = "[This turn was cut off. Send the same message again to finish it, or go on with another.]"
_MODE_NAMES: dict[PermissionMode, str] = {
    "plan": "Plan",
    "ask": "Ask",
    "edits": "Edit files",
    "all": "Never ask",
}
_OPTIONS = {
    "once": PermissionOption(option_id="once", name="Allow once", kind="allow_once"),
    "session": PermissionOption(option_id="session", name="Allow in this session", kind="allow_always"),
    "always": PermissionOption(option_id="always", name="Always allow", kind="allow_always"),
    "no": PermissionOption(option_id="no", name="Reject", kind="reject_once"),
}


class CommandCancelled(Exception):
    """Raised when the editor cancels a running slash command, such as a compaction."""


class EditorSession:
    """A session of an editor; prompts run one after the other. It is the CommandContext of its slash commands, too."""

    # The editor runs as the user, who can read the database file: commands show all of it.
    visibility: Visibility = Everyone()
    page_chars = 50_000
    # An editor has its own list of conversations.
    project: str | None = None
    listed_ids: Sequence[str] = ()

    def __init__(
        self,
        session_id: str,
        *,
        shared: Shared,
        folder: Path,
        records: SessionRecords,
        client: AgentSideConnection,
        conversation_id: str | None = None,
        mode: str | None = None,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self.id = session_id
        self._busy_timeout_s = busy_timeout_s
        self.folder = folder
        self.store = shared.store
        self._shared = shared
        self._records = records
        self._client = client
        self._conversation_id = conversation_id
        self._queue = UpdateQueue(lambda update: client.session_update(session_id, update))
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.current_thread()
        self._turn_lock = asyncio.Lock()
        self._is_cancelled = False
        self._agent: ConversationAgent | None = None
        self._updates: TurnUpdates | None = None
        self._mode: PermissionMode | None = next((m for m in MODES if m == mode), None)
        own, self.warnings = user_commands(shared.home, folder, builtin_names())
        self._commands = Commands(c for c in all_commands(own) if c.name not in _LEFT_TO_EDITOR)

    # -- requests of the editor ----------------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[ContentBlock]) -> PromptResponse:
        """Run a turn or a command, and return once every update is sent. Raises RequestError with the cause."""
        text, message = parse_prompt(blocks)
        interrupts = self._shared.settings.agent.while_busy == "interrupt" and not is_command(text)
        if interrupts and self._turn_lock.locked():
            self.cancel()
        async with self._turn_lock:
            self._is_cancelled = False
            try:
                return await self._answer(text, message)
            except CommandCancelled:
                return PromptResponse(stop_reason="cancelled")
            finally:
                await self._queue.flush()

    def cancel(self) -> None:
        """Interrupt the running turn; one that is just starting is interrupted as soon as it has."""
        self._is_cancelled = True
        if self._agent is not None:
            self._agent.interrupt()

    async def replay(self) -> None:
        """Send the messages of the stored conversation to the editor, oldest first."""
        if self._conversation_id is None:
            return
        entries = await asyncio.to_thread(self.store.log.originals, self._conversation_id)
        presenter = self._presenter()
        for number, update in enumerate(history_updates(entries, presenter), 1):
            self._queue.put(update)
            if number % _REPLAY_BATCH == 0:
                await self._queue.flush()
        plan = await asyncio.to_thread(StoredPlans(self.store).load, self._conversation_id)
        if plan:
            self._queue.put(update_plan(plan_entries(plan)))
        if _is_unanswered(entries):
            self._queue.put(update_agent_thought_text(_CUT_OFF))
        await self._queue.flush()

    def announce(self) -> None:
        """Send the slash commands and set-up warnings; called after the response that names the session."""
        commands = [_to_available_command(command) for command in self._commands]
        self._queue.put(
            AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)
        )
        for warning in (*self.warnings, *self.agent.warnings):
            self._queue.put(update_agent_thought_text(f"[warning: {warning}]\n\n"))

    @property
    def modes(self) -> SessionModeState:
        """The permission modes that can be chosen, and the current one."""
        listed = [SessionMode(id=m, name=_MODE_NAMES[m], description=MODE_MEANINGS[m]) for m in MODES]
        return SessionModeState(current_mode_id=self.agent.deps.tools.permissions.mode, available_modes=listed)

    def set_mode(self, name: str) -> None:
        """Change the permission mode of the session, also for later loads of it. Raises RequestError; blocks.

        The mode that never asks is not stored: it has to be chosen again.
        """
        mode = next((mode for mode in MODES if mode == name), None)
        if mode is None:
            raise invalid(f"there is no mode {name!r}; there are: {', '.join(MODES)}")
        self._mode = self.agent.deps.tools.permissions.mode = mode
        self._records.set_mode(self.id, mode if mode != "all" else None)

    async def close(self) -> None:
        """Stop the running turn, which stores its messages, and release agent and tools."""
        self.cancel()
        async with self._turn_lock:
            await asyncio.to_thread(self._close_agent)
            self._shared.close()

    # -- what commands are lent ----------------------------------------------------------------------------------------

    @property
    def agent(self) -> ConversationAgent:
        """The agent, built on first use; in a worker thread, since it may have to start tool servers."""
        if self._agent is None:
            user = AgentUser(SOURCE, approver=self, folder=self.folder)
            agent = build_agent(self._shared, user, session_id=self._conversation_id)
            if self._mode is not None:
                agent.deps.tools.permissions.mode = self._mode
            agent.events.tap(self._on_event)
            self._agent = agent
            self._updates = TurnUpdates(self._presenter())
        return self._agent

    def open(self, session_id: str | None) -> None:
        """Bind this editor session to a stored conversation and persist the binding; None starts a new conversation."""
        self._close_agent()
        conversation = self.store.conversations.get(session_id).id if session_id is not None else None
        self._conversation_id = conversation
        self._records.bind(self.id, conversation)

    def model_choices(self) -> Sequence[ModelChoice]:
        return find_choices(self._shared.settings, self.agent.endpoint, self._shared.home)

    def sources(self) -> Sequence[tuple[str, str]]:
        return [("folder", str(self.folder))]

    def choose_model(self, name: str) -> str:
        route, label = choose_route(self._shared.settings, name)
        self.agent.switch_model(route)
        return label

    # -- approvals -----------------------------------------------------------------------------------------------------

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        """Ask for approval in the editor; no answer counts as no. Words in `_meta.reason` go to the model with a no."""
        assert self._updates is not None, "approvals are asked for by a running turn"
        options = [_OPTIONS[key] for key in (_OPTIONS if request.is_lasting else ("once", "no"))]
        call = self._updates.permission_call(request)
        for update in self._updates.await_permission(call):
            self._queue.put(update)
        await self._queue.flush()
        try:
            response = await self._client.request_permission(self.id, call, options)
        except (RequestError, ConnectionError):
            return "no"
        answer = _approval_answer(response)
        if isinstance(answer, str) and answer != "no":
            for update in self._updates.settle_permission(call):
                self._queue.put(update)
        return answer

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def _answer(self, text: str, message: Mapping[str, Any]) -> PromptResponse:
        if is_command(text):
            result = await asyncio.to_thread(self._dispatch, text)
            if result is not None:
                return await self._after_command(result)
        return await self._run_turn(text, message)

    def _dispatch(self, text: str) -> CommandResult | None:
        """Run a slash command; None if the text is an ordinary message. Raises CommandCancelled; blocks."""
        try:
            return self._commands.dispatch(self, text)
        except concurrent.futures.CancelledError:
            # Out of a thread it would arrive as the cancellation of the request itself, which then gets no response.
            raise CommandCancelled from None

    async def _after_command(self, result: CommandResult) -> PromptResponse:
        if result.text:
            self._queue.put(update_agent_message_text(f"{result.text}\n\n"))
        if result.then_send is None:
            return PromptResponse(stop_reason="end_turn")
        follow = result.then_send
        message = {"role": "user", "content": follow} if isinstance(follow, str) else follow
        return await self._run_turn(Message.from_dict(message).text, message)

    async def _run_turn(self, text: str, message: Mapping[str, Any]) -> PromptResponse:
        agent = await asyncio.to_thread(self._open_conversation, text)
        if not await self._wait_until_free():
            return PromptResponse(stop_reason="cancelled")
        entries = await asyncio.to_thread(self._stored_entries)
        is_resent = _is_unanswered(entries) and _newest_request(entries) == Message.from_dict(message).to_dict()
        work = agent.afinish_turn() if is_resent else agent.arun_conversation(message)
        turn = asyncio.create_task(work)
        await asyncio.sleep(0)  # it has begun: from here on `cancel` reaches it
        if self._is_cancelled:
            agent.interrupt()
        result = await turn
        if result.outcome == "failed":
            raise RequestError(-32603, result.error or "the turn failed")
        await self._report_usage(result)
        return PromptResponse(stop_reason=_stop_reason(result), usage=_usage(result.usage))

    async def _wait_until_free(self) -> bool:
        """Wait while another process writes the conversation; False once cancelled. Raises LeaseLost on timeout."""
        deadline_s = self._loop.time() + self._busy_timeout_s
        while not self._is_cancelled:
            lease = await asyncio.to_thread(self.store.leases.holder_of, self._conversation_id or "")
            if lease is None or is_holder_dead(lease.holder):
                return True
            if self._loop.time() >= deadline_s:
                raise LeaseLost(
                    "another program is answering in this session; send the message again when it has finished,"
                    " or start a new session"
                )
            await asyncio.sleep(_BUSY_POLL_S)
        return False

    def _stored_entries(self) -> Sequence[Entry]:
        """Return the messages of the conversation, including those that other processes appended. Blocks."""
        live = self.agent.open().live
        if self.store.conversations.get(live.conversation_id).last_seq == live.newest_seq:
            return tuple(live.entries)
        return self.store.history(live.conversation_id).entries

    def _open_conversation(self, text: str) -> ConversationAgent:
        """Open or create the conversation, and store it with the session before a message is appended. Blocks."""
        agent = self.agent
        live = agent.open().live
        if live.conversation_id != self._conversation_id:
            self._conversation_id = live.conversation_id
            self._records.bind(self.id, live.conversation_id)
        conversation = self.store.conversations.get(live.conversation_id)
        if not conversation.title and (title := title_of(text)):
            self.store.conversations.set_title(live.conversation_id, title)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            update = SessionInfoUpdate(session_update="session_info_update", title=title, updated_at=now)
            self._loop.call_soon_threadsafe(self._queue.put, update)
        return agent

    async def _report_usage(self, result: ConversationResult) -> None:
        """Send the context usage with the cost of the whole session, where it is known."""
        totals = await asyncio.to_thread(self.store.ledger.totals, result.conversation_id)
        gauge = self.agent.gauge
        if gauge.window is None:
            return
        cost = Cost(amount=totals.cost_usd, currency="USD") if totals.cost_usd is not None else None
        self._queue.put(UsageUpdate(session_update="usage_update", used=gauge.tokens, size=gauge.window, cost=cost))

    def _on_event(self, event: Event) -> None:
        """Convert an event to session updates on the thread that emits it, mostly the event loop's."""
        if self._updates is None:
            return
        updates = list(self._updates.translate(event))
        if threading.current_thread() is self._loop_thread:
            for update in updates:
                self._queue.put(update)
            return
        for update in updates:
            self._loop.call_soon_threadsafe(self._queue.put, update)

    def _presenter(self) -> CallPresenter:
        return CallPresenter(self.agent.deps.tools.registry, self.folder)

    def _close_agent(self) -> None:
        if self._agent is not None:
            self._agent.events.tap(None)
            self._agent.close()
            self._agent = self._updates = None


def _approval_answer(response: RequestPermissionResponse) -> ApprovalAnswer | Refusal:
    """Return the answer; a reason may be in the `_meta` of the response or of its outcome."""
    selected = response.outcome if isinstance(response.outcome, AllowedOutcome) else None
    match selected.option_id if selected is not None else "":
        case "once" | "session" | "always" as answer:
            return answer
    meta = {**((selected and selected.field_meta) or {}), **(response.field_meta or {})}
    reason = str(meta.get("reason") or "").strip()
    return Refusal(reason) if reason else "no"


def _is_unanswered(entries: Sequence[Entry]) -> bool:
    """Whether the newest request has no final reply: its turn failed, was cancelled, or died with its process."""
    for entry in reversed(entries):
        message = entry.message
        if message.is_real_user:
            return True
        if message.kind == "assistant" and not message.tool_calls and message.cut_off is None:
            return False
    return False


def _newest_request(entries: Sequence[Entry]) -> dict[str, Any] | None:
    return next((e.message.to_dict() for e in reversed(entries) if e.message.is_real_user), None)


def _stop_reason(result: ConversationResult) -> StopReason:
    match result.outcome:
        case "interrupted":
            return "cancelled"
        case "budget":
            return "max_turn_requests"
        case _:
            return {"length": "max_tokens", "refusal": "refusal"}.get(result.finish, "end_turn")  # type: ignore[return-value]  # each is a StopReason


def _usage(usage: CanonicalUsage) -> Usage | None:
    if not usage.reported:
        return None
    return Usage(
        total_tokens=usage.total_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        thought_tokens=usage.reasoning_tokens,
        cached_read_tokens=usage.cache_read_tokens,
        cached_write_tokens=usage.cache_write_tokens,
    )


def _to_available_command(command: Command) -> AvailableCommand:
    _, _, argument = command.usage.partition(" ")
    hint = AvailableCommandInput(root=UnstructuredCommandInput(hint=argument)) if argument else None
    return AvailableCommand(name=command.name, description=command.summary, input=hint)
