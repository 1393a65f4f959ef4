"""The controller of a chat: processes each typed line as a turn or a command, and makes the texts around them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from perdure.app.model_choices import unlisted_notice
from perdure.app.runtime import UNSTARTED
from perdure.cli.chat.command_context import ChatCommandContext, Progress
from perdure.cli.chat.input import Attached, as_command, attach
from perdure.cli.chat.shell import ShellRun, UserShell, is_shell_line
from perdure.cli.chat.status import (
    can_call_tools,
    choice_line,
    closing_lines,
    opening_lines,
    resumed_lines,
    route_lines,
    status_line,
    window_note,
)
from perdure.cli.chat.stored_messages import EXPORT, copy_command, last_results, replay_text
from perdure.cli.chat.transcript import ChatTranscript
from perdure.cli.style import Style, runnable
from perdure.commands.command import Command, CommandContext, CommandResult, is_command
from perdure.commands.format import local_times
from perdure.commands.registry import all_commands
from perdure.commands.search import HANDOFF, newest_handoff
from perdure.commands.titles import title_of
from perdure.config.api_keys import api_key_for, overrides_stored_key, stored_servers
from perdure.config.env import wants_color
from perdure.config.settings import PermissionMode
from perdure.context.handoff import editable_text
from perdure.core.errors import LeaseLost, PerdureError
from perdure.core.events import (
    CallFinished,
    CompactionFinished,
    Event,
    ModelSwitched,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from perdure.providers.discovery import local_servers, model_files
from perdure.providers.local import FIT_FOR, INSTALL, has_runtime, is_packaged_model, packaged_weights
from perdure.providers.registry import PROVIDERS
from perdure.providers.types import Endpoint
from perdure.store.leases import is_holder_dead
from perdure.tools.builtin.terminal import BackgroundProcess
from perdure.tools.permissions import MODE_MEANINGS, MODES
from perdure.tools.standing_approvals import describe_standing_approvals


def welcome_lines(surface: ChatCommandContext) -> Iterator[str]:
    """Yield the lines of the first screen, without network access."""
    endpoint = surface.agent.endpoint
    named = keys_found()
    has_embedded = packaged_weights() is not None and has_runtime()
    yield (
        "Welcome to Perdure. It keeps a conversation going past the model's context window: it compacts, it keeps"
        " everything that was said, and it shows you how full the window is and what it cost."
    )
    yield ""
    yield f"  found      keys: {', '.join(named) if named else 'none in the environment, none stored'}"
    yield f"             embedded model: {'smollm2, ready (no key, no network)' if has_embedded else 'not installed'}"
    yield f"  using      {endpoint.model} ({endpoint.server_name})"
    if endpoint.provider == "local":
        if not has_embedded:
            yield f"             it is not here yet: {INSTALL}"
        elif is_packaged_model(endpoint.model):
            yield f"             {FIT_FOR}"
    yield "  change it  /model lists what else is here; for a provider of your own:"
    yield "             perdure login PROVIDER      (or set ANTHROPIC_API_KEY, OPENAI_API_KEY, …)"
    yield "             perdure login URL           for a server of your own"
    yield "  check it   perdure doctor"
    yield f"  kept in    {surface.home}"
    yield ""
    yield "/help lists the commands. Enter sends, Alt-Enter makes a new line, @path attaches a file, Ctrl-D leaves."
    if can_call_tools(surface):
        yield f"{describe_mode(surface.permissions.mode)} (Shift-Tab changes it)."
    yield from route_lines(surface)
    yield ""


def found_lines(home: Path) -> Iterator[str]:
    """Yield lines on models of this machine that could replace the embedded one, and how to choose one."""
    servers, files = local_servers(), model_files(Path.home(), home) if has_runtime() else []
    parts = [
        f"{server.name} ({', '.join(server.models[:3])}{' …' if len(server.models) > 3 else ''})"
        for server in servers
        if server.models
    ]
    if files:
        parts.append(
            f"{len(files)} GGUF file{'s' if len(files) > 1 else ''} ({files[0].path.name}{' …' if files[1:] else ''})"
        )
    if parts:
        yield f"Found on this machine: {'; '.join(parts)}. /model lists them and goes on with one."


def unlisted_lines(endpoint: Endpoint) -> Iterator[str]:
    """Yield a warning where an endpoint lists models and its own is not one of them."""
    with contextlib.suppress(PerdureError):  # the first message reports it, too
        if (notice := unlisted_notice(endpoint)) is not None:
            yield f"warning: {notice}. /model goes on with another."


def keys_found() -> list[str]:
    """Return the providers and servers that have an API key, each with where it is; never the keys."""
    sources: dict[str, str] = {}
    for row in PROVIDERS:
        variable = next((name for name in row.key_variables if api_key_for(name)), None)
        if variable is not None:
            sources.setdefault(variable, f"{row.name} ({variable if overrides_stored_key(variable) else 'stored'})")
    return [*sources.values(), *(f"{origin} (stored)" for origin in stored_servers())]


def chat_commands(write_raw: Callable[[str], None] | None) -> list[Command]:
    """Return the commands that only the terminal has, such as those that write files or the clipboard."""
    return [copy_command(write_raw), EXPORT, EDIT]


def _edit(surface: CommandContext, argument: str) -> CommandResult:
    return CommandResult("Type /edit at the prompt, or press Ctrl-X Ctrl-E: it opens your $EDITOR.", "error")


EDIT = Command("edit", "/edit [text]", "write the message in $EDITOR (also Ctrl-X Ctrl-E)", _edit)


KEYS_HELP = """\
Keys and marks
@path                       attach a file, an image, or the names in a folder
!command                    run a command in your own shell; the model reads its output
Ctrl-O                      show the newest tool output whole
Shift-Tab                   change the permission mode: plan, ask, edits; all only by /mode all
Esc, Ctrl-C                 stop the answer; Ctrl-C twice leaves, as Ctrl-D does
Esc at a question           say no, with what is typed so far as the reason
Alt-Enter, Ctrl-J           make a new line
Ctrl-X Ctrl-E, Ctrl-V       write in $EDITOR; attach the image in the clipboard"""


def describe_mode(mode: PermissionMode) -> str:
    return f"{mode} mode: {MODE_MEANINGS[mode]}"


def handoff_command(surface: ChatCommandContext) -> Command:
    """Build the `/handoff` command of the terminal, which can also edit the handoff in the user's editor."""

    def show_or_edit(context: CommandContext, argument: str) -> CommandResult:
        if argument.strip().lower() != "edit":
            return HANDOFF.run(context, argument)
        text = newest_handoff(context)
        if text is None:
            return CommandResult("Nothing was compacted: there is no handoff to edit.", "error")
        if surface.person.edit is None:
            return CommandResult("There is no editor here.", "error")
        before = editable_text(text)
        after = surface.person.edit(before)
        if after is None or after.strip() == before.strip():
            return CommandResult("The handoff is as it was.")
        context.agent.edit_handoff(after)
        hint = "/handoff shows it; /undo compaction brings the original back."
        return CommandResult(f"From now on the model reads the handoff as you edited it. {hint}")

    return Command("handoff", "/handoff [edit]", "read or edit what replaces compacted messages", show_or_edit)


def mode_command(surface: ChatCommandContext) -> Command:
    """Build the `/mode` command, which only the terminal has: remote users must not widen their permissions."""

    def show_or_change(_: CommandContext, argument: str) -> CommandResult:
        name = argument.strip().lower()
        mode = next((m for m in MODES if m == name), None)
        if name and mode is None:
            return CommandResult(f"{argument!r} is no mode; there are: {', '.join(MODES)}", "error")
        if mode is not None:
            surface.choose_mode(mode)
            return CommandResult(describe_mode(mode))
        present, rules = surface.permissions.mode, surface.permissions.rules
        lines = [f"{'→' if m == present else ' '} {m:<6} {MODE_MEANINGS[m]}" for m in MODES]
        for verdict, group in (("deny", rules.deny), ("ask", rules.ask), ("allow", rules.allow)):
            lines += [f"  {verdict:<6} {rule.text}  ({rule.origin})" for rule in group]
        lines += [f"  {runnable(line)}" for line in describe_standing_approvals(*surface.granted_kinds)]
        return CommandResult("\n".join([*lines, "Change it with /mode NAME; Shift-Tab leads to all but the last."]))

    return Command(
        "mode", "/mode [name]", "what the model may do without asking: plan, ask, edits, all", show_or_change
    )


Write = Callable[[str], None]
# How long after the end of a turn its last events may arrive.
_LAG_S = 5.0
_LEASE_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one input line: the text to show, and what happens next.

    The text is empty after a model turn, whose reply was streamed.
    """

    text: str = ""
    is_error: bool = False
    is_leaving: bool = False
    # Another conversation is open now: its last turns are shown below the text.
    is_resumed: bool = False
    # A long text to be read: in a pager where it does not fit the screen.
    is_document: bool = False
    # The message was not stored; the user gets it back to send it again.
    is_unsent: bool = False


class ChatController:
    """Processes the lines of a chat: its command context, its commands, and the texts around them."""

    def __init__(
        self,
        surface: ChatCommandContext,
        write: Write,
        *,
        is_first_run: bool = False,
        write_raw: Write | None = None,
    ) -> None:
        """Create a controller that writes whole lines with `write`; `write_raw` passes escapes to the terminal."""
        self.surface = surface
        own = [
            handoff_command(surface),
            mode_command(surface),
            *chat_commands(write_raw),
            *surface.custom_commands,
        ]
        self.commands = all_commands(own, keys=KEYS_HELP)
        self._shell = UserShell()
        # Commands the user ran, for the model to read with the next message.
        self._shell_runs: list[ShellRun] = []
        self._write = write
        self._is_first_run = is_first_run
        self._last_request = ""
        self._is_heard = threading.Event()
        self._is_in_turn = False
        self._is_waiting = False
        self._stop_waiting = threading.Event()

    # -- talking -----------------------------------------------------------------------------------------------------

    def answer(self, line: str, progress: Progress, *, pasted: Sequence[str] = ()) -> Answer:
        """Process one line; errors become the answer. `pasted` are the parts that were not typed."""
        line = as_command(line)
        try:
            if is_shell_line(line, pasted):
                return self._run_shell(line[1:].strip(), progress)
            if line.startswith("/compress"):
                progress("compacting (Ctrl-C cancels)", 0.0)
            result = self.commands.dispatch(self.surface, line)
            if result is None:
                if self.surface.needs_model:
                    return Answer("Choose a model first, with /model.", is_error=True, is_unsent=True)
                if self.surface.unchosen_models:
                    return Answer(f"Choose a model first: {choice_line(self.surface)}", is_error=True, is_unsent=True)
                return self._send(attach(line, Path.cwd(), pasted=pasted), progress)
            return self._after(result, progress)
        except concurrent.futures.CancelledError:
            return Answer("stopped; nothing has changed")
        except PerdureError as error:
            return Answer(runnable(str(error)), is_error=True)

    def _after(self, result: CommandResult, progress: Progress) -> Answer:
        if result.is_resumed:
            _ = self.surface.agent  # restores model and mode
            return Answer("\n".join((result.text.partition("\n")[0], *self.surface.resume_notes)), is_resumed=True)
        if result.then_send is None:
            is_error = result.level == "error"
            return Answer(
                local_times(result.text) if result.is_document else runnable(result.text),
                is_error=is_error,
                is_leaving=result.is_leaving,
                is_document=result.is_document,
            )
        self._write(f"{result.text}\n")
        return self._send(Attached(result.then_send), progress)

    def _run_shell(self, command: str, progress: Progress) -> Answer:
        progress(f"running {command}", 0.0)
        done = self._shell.run(command, self._write)
        self._shell_runs.append(done)
        return Answer(f"{done.summary}; the model reads it with your next message")

    def _send(self, attached: Attached, progress: Progress) -> Answer:
        if not self._wait_until_free(progress):
            return Answer("stopped; the message was not sent", is_unsent=True)
        attached = attached.with_context([run.context for run in self._shell_runs])
        if attached.lines:
            self._write("".join(f"{line}\n" for line in attached.lines))
        if problem := self.surface.agent.describe_oversize(attached.message):
            return Answer(problem, is_error=True, is_unsent=True)
        self._last_request = attached.text
        self._is_heard.clear()
        self._is_in_turn = True
        try:
            self.surface.agent.run_conversation(attached.message)
        except LeaseLost as error:
            return Answer(runnable(str(error)), is_error=True, is_unsent=True)
        finally:
            self._is_in_turn = False
        self._shell_runs.clear()
        self._is_heard.wait(_LAG_S)
        return Answer()

    def _wait_until_free(self, progress: Progress) -> bool:
        """Wait while another process holds the lease of the conversation; False once interrupted."""
        session_id, leases = self.surface.session_id, self.surface.store.leases
        self._stop_waiting.clear()
        self._is_waiting = True
        try:
            while session_id is not None and (lease := leases.holder_of(session_id)) is not None:
                if is_holder_dead(lease.holder):
                    break
                progress("another program is answering in this conversation; waiting (Esc stops)", 0.0)
                if self._stop_waiting.wait(_LEASE_POLL_S):
                    return False
            return True
        finally:
            self._is_waiting = False

    def on_event(self, event: Event) -> None:
        """Handle an event after all other listeners: title the conversation, note the end of a turn."""
        if isinstance(event, TurnStarted):
            self._name(event.session_id)
            self.surface.store_choices()
        elif isinstance(event, TurnFinished):
            self._is_heard.set()

    def _name(self, session_id: str) -> None:
        conversations = self.surface.store.conversations
        if self._last_request and not conversations.get(session_id).title and (title := title_of(self._last_request)):
            conversations.set_title(session_id, title)

    def make_way(self, line: str, *, pasted: Sequence[str] = ()) -> None:
        """Interrupt the running turn for a new message, if the settings ask for that.

        Commands wait for the turn, and so does everything while something else than a turn is running.
        """
        is_message = not is_command(line) and not is_shell_line(line, pasted)
        if is_message and self._is_in_turn and self.surface.settings.agent.while_busy == "interrupt":
            self.surface.interrupt()

    def interrupt(self) -> bool:
        if self._is_waiting:
            self._stop_waiting.set()
            return True
        return self._shell.interrupt() or self.surface.interrupt()

    def close(self) -> None:
        self.surface.close()

    # -- the words around it -----------------------------------------------------------------------------------------

    @property
    def ink(self) -> Style:
        """The style of the output by the settings, once these are loaded."""
        return Style(wants_color(self.surface.settings.display.color))

    def transcript(self, write: Write, width: Callable[[], int], ink: Style) -> ChatTranscript:
        display = self.surface.settings.display
        return ChatTranscript(
            write,
            width=width,
            ink=ink,
            shows_reasoning=display.reasoning,
            streams=display.streaming,
            tool_lines=display.tool_lines,
            awaits_approval=self.surface.awaits_approval,
        )

    def opening(self, *, has_menu: bool = False) -> Iterator[str]:
        is_first = self._is_first_run
        lines = welcome_lines(self.surface) if is_first else opening_lines(self.surface, has_menu=has_menu)
        yield from map(runnable, lines)
        yield from resumed_lines(self.surface)

    def replay(self, width: int, ink: Style) -> str:
        """Return the last turns of the current conversation, formatted; "" in a new one."""
        session_id = self.surface.session_id
        return replay_text(self.surface.store, session_id, width=width, ink=ink) if session_id is not None else ""

    def stored_results(self) -> list[ToolFinished]:
        """Return the last tool results of the current conversation; none in a new one."""
        session_id = self.surface.session_id
        return last_results(self.surface.store, session_id) if session_id is not None else []

    def closing(self) -> Iterator[str]:
        yield from closing_lines(self.surface)

    def look_around(self, write: Write) -> None:
        """Report in the background what other models are on this machine, where none is configured.

        For the user's own server, report if it does not list the configured model.
        """
        model, endpoint = self.surface.settings.model, self.surface.agent.endpoint
        if endpoint.base_url == UNSTARTED and not (model.name or model.provider):
            find: Callable[[], Iterator[str]] = partial(found_lines, self.surface.home)
        elif endpoint.model == model.name and endpoint.provider == "custom" and not self.surface.unchosen_models:
            find = partial(unlisted_lines, endpoint)
        else:
            return

        def look() -> None:
            if lines := list(find()):
                write("".join(f"{line}\n" for line in lines))

        threading.Thread(target=look, name="perdure-look", daemon=True).start()

    def warm_up(self) -> None:
        """Import the modules that the first answer needs, while the user is still reading or typing."""
        import perdure.cli.chat.markdown_render  # noqa: F401  # for the import alone

    def cycle_mode(self) -> str:
        """Switch to the next permission mode except "all", which must be chosen by name; return a description."""
        listed = [mode for mode in MODES if mode != "all"]
        present = self.surface.permissions.mode
        mode = listed[(listed.index(present) + 1) % len(listed)] if present in listed else listed[0]
        self.surface.choose_mode(mode)
        return describe_mode(mode)

    def processes(self) -> Sequence[BackgroundProcess]:
        """Return the commands that run in the background of this conversation; from any thread."""
        return self.surface.processes()

    def status(self) -> str:
        return status_line(self.surface)

    def measured_status(self) -> str:
        """Return the status line after resolving the window, which may query the endpoint; not during a turn."""
        agent = self.surface.agent
        if agent.gauge.window is None:
            # The first message hits the same error and reports it; a leaving user need not wait.
            with contextlib.suppress(PerdureError, concurrent.futures.CancelledError):
                agent.measure()
            if note := window_note(self.surface):
                self._write(f"{note}\n")
        return self.status()

    def changes_status(self, event: Event) -> bool:
        return isinstance(event, CallFinished | CompactionFinished | ModelSwitched | TurnStarted | TurnFinished)
