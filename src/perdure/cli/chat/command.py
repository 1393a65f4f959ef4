"""`perdure chat`: talk in the terminal, or ask one question."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from perdure.cli.chat.controller import ChatController
    from perdure.cli.chat.tui import ChatApp
    from perdure.core.events import Event

EPILOG = """\b
Examples:
  perdure chat                          talk; /help lists the commands
  perdure chat --continue               go on with the newest chat of this folder
  perdure chat --resume c_1m7g…         go on with a conversation, by any id of it
  perdure chat -q "sum up @README.md"   one question, one answer, a file attached
  git diff | perdure chat -q "review"   what is piped in goes with the question
  perdure chat -q "hello" --json        every event as a line of JSON

\b
Keys:
  Enter         sends; Alt-Enter, Ctrl-J or a trailing backslash makes a new line
  Tab           completes /commands, @paths, models and conversations
  Up, Ctrl-R    find earlier messages
  Esc           stops the answer
  Ctrl-O        shows the newest tool output whole
  Shift-Tab     changes the permission mode: plan, ask, edits; all only by /mode all
  Ctrl-C        stops the answer and keeps the conversation; twice leaves, as Ctrl-D does

\b
Exit status:
  0 answered   1 no answer   2 called wrongly   130 interrupted   141 the reader of --json is gone
  What -q refused, as nobody can approve it, is named on standard error; an answer is still 0.
"""


@click.command(epilog=EPILOG)
@click.option(
    "-r", "--resume", "session_id", metavar="ID", help="Go on with a conversation, by any id of it; last: the newest."
)
@click.option("-c", "--continue", "is_continued", is_flag=True, help="Go on with the newest chat of this folder.")
@click.option("-m", "--model", metavar="NAME", help="The model to talk to, for this time.")
@click.option("-p", "--provider", metavar="NAME", help="Its provider, for this time.")
@click.option("-q", "--question", metavar="TEXT", help="Ask one question, print the answer, and leave.")
@click.option("--json", "as_json", is_flag=True, help="With a question: print every event as a line of JSON.")
@click.option(
    "--mode",
    type=click.Choice(["plan", "ask", "edits", "all"]),
    help="What the model may do without asking, for this time: plan changes nothing.",
)
@click.pass_obj
def chat(
    flags: dict[str, str] | None,
    session_id: str | None,
    is_continued: bool,
    model: str | None,
    provider: str | None,
    question: str | None,
    as_json: bool,
    mode: str | None,
) -> None:
    """Talk to an agent whose conversation outlives its window."""
    from perdure.cli.exit import signals_interrupt
    from perdure.config.env import is_dumb

    overrides = {**(flags or {}), **_model_settings(model, provider)}
    if mode is not None:
        overrides |= {"permissions.mode": mode, "tools.approval": "ask"}
    if question is not None or not sys.stdin.isatty():
        from perdure.cli.chat.continuation import find_resumption
        from perdure.cli.chat.one_shot import ask_once

        resumed = find_resumption(overrides, session_id, is_continued=is_continued, is_question=True)
        with signals_interrupt():
            code = ask_once(
                overrides, question or "", piped=_read_piped_text(), session_id=resumed.session_id, as_json=as_json
            )
    elif as_json:
        raise click.UsageError("--json goes with a question: give one with -q, or pipe it in.")
    elif is_dumb() or not sys.stdout.isatty():
        with signals_interrupt():
            code = _plain(overrides, session_id, is_continued=is_continued)
    else:
        code = _live(overrides, session_id, is_continued=is_continued)
    sys.exit(code)


def _model_settings(model: str | None, provider: str | None) -> dict[str, str]:
    """Return the settings of `-m` and `-p`. `local/NAME` and `http://host/v1/NAME` mean what they do for `/model`.

    Other names with a slash stay whole: many services have models of such names.
    """
    if model is not None and model.startswith(("http://", "https://")):
        from perdure.providers.registry import split_model_address

        named = {"provider": provider or "custom", **split_model_address(model)}
        return {f"model.{key}": value for key, value in named.items() if value}
    if model is not None and provider is None and model.startswith("local/"):
        provider, _, model = model.partition("/")
    return {f"model.{key}": value for key, value in (("name", model), ("provider", provider)) if value}


def _live(flags: dict[str, str], session_id: str | None, *, is_continued: bool) -> int:
    """Run the interactive chat; the prompt is shown before anything slow is imported."""
    from perdure.cli.chat.tui import ChatApp
    from perdure.config.env import home_dir, make_home, wants_color

    home = make_home(home_dir())
    is_first_run = _is_first_run()

    def open_desk(chat: ChatApp) -> ChatController:
        from perdure.cli.chat.command_context import ChatCommandContext, ChatUser
        from perdure.cli.chat.continuation import find_resumption
        from perdure.cli.chat.controller import ChatController

        person = ChatUser(chat.hear, chat.progress, chat.questions, chat.questions, chat.edit_text)
        resumed = find_resumption(flags, session_id, is_continued=is_continued)
        surface = ChatCommandContext(
            flags, session_id=resumed.session_id, person=person, offers_models=True, notes=resumed.notes
        )
        return ChatController(surface, chat.write_lines, is_first_run=is_first_run, write_raw=chat.write)

    # What is loaded by then stays. A full collection that goes through it takes 50 ms, in which no key would be drawn.
    return ChatApp(open_desk, home=home, is_color=wants_color("auto"), on_ready=gc.freeze).run()


def _plain(flags: dict[str, str], session_id: str | None, *, is_continued: bool) -> int:
    from perdure.cli.chat.command_context import ChatCommandContext, ChatUser
    from perdure.cli.chat.continuation import find_resumption
    from perdure.cli.chat.controller import ChatController
    from perdure.cli.chat.plain import PlainChat, PlainQuestions, PlainScreen
    from perdure.cli.chat.questions import TerminalQuestions
    from perdure.cli.editor import edit_text

    is_first_run = _is_first_run()
    resumed = find_resumption(flags, session_id, is_continued=is_continued)
    screen, asking = PlainScreen(sys.stdout), PlainQuestions(input)
    questions = TerminalQuestions(asking.show, asking.withdraw)

    def hear(event: Event) -> None:
        screen.show(event)
        desk.on_event(event)

    person = ChatUser(hear, screen.progress, questions, questions, edit_text)
    surface = ChatCommandContext(
        flags, session_id=resumed.session_id, person=person, offers_models=True, notes=resumed.notes
    )
    screen.shows_reasoning = surface.settings.display.reasoning
    desk = ChatController(surface, lambda text: screen.line(text.rstrip("\n")), is_first_run=is_first_run)
    return PlainChat(desk, screen).run()


def _is_first_run() -> bool:
    """Whether there is neither a config nor a conversation yet."""
    from perdure.config.env import CONFIG_FILE, home_dir

    home = home_dir()
    return not (home / CONFIG_FILE).exists() and not (home / "perdure.db").exists()


def _read_piped_text() -> str:
    """Return the text piped into standard input, which is appended to the question."""
    return "" if sys.stdin.isatty() else sys.stdin.read().strip()
