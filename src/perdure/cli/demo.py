"""`perdure demo`: watch a conversation outgrow its window, without a key or a network."""

from __future__ import annotations

import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from perdure.cli.style import Style
    from perdure.core.ports import ApprovalRequest
    from perdure.lab.demo.run import DemoSummary

# Pause between the streamed pieces of a reply, so that it can be read along.
_CHUNK_DELAY_S = 0.03
_TURN_PAUSE_S = 0.8
# The columns before a question of the quiz, and the least that it gets.
_QUIZ_INDENT = 23
_LEAST_QUIZ_ROOM = 20
_MARKS = {"in view": "✓", "one question away": "→", "lost": "✗"}


@click.command()
@click.option("--fast", is_flag=True, help="Without the pauses of a streamed reply.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the repository and the log go; must not exist. Default: a temporary folder.",
)
@click.option(
    "--engine",
    type=click.Choice(["compressor", "windows"]),
    default="compressor",
    help="The context engine: one that retells the history, or one that keeps a notebook and starts fresh windows.",
)
def demo(fast: bool, folder: Path | None, engine: str) -> None:
    """Watch a conversation outgrow its window and carry on.

    It takes less than a minute. A scripted model works on a small generated repository with the real tools. Nothing is
    sent anywhere, no key is needed, and the prices shown are what the same tokens would have cost.

    \b
    Examples:
      perdure demo
      perdure demo --fast --folder ./demo
      perdure demo --engine windows
    """
    from perdure.cli.chat.transcript import ChatTranscript
    from perdure.cli.style import Style, fit_lines
    from perdure.commands.format import gauge_line
    from perdure.config.env import wants_color
    from perdure.lab.demo.run import MODEL, WINDOW, Demo

    if folder is not None and folder.exists():
        raise click.BadParameter(f"{folder} exists already; name a folder that does not", param_hint="--folder")
    project = folder.resolve() if folder is not None else Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    ink = Style(is_color=sys.stdout.isatty() and wants_color("auto"))
    transcript = ChatTranscript(_write, width=width, ink=ink, can_unfold=False)
    play = Demo(
        project,
        on_event=transcript.show,
        on_question=_show_question,
        chunk_delay_s=0.0 if fast else _CHUNK_DELAY_S,
        engine=engine,
    )
    _write_wrapped(
        f"A scripted {MODEL} with a window of {WINDOW:,} tokens works with real tools in\n{play.workspace}\n"
        "Watch the bar: whenever it reaches the mark, the conversation is compacted and goes on.\n"
    )
    with play.open():
        for number, message in enumerate(play.messages):
            _write_wrapped(f"> {message}\n")
            play.take_turn(number)
            time.sleep(0 if fast else _TURN_PAUSE_S)
            for line in fit_lines([gauge_line(play.usage)], width()):
                _write(f"{ink.dim(line)}\n")
            _write("\n")
        for line in summary_lines(play.summarize(), ink):
            _write(f"{line}\n")
    _show_hints(ink, play.home, project)


def width() -> int:
    return shutil.get_terminal_size((80, 24)).columns


def summary_lines(summary: DemoSummary, ink: Style) -> Iterator[str]:
    """Yield the usage of the conversation, and the quiz."""
    from perdure.cli.style import fit_lines

    yield from fit_lines(_usage_lines(summary), width())
    yield ""
    yield "Quiz: is it still known?"
    for result in summary.quiz:
        mark = _MARKS[result.where]
        colour = {"in view": ink.good, "one question away": ink.warn, "lost": ink.bad}[result.where]
        start = f"  {colour(mark)} {result.where:<17}  "
        for row in _quiz_rows(result.question, result.answer, width() - 1 - _QUIZ_INDENT, ink):
            yield start + row
            start = " " * _QUIZ_INDENT


def _quiz_rows(question: str, answer: str, room: int, ink: Style) -> list[str]:
    """Return a question and its answer, in the same row if it fits, else in rows of its own."""
    room = max(_LEAST_QUIZ_ROOM, room)
    *rows, last = textwrap.wrap(question, room)
    if len(last) + 1 + len(answer) <= room:
        return [*rows, f"{last} {ink.dim(answer)}"]
    return [*rows, last, *(ink.dim(row) for row in textwrap.wrap(answer, room))]


def _usage_lines(summary: DemoSummary) -> Iterator[str]:
    from perdure.commands.format import money, share
    from perdure.lab.demo.run import MODEL, WINDOW

    outputs = "output" if summary.spilled == 1 else "outputs"
    counts = f"{summary.turns} turns, {summary.compactions} compactions, {summary.spilled} {outputs}"
    yield f"{counts} stored outside the context."
    yield (
        f"The whole conversation has {summary.history_tokens:,} tokens, {summary.history_tokens / WINDOW:.1f} times the"
        f" window; {summary.context_tokens:,} are in view."
    )
    yield (
        f"{summary.prompt_tokens:,} prompt tokens in all, {share(summary.cache_hit_rate)} of them from the cache."
        f" The demo cost nothing; at the provider's prices for {MODEL} it would have been {money(summary.cost_usd)}."
    )


def _show_hints(ink: Style, home: Path, project: Path) -> None:
    """Print what to do next. A command has a line of its own, to be copied whole."""
    from perdure.cli.style import break_command, program_name

    command = (f"PERDURE_HOME={home}", program_name())
    for hint, pieces in (
        (
            "Open it: /handoff shows what the model reads now, /undo compaction takes one back, /search finds what was"
            " said. The script is over, so it asks you to choose a model (/model) before it answers:",
            (*command, "chat --resume last"),
        ),
        ("Look around in the browser:", (*command, "serve")),
        ("Search it:", (*command, "sessions search exports")),
        ("Remove it:", (f"rm -r {project}",)),
    ):
        _write_wrapped(f"\n{hint}")
        # Two columns of indent, and a backslash where the line goes on.
        _write("".join(f"{ink.key(line)}\n" for line in break_command(pieces, width() - 4)))


def _show_question(request: ApprovalRequest, answer: str) -> None:
    _write_wrapped(f"? {request.action} ({request.reason})")
    _write_wrapped(f"> {answer}")


def _write_wrapped(text: str) -> None:
    """Write lines that end between words."""
    from perdure.cli.style import fit_lines

    _write("".join(f"{line}\n" for line in fit_lines(text.split("\n"), width())))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
