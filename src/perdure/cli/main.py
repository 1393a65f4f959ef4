"""The `perdure` command: its table of commands, and the options and errors they share."""

from __future__ import annotations

import sys
import warnings
from io import StringIO, TextIOWrapper
from typing import TextIO

import click

from perdure import __version__
from perdure.cli.lazy import Lazy, LazyGroup

COMMANDS = {
    "chat": Lazy("perdure.cli.chat.command:chat", "Talk to an agent whose conversation outlives its window."),
    "demo": Lazy("perdure.cli.demo:demo", "Watch a conversation outgrow its window and carry on."),
    "sessions": Lazy("perdure.cli.sessions:sessions", "List, read, find, move and delete conversations."),
    "usage": Lazy("perdure.cli.usage:usage", "Show tokens and cost of a conversation, by default the last one."),
    "insights": Lazy("perdure.cli.usage:insights", "Show totals of the last DAYS by day, model, surface and task."),
    "doctor": Lazy("perdure.cli.doctor:doctor", "Check keys, home, database, endpoint, window and embedded model."),
    "login": Lazy("perdure.cli.login:login", "Store the API key of a PROVIDER, or of a server; sign in to codex."),
    "logout": Lazy(
        "perdure.cli.login:logout", "Remove the stored key or login of a PROVIDER, or of a server by its address."
    ),
    "config": Lazy("perdure.cli.config:config", "Show and change settings."),
    "approvals": Lazy("perdure.cli.approvals:approvals", "List and revoke what was allowed for good."),
    "permissions": Lazy(
        "perdure.cli.permissions:permissions", "Show what the model may do here, and trust a project's rules."
    ),
    "plugins": Lazy("perdure.cli.plugins:plugins", "List context engines and choose one."),
    "models": Lazy(
        "perdure.cli.models:models", "List the models of the configured endpoint; list and install embedded ones."
    ),
    "replay": Lazy("perdure.cli.replay:replay", "Measure what another context policy would have cost and forgotten."),
    "simulate": Lazy("perdure.cli.simulate:simulate", "Serve a simulated model service on this machine."),
    "serve": Lazy("perdure.cli.gateway:serve", "Open the web UI: your conversations in a browser."),
    "gateway": Lazy("perdure.cli.gateway:gateway", "Serve conversations to many users and programs."),
    "schedule": Lazy("perdure.cli.schedule:schedule", "Run prompts by the clock."),
    "acp": Lazy("perdure.cli.acp:acp", "Serve an editor over the Agent Client Protocol."),
    "completion": Lazy("perdure.cli.completion:completion", "Print the completion script of a SHELL."),
}

# The options of the default command, `chat`; listed here to parse arguments without an import of the chat.
CHAT_OPTIONS = frozenset(
    {
        *("-r", "--resume", "-c", "--continue", "-m", "--model", "-p", "--provider"),
        *("-q", "--question", "--json", "--mode"),
    }
)

CONTEXT = {"help_option_names": ["-h", "--help"]}

EPILOG = """\b
Examples:
  perdure                                       talk; on the embedded model where no key is set
  perdure --continue                            go on with the newest chat of this folder
  perdure -q "what is in @README.md?"           one question, one answer
  perdure sessions search "connection refused"  find what was said, however long ago
  perdure doctor                                what works, what does not, what to do
  perdure config set compression.threshold 0.6  change a setting

\b
Files:
  $PERDURE_HOME (default ~/.perdure) holds config.yaml, conversations, prompts/ and plugins/.

\b
Exit status:
  0 done   1 could not be done   2 called wrongly   130 interrupted   141 the reader is gone
"""


@click.group(
    cls=LazyGroup,
    commands_table=COMMANDS,
    default=("chat", CHAT_OPTIONS),
    context_settings=CONTEXT,
    epilog=EPILOG,
    invoke_without_command=True,
)
@click.version_option(__version__, "-V", "--version", prog_name="perdure", message="%(prog)s %(version)s")
@click.option(
    "--set", "flags", multiple=True, metavar="KEY=VALUE", help="A setting for this run only; may be repeated."
)
@click.pass_context
def cli(ctx: click.Context, flags: tuple[str, ...]) -> None:
    """Perdure keeps an LLM agent's conversation going past its context window."""
    ctx.obj = dict(map(_flag, flags))
    if ctx.invoked_subcommand is not None:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()) and not _has_piped_text():
        click.echo(ctx.get_help())
        return
    command = COMMANDS["chat"].load()
    with command.make_context("chat", [], parent=ctx) as chat:
        command.invoke(chat)


def _has_piped_text() -> bool:
    """Whether a question is piped in; it stays readable for the chat."""
    if sys.stdin.isatty():
        return False
    text = sys.stdin.read()
    sys.stdin = StringIO(text)
    return bool(text.strip())


def _flag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} should look like compression.threshold=0.6", param_hint="--set")
    return key.strip(), value


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, without its code location; replaces `warnings.showwarning`."""
    from perdure.cli.output import echo

    echo(f"perdure: {message}", err=True)


def main() -> None:
    """Run the console script."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks becomes a question mark, not an error.
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
    try:
        cli(prog_name="perdure")
    except SystemExit as done:
        from perdure.cli.exit import leave

        leave(done.code if isinstance(done.code, int) else int(done.code is not None))
