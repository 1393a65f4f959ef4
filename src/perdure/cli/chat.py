"""`perdure chat`: talk in the terminal, or ask one question."""

from __future__ import annotations

import sys

import click

EPILOG = """\b
Examples:
  perdure chat                          talk; /help lists the commands
  perdure chat --resume c_1m7g…         go on with a conversation, by any id of it
  perdure chat -q "what is in README?"  one question, one answer
  git diff | perdure chat -q "review"   what is piped in goes with the question

\b
Exit status:
  0 answered   1 no answer   2 called wrongly   130 interrupted
"""


@click.command(epilog=EPILOG)
@click.option("-r", "--resume", "session_id", metavar="ID", help="Go on with a conversation, by any id of it.")
@click.option("-m", "--model", metavar="NAME", help="The model to talk to, for this time.")
@click.option("-p", "--provider", metavar="NAME", help="Its provider, for this time.")
@click.option("-q", "--question", metavar="TEXT", help="Ask one question, print the answer, and leave.")
@click.option("--json", "as_json", is_flag=True, help="With -q: print every event as a line of JSON.")
@click.pass_obj
def chat(
    flags: dict[str, str] | None,
    session_id: str | None,
    model: str | None,
    provider: str | None,
    question: str | None,
    as_json: bool,
) -> None:
    """Talk to an agent whose conversation outlives its window."""
    from perdure.cli.chat_surface import ChatSurface
    from perdure.core.errors import PerdureError

    given = {**(flags or {})}
    given |= {f"model.{k}": v for k, v in (("name", model), ("provider", provider)) if v}
    try:
        surface = ChatSurface(given, session_id=session_id)
        if question is not None or not sys.stdin.isatty():
            from perdure.cli.chat_once import ask_once

            code = ask_once(surface, _with_input(question), as_json=as_json)
        else:
            from perdure.cli.chat_loop import ChatLoop

            code = ChatLoop(surface).run()
    except PerdureError as error:
        click.echo(f"perdure: {error}", err=True)
        code = 1
    sys.exit(code)


def _with_input(question: str | None) -> str:
    """The question, and behind it whatever was piped in."""
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    return "\n\n".join(part for part in (question, piped.strip()) if part)
